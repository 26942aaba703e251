"""Choose a setting by the accuracy on what silos hold out: a run for each candidate, never a look at the test set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from fedtct.errors import FedtctError, listing
from fedtct.files import read_json, write_json
from fedtct.runs.config import RunConfig
from fedtct.runs.execute import Look, prepare
from fedtct.runs.folder import RunFolder
from fedtct.runs.places import resuming
from fedtct.runs.plan import COMMANDS, PLAN, Plan, Watch
from fedtct.runs.summary import Summary, judged_rows, judgement

CHOICE = "choice.json"
MEASURES = ("holdout_accuracy", "holdout_r2")  # of classes, and of a regression
LOSS = "holdout_loss"


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
    """Run all candidates; the one with the highest accuracy, or R², on held-out samples in its last rounds wins.

    Of equals, which rare classes make frequent, it is the one with the smallest loss there, or else the first.
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
    losses = {name: _loss(run) for name, run in runs.items()}
    best = max(rated, key=lambda name: (rated[name], -(math.inf if (loss := losses[name]) is None else loss)))
    measure = MEASURES[Summary.of(runs[best]).regression]
    file, record = Path(folder) / CHOICE, {"best": best, measure: ratings, LOSS: losses}
    if not file.is_file() or read_json(file) != record:  # what was over before may lie where nothing can be written
        write_json(file, record)
    return Choice(runs[best], runs, ratings)


class Written(NamedTuple):
    """What ``choice.json`` tells, by the names of runs."""

    best: str
    ratings: dict[str, float | None]
    losses: dict[str, float | None]

    def by_loss(self) -> bool:
        """Whether it was the loss that decided between equals."""
        equals = [name for name, rating in self.ratings.items() if rating == self.ratings[self.best]]
        losses = [self.losses[name] for name in equals]
        return len(equals) > 1 and len(set(losses)) > 1


def read_choice(folder: Path) -> Written | None:
    """What was chosen in a folder, if anything was."""
    file = folder / CHOICE
    if not file.is_file():
        return None
    found = read_json(file)
    try:
        ratings = next(found[measure] for measure in MEASURES if measure in found)
        ratings[found["best"]]  # a KeyError if it is none of them
        return Written(found["best"], ratings, dict(found[LOSS]))
    except (KeyError, TypeError, ValueError, StopIteration) as error:
        raise FedtctError(f"{file} is damaged: it holds no choice") from error


def chosen(path: Path) -> Path:
    """The folder of the run that a path stands for: of a choice the best one, of anything else the path itself."""
    if not (path / PLAN).is_file():
        return path
    plan = Plan.read(path)
    if plan.purpose != "choose":
        raise FedtctError(f"{path} holds several runs: give the folder of one of them, {listing(plan.runs)}")
    if (choice := read_choice(path)) is None:
        raise FedtctError(f"{path} has not chosen yet: go on with it with `{resuming(COMMANDS[plan.purpose], path)}`")
    return path / choice.best


def _rating(run: RunFolder) -> float | None:
    """On held-out samples; none if it is no number, which compares with nothing and would win by standing first."""
    if Summary.of(run).rating("holdout") is None:  # nobody held any out, or what came of it is no model
        return None
    rating = judgement(run.history, run.config)
    return rating if rating is not None and math.isfinite(rating) else None


def _loss(run: RunFolder) -> float | None:
    """On held-out samples in the same rounds; none if it is no number."""
    losses = [row.holdout_loss for row in judged_rows(run.history, run.config) if row.holdout_loss is not None]
    return loss if losses and math.isfinite(loss := fmean(losses)) else None
