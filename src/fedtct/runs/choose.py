"""Choose a setting by the accuracy on what silos hold out: a run for each candidate, and never by the test set."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from fedtct.errors import FedtctError, listing
from fedtct.files import read_json, write_json
from fedtct.runs.checks import rates
from fedtct.runs.config import RunConfig
from fedtct.runs.execute import Look
from fedtct.runs.folder import RunFolder
from fedtct.runs.places import resuming
from fedtct.runs.plan import COMMANDS, PLAN, Plan, Watch
from fedtct.runs.settings import SETTINGS, as_value
from fedtct.runs.summary import Summary, judged_rows, judgement

CHOICE = "choice.json"
MEASURES = ("holdout_accuracy", "holdout_r2")  # of classes, and of a regression
LOSS = "holdout_loss"


class Choice(NamedTuple):
    """The best candidate's run, and what every candidate reached on held-out samples."""

    best: RunFolder
    runs: dict[str, RunFolder]
    ratings: dict[str, float | None]  # accuracy, or R² of a regression; none of a run that diverged


def choice_of(given: Mapping[str, Any]) -> Plan | None:
    """The choice that these settings leave open: of several learning rates, in a list or between commas."""
    several = rates(given)
    if len(several) < 2:
        return None
    return candidates(RunConfig.of(**{**given, "lr": several[0]}), "lr", [as_value("lr", rate) for rate in several])


def candidates(config: RunConfig, name: str, values: Sequence[Any]) -> Plan:
    """A plan with a run for each value of a setting."""
    if not config.holdout:
        raise FedtctError(f"choosing {name} needs held-out samples to judge by: set holdout, for example to 0.1")
    if config.epsilon:
        raise FedtctError(
            f"choosing {name} needs silos that rate models, and with epsilon they do not: leave out epsilon"
        )
    runs = {f"{name}-{value}": replace(config, **{name: value}) for value in values}
    if len(runs) < 2:
        raise FedtctError(f"choosing {name} needs at least two different values")
    return Plan("choose", runs)


def choose(
    plan: Plan, folder: str | Path, *, resume: bool = False, watch: Watch | None = None, look: Look | None = None
) -> Choice:
    """Run all candidates and decide between them."""
    choice = decide(Path(folder), plan.execute(folder, resume=resume, watch=watch, look=look))
    if choice.ratings[choice.best.path.name] is None:
        raise _none_chosen(choice.ratings, folder)
    return choice


def decide(folder: Path, runs: Mapping[str, RunFolder]) -> Choice:
    """The run with the highest accuracy, or R², on held-out samples in its last rounds wins.

    Of equals, which are frequent with rare classes, it is the one with the smallest loss there, or else the first. If
    every run diverged, the first one stands for them, without a rating. The choice is written to ``choice.json``.
    """
    ratings, losses = ({name: rate(run) for name, run in runs.items()} for rate in (_rating, _loss))
    rated = {name: rating for name, rating in ratings.items() if rating is not None}
    order = {name: (rating, -(math.inf if (loss := losses[name]) is None else loss)) for name, rating in rated.items()}
    best = max(order, key=lambda name: order[name], default=next(iter(runs)))
    measure = MEASURES[Summary.of(runs[best]).regression]
    file, record = folder / CHOICE, {"best": best, measure: ratings, LOSS: losses}
    if not file.is_file() or read_json(file) != record:  # a finished choice may lie where nothing can be written
        write_json(file, record)
    return Choice(runs[best], dict(runs), ratings)


def _none_chosen(names: Iterable[str], folder: str | Path) -> FedtctError:
    return FedtctError(f"none of {', '.join(names)} can be chosen: every run diverged. They are in {folder}")


class Written(NamedTuple):
    """The content of ``choice.json``: the best run, and every run's rating and loss, by name."""

    best: str
    ratings: dict[str, float | None]
    losses: dict[str, float | None]

    @property
    def none(self) -> bool:
        """Whether every run diverged, so that there is no best one."""
        return self.ratings[self.best] is None

    def by_loss(self) -> bool:
        """Whether it was the loss that decided between equals."""
        equals = [name for name, rating in self.ratings.items() if rating == self.ratings[self.best]]
        losses = [self.losses[name] for name in equals]
        return len(equals) > 1 and len(set(losses)) > 1


def read_choice(folder: Path) -> Written | None:
    """The choice that was made in a folder, if there is one."""
    file = folder / CHOICE
    if not file.is_file():
        return None
    found = read_json(file)
    try:
        ratings = next(found[measure] for measure in MEASURES if measure in found)
        ratings[found["best"]]  # raises a KeyError if it is none of them
        return Written(found["best"], ratings, dict(found[LOSS]))
    except (KeyError, TypeError, ValueError, StopIteration) as error:
        raise FedtctError(f"{file} is damaged: it holds no choice") from error


def chosen(path: Path) -> Path:
    """The run's folder that a path stands for: in a choice the best run's, else the path itself."""
    if not (path / PLAN).is_file():
        return path
    plan = Plan.read(path)
    if plan.purpose != "choose":
        names = plan.parts if plan.chooses else plan.runs
        raise FedtctError(f"{path} holds several runs: give the folder of one of them, {listing(names)}")
    if (choice := read_choice(path)) is None:
        raise FedtctError(f"{path} has not chosen yet: resume it with `{resuming(COMMANDS[plan.purpose], path)}`")
    if choice.none:
        raise _none_chosen(choice.ratings, path)
    return path / choice.best


def undecided(folder: Path) -> bool:
    """Whether a choice in a folder is not made yet."""
    return (folder / PLAN).is_file() and Plan.read(folder).purpose == "choose" and read_choice(folder) is None


def chosen_settings(run: RunFolder) -> dict[str, tuple[Any, ...]]:
    """The settings that were chosen for a run, and the values they were chosen from; empty if it was not chosen."""
    folder = run.path.parent
    choice = read_choice(folder)
    if not choice or choice.best != run.path.name or not (folder / PLAN).is_file():
        return {}
    configs = Plan.read(folder).runs.values()
    values = {name: tuple(dict.fromkeys(getattr(config, name) for config in configs)) for name in SETTINGS}
    return {name: of_all for name, of_all in values.items() if len(of_all) > 1}


def _rating(run: RunFolder) -> float | None:
    """On held-out samples; none if it is not finite: NaN compares with nothing, and would win if it came first."""
    if Summary.of(run).rating("holdout") is None:  # no silo holds any out, or the model diverged
        return None
    rating = judgement(run.history, run.config)
    return rating if rating is not None and math.isfinite(rating) else None


def _loss(run: RunFolder) -> float | None:
    """On held-out samples in the same rounds; none if it is not finite."""
    losses = [row.holdout_loss for row in judged_rows(run.history, run.config) if row.holdout_loss is not None]
    return loss if losses and math.isfinite(loss := fmean(losses)) else None
