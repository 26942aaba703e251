"""The command line: fedtct run, compare, demo, report, predict, evaluate, export, data, paper, deploy.

Its modules, each after those that it imports:

- what commands share: help, options, screen, stopping, output, artifacts, flower
- commands: run, compare, demo, report, model, data, paper, deploy
- all of them: app
"""

from fedtct.cli.app import app, main

__all__ = ["app", "main"]
