"""A comparison's table: a line for each method and split; as files, JSON, CSV, and LaTeX for a paper."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from fedtct.files import replacing, write_json, write_text
from fedtct.history import rated_on
from fedtct.runs.choose import chosen_settings
from fedtct.runs.common_class import CommonClass
from fedtct.runs.folder import RunFolder
from fedtct.runs.settings import METHODS
from fedtct.runs.summary import Summary

TABLE = "summary.csv"
CENTRALIZED = "centralized"  # the bound: data in one place
SPECIAL = {**{c: f"\\{c}" for c in "&%$#_{}"}, "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\^{}"}
WORDS = {"test": "test data", "holdout": "what silos hold out", "train": "training data"}


@dataclass(frozen=True)
class Line:
    """A line of the table: a method on a split, over all seeds."""

    method: str
    split: str
    seeds: int
    chosen: Mapping[str, tuple[Any, ...]]  # by setting, what held-out samples chose for each seed; none if all diverged
    rating: float | None  # accuracy, or R² of a regression
    spread: float | None  # its standard deviation over seeds, with n − 1; none for a single one
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


def write_comparison(lines: Sequence[Line], runs: Mapping[str, RunFolder], folder: Path) -> None:
    """summary.json, summary.csv and summary.tex of a comparison's table and runs."""
    everything = {name: Summary.of(run).as_dict() for name, run in runs.items()}
    write_json(folder / "summary.json", {"table": [line.as_dict() for line in lines], "runs": everything})
    _write_csv(folder / TABLE, lines)
    write_text(folder / "summary.tex", as_latex(lines))


def _write_csv(path: Path, lines: Sequence[Line]) -> None:
    rows = [line.as_dict() for line in lines]
    with replacing(path) as half, half.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, dict.fromkeys(name for row in rows for name in row))
        writer.writeheader()
        writer.writerows(rows)


def as_latex(lines: Sequence[Line]) -> str:
    """A row a method, a column a split, the mean over seeds ± its standard deviation, the best federated mean in bold.

    Means that read the same are equally good. It needs the package booktabs.
    """
    splits = list(dict.fromkeys(line.split for line in lines))
    methods = list(dict.fromkeys(line.method for line in lines))
    cells = {(line.method, line.split): _cell(line, _best(lines, line.split)) for line in lines}
    head = ["method", *map(_escaped, splits)]
    rows = [[_escaped(_called(method)), *(cells.get((method, split), "--") for split in splits)] for method in methods]
    first, *others = (" & ".join(row) + r" \\" for row in [head, *rows])
    columns = "l" + "r" * len(splits)
    text = [f"% {_what(lines)}", rf"\begin{{tabular}}{{{columns}}}", r"\toprule", first, r"\midrule", *others]
    return "\n".join([*text, r"\bottomrule", r"\end{tabular}", ""])


def _called(method: str) -> str:
    return METHODS[method].called if method in METHODS else method


def _what(lines: Sequence[Line]) -> str:
    """What the numbers are."""
    measure = "R2" if lines[0].regression else "accuracy in percent"
    where = " or ".join(dict.fromkeys(WORDS[line.rated_on] for line in lines))
    seeds = sorted({line.seeds for line in lines})
    over = f", mean and standard deviation (n - 1) over {' or '.join(map(str, seeds))} seeds" if seeds != [1] else ""
    return f"{measure} on {where}{over}, as fedtct compare found"


def _best(lines: Sequence[Line], split: str) -> str:
    """As it reads; the bound for methods is none of them."""
    rated = [
        line.rating for line in lines if line.split == split and line.method != CENTRALIZED and line.rating is not None
    ]
    return _shown(max(rated), lines[0].regression) if rated else ""


def _cell(line: Line, best: str) -> str:
    if line.rating is None:
        return "--"
    value = _shown(line.rating, line.regression)
    value = rf"\mathbf{{{value}}}" if value == best and line.method != CENTRALIZED else value
    spread = "" if line.spread is None else rf" \pm {_shown(line.spread, line.regression)}"
    return f"${value}{spread}$"


def _shown(value: float, regression: bool) -> str:
    return f"{value:.3f}" if regression else f"{100 * value:.1f}"


def _escaped(text: str) -> str:
    return "".join(SPECIAL.get(character, character) for character in text)
