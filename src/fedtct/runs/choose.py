"""Choose a setting by the accuracy on what silos hold out: a run for each candidate, never a look at the test set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fedtct.errors import FedtctError
from fedtct.files import read_json, write_json
from fedtct.runs.config import RunConfig
from fedtct.runs.execute import Look, prepare
from fedtct.runs.folder import RunFolder
from fedtct.runs.plan import Plan, Watch
from fedtct.runs.summary import Summary

CHOICE = "choice.json"


class Choice(NamedTuple):
    """The best candidate's run, and what every candidate reached on held-out samples."""

    best: RunFolder
    runs: dict[str, RunFolder]
    ratings: dict[str, float | None]  # accuracy, or R² of a regression; none of a run that diverged


def candidates(config: RunConfig, name: str, values: Sequence[Any]) -> Plan:
    """A plan with a run for each value of a setting."""
    if not config.holdout:
        raise FedtctError(f"choosing {name} needs held-out samples to judge by: set holdout, to 0.1 say")
    if config.epsilon:
        raise FedtctError(f"choosing {name} needs silos that rate models, which private ones do not: leave out epsilon")
    runs = {f"{name}-{value}": replace(config, **{name: value}) for value in values}
    if len(runs) < 2:
        raise FedtctError(f"choosing {name} needs at least two different values")
    return Plan("choose", runs)


def choose(
    plan: Plan, folder: str | Path, *, resume: bool = False, watch: Watch | None = None, look: Look | None = None
) -> Choice:
    """Run all candidates; the first of those with the highest final accuracy, or R², on held-out samples wins.

    ``choice.json`` in the folder tells which run that is.
    """
    first = next(iter(plan.runs.values()))  # all have the same data
    if not any(len(silo.held_y) for silo in prepare(first).silos):
        raise FedtctError(f"no silo has enough samples to hold out {first.holdout:g} of them: use a larger holdout")
    runs = plan.execute(folder, resume=resume, watch=watch, look=look)
    ratings = {name: _rating(run) for name, run in runs.items()}
    rated = {name: rating for name, rating in ratings.items() if rating is not None}
    if not rated:
        raise FedtctError(f"none of {', '.join(ratings)} can be chosen: every run diverged. They are in {folder}")
    best = max(rated, key=lambda name: rated[name])
    measure = "holdout_r2" if Summary.of(runs[best]).regression else "holdout_accuracy"
    file, record = Path(folder) / CHOICE, {"best": best, measure: ratings}
    if not file.is_file() or read_json(file) != record:  # what was over before may lie where nothing can be written
        write_json(file, record)
    return Choice(runs[best], runs, ratings)


def _rating(run: RunFolder) -> float | None:
    """On held-out samples; none if it is no number, which compares with nothing and would win by standing first."""
    rating = Summary.of(run).rating("holdout")
    return rating if rating is not None and math.isfinite(rating) else None
