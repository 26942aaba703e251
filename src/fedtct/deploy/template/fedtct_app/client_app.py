"""The silos' app: it answers the server's questions from the data that the silo's own silo.toml names."""

from fedtct.deploy.client_app import client_app, deployed_silo

app = client_app(deployed_silo)
