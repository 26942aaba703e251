"""The server's app: it runs what run.toml describes."""

from pathlib import Path

from fedtct.deploy.server_app import server_app

app = server_app(Path(__file__).with_name("run.toml"))
