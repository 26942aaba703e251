"""fedtct demo: what TCT does, in a minute, on data that is there already."""

from pathlib import Path

from fedtct.cli.compare import carry_out
from fedtct.cli.output import next_free
from fedtct.cli.run import Json, Out
from fedtct.cli.screen import Screen

METHODS = ("fedavg", "scaffold", "tct", "centralized")
SPLITS = ("classes:1", "classes:2")
ROUNDS = 40  # for tct, 20 in each stage


def demo(out: Out = None, json: Json = False) -> None:
    """Digits in 10 silos that know one or two classes each: FedAvg, SCAFFOLD, TCT and the centralized bound.

    \b
    fedtct demo
    """
    from fedtct.runs.compare import comparison

    screen = Screen(quiet=json)
    plan = comparison(METHODS, SPLITS, [0], {"dataset": "digits", "silos": 10, "rounds": ROUNDS})
    carry_out(plan, out or next_free(Path("runs/demo")), False, screen, json)
