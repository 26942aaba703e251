"""The command line: fedtct run, compare, demo, data."""

from fedtct.cli.app import app, main

__all__ = ["app", "main"]
