"""The command line: fedtct run, compare, demo, report, predict, evaluate, export, data, paper, deploy."""

from fedtct.cli.app import app, main

__all__ = ["app", "main"]
