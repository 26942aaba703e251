"""Compare methods: every method on every split with every seed, and a table of what they reached."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from fedtct.errors import FedtctError
from fedtct.history import rated_on
from fedtct.runs.choose import choice_of, chosen_settings, decide
from fedtct.runs.config import RunConfig
from fedtct.runs.execute import Look
from fedtct.runs.folder import RunFolder
from fedtct.runs.plan import Plan, Watch
from fedtct.runs.settings import OWN, OWN_DEFAULTS, as_value, tct_rounds
from fedtct.runs.summary import CommonClass, Summary


def comparison(
    methods: Sequence[str], splits: Sequence[str], seeds: Sequence[int], settings: Mapping[str, Any] | None = None
) -> Plan:
    """A plan with a run for each combination, or a choice if learning rates are given; all share the ``settings``."""
    given = {}
    decided = OWN if settings and settings.get("data") else None  # silos' own data is not split, whatever their number
    for split in splits:
        for method in methods:
            for seed in seeds:
                own = share_rounds(method, settings or {}) | {"method": method, "seed": seed}
                own |= {} if split == decided else {"split": split}
                given[f"{slug(method)}-{slug(split)}-seed{seed}"] = own
    if len(given) < len(methods) * len(splits) * len(seeds) or not given:
        raise FedtctError("a comparison needs at least one method, split and seed, and none of them twice")
    runs: dict[str, RunConfig] = {}
    for name, own in given.items():
        choice = choice_of(own)
        runs |= {f"{name}/{candidate}": config for candidate, config in choice.runs.items()} if choice else {}
        runs |= {} if choice else {name: RunConfig.of(**own)}
    return Plan("compare", runs)


def carry_out(
    plan: Plan, folder: str | Path, *, resume: bool = False, watch: Watch | None = None, look: Look | None = None
) -> dict[str, RunFolder]:
    """The runs that are compared, by method, split and seed: of each choice the best, and what lost is left out."""
    best: dict[str, RunFolder] = {}

    def settle(name: str, candidates: Mapping[str, RunFolder]) -> None:
        best[name] = decide(Path(folder, name), candidates).best

    chooses = "" not in plan.parts
    runs = plan.execute(folder, resume=resume, watch=watch, look=look, settle=settle if chooses else None)
    return best if chooses else runs


def share_rounds(method: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The same number of rounds for every method: tct's two stages share what another spends in one."""
    usual = OWN_DEFAULTS["stage2"] if settings.get("data") else RunConfig.stage2
    stage2 = settings.get("stage2", usual)
    ridge = stage2 == "ridge"
    rounds = as_value("rounds", settings.get("rounds", tct_rounds(stage2)))
    if method != "tct":
        rounds = (sum(rounds),)
    elif len(rounds) == 1:
        least, second = (1, 1) if ridge else (2, rounds[0] // 2)
        if rounds[0] < least:
            raise FedtctError(f"a comparison with tct, which has two stages, needs rounds of at least {least}")
        rounds = (rounds[0] - second, second)
    return {**settings, "rounds": rounds}


def slug(name: str) -> str:
    """A dataset, a split or a method as part of a file's name."""
    return name.replace(":", "").replace(" ", "-")


@dataclass(frozen=True)
class Line:
    """A line of the table: a method on a split, over all seeds."""

    method: str
    split: str
    seeds: int
    chosen: Mapping[str, tuple[Any, ...]]  # by setting, what held-out samples chose for each seed; none if all diverged
    rating: float | None  # accuracy, or R² of a regression
    spread: float | None  # its standard deviation over seeds; none for a single one
    by_seed: Mapping[int, float]  # the same rating of each seed that has one
    rmse: float | None  # of a regression, on the same data
    common: CommonClass | None  # of classes, if one is so common that accuracy says little
    held_out: float | None  # the rating to choose by, where test data is there besides
    worst_silo: float | None
    rounds: str
    megabytes: float  # a silo's, up and down
    seconds: float
    rated_on: str  # "test"; "holdout" where there is no test data, "train" if nothing is held out either
    worst_silo_on: str
    regression: bool

    @classmethod
    def of(cls, folders: Sequence[RunFolder]) -> Line:
        """The mean of runs that differ in their seed."""
        runs = [Summary.of(folder) for folder in folders]
        counts = rated_on(runs) or "test"
        ratings, held_out, worst = ([run.rating(on) for run in runs] for on in (counts, "holdout", "worst_silo"))
        return cls(
            method=runs[0].method,
            split=runs[0].split,
            seeds=len(runs),
            chosen={name: tuple(_chosen(folders, runs, name)) for name in chosen_settings(folders[0])},
            rating=_over_seeds(fmean, ratings),
            spread=_over_seeds(stdev, ratings) if len(ratings) > 1 else None,
            by_seed={f.config.seed: rating for f, rating in zip(folders, ratings, strict=True) if rating is not None},
            rmse=_over_seeds(fmean, [run.rmse(counts) for run in runs]),
            common=CommonClass.of(folders),
            held_out=_over_seeds(fmean, held_out) if counts == "test" else None,
            worst_silo=_over_seeds(fmean, worst),
            rounds=" or ".join(dict.fromkeys(run.rounds for run in runs)),
            megabytes=fmean(run.bytes_up + run.bytes_down for run in runs) / 1e6,
            seconds=fmean(run.seconds for run in runs),
            rated_on=counts,
            worst_silo_on=" or ".join(dict.fromkeys(run.worst_silo_on for run in runs)),
            regression=runs[0].regression,
        )

    def choice(self, name: str) -> str:
        """What was chosen, in words: once if it is the same for all seeds."""
        values = self.chosen.get(name, ())
        told = ["-" if value is None else f"{value:g}" if isinstance(value, float) else str(value) for value in values]
        return ", ".join(dict.fromkeys(told) if len(set(told)) == 1 else told) or "-"

    def as_dict(self) -> dict[str, Any]:
        """Plain values under names that say what was measured on what: ``test_accuracy``, ``holdout_r2``."""
        measure = "r2" if self.regression else "accuracy"
        held_out = {} if self.held_out is None else {f"holdout_{measure}": self.held_out}
        beside = {f"{self.rated_on}_rmse": self.rmse} if self.regression else {}
        beside |= {"balanced_accuracy": self.common.balanced} if self.common else {}
        return {
            "method": self.method,
            "split": self.split,
            "seeds": self.seeds,
            **{f"chosen_{name}": list(values) for name, values in self.chosen.items()},
            f"{self.rated_on}_{measure}": self.rating,
            f"{self.rated_on}_{measure}_std": self.spread,
            **beside,
            **held_out,
            f"worst_silo_{measure}": self.worst_silo,
            "worst_silo_on": self.worst_silo_on,
            "rounds": self.rounds,
            "megabytes": self.megabytes,
            "seconds": self.seconds,
        }


def _chosen(folders: Sequence[RunFolder], runs: Sequence[Summary], name: str) -> list[Any]:
    """A setting's value in each run; none where there was nothing to choose it by."""
    rated = [run.rating("holdout") is not None for run in runs]
    return [getattr(folder.config, name) if there else None for folder, there in zip(folders, rated, strict=True)]


def _over_seeds(of: Callable[[list[float]], float], ratings: Sequence[float | None]) -> float | None:
    """A statistic of all seeds; none if a seed has no rating, or has diverged to an R² that is no number."""
    numbers = [rating for rating in ratings if rating is not None and math.isfinite(rating)]
    return of(numbers) if len(numbers) == len(ratings) else None


def table(runs: Mapping[str, RunFolder]) -> list[Line]:
    """A line for each method and split, in the order of the runs."""
    return [Line.of(group) for group in by_method_and_split(runs).values()]


def by_method_and_split(runs: Mapping[str, RunFolder]) -> dict[tuple[str, str], list[RunFolder]]:
    """Runs that differ in their seed alone, together."""
    groups: dict[tuple[str, str], list[RunFolder]] = {}
    for run in runs.values():
        groups.setdefault((run.config.split, run.config.full_method), []).append(run)
    return groups
