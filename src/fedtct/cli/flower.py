"""Flower is optional: commands that need it say so."""

import importlib.util

from fedtct.errors import FedtctError


def need_flower() -> None:
    """Refuse to go on without Flower."""
    if importlib.util.find_spec("flwr") is None:
        raise FedtctError("Flower is not installed: pip install 'fedtct[flower]'")
