"""fedtct demo: what TCT does, in a minute, on data that is there already."""

from pathlib import Path

from fedtct.cli.compare import show
from fedtct.cli.options import Json, Out
from fedtct.cli.screen import Screen
from fedtct.runs.places import next_free

METHODS = ("fedavg", "scaffold", "tct", "centralized")
SPLITS = ("classes:1", "classes:2")
ROUNDS = 30  # for tct, 15 in each stage
FEATURES = 4096  # so that a round of stage 2 sends less than one of stage 1


def demo(out: Out = None, json: Json = False) -> None:
    """See what TCT does, in about a minute.

    Four methods train across ten silos, which have one or two of the ten digits each.

    \b
    fedtct demo
    """
    with Screen(quiet=json) as screen:
        screen.wait("getting ready")
        import torch

        from fedtct.runs.compare import comparison

        torch.set_num_threads(1)  # the arrays are too small to share: threads would only wait for each other
        plan = comparison(METHODS, SPLITS, [0], {"dataset": "digits", "silos": 10, "rounds": ROUNDS, "p": FEATURES})
        show(plan, out or next_free(Path("runs/demo")), False, screen, json)
