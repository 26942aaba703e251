"""A federated run of fedtct, as Flower wants it: an app for the server and one for the silos."""
