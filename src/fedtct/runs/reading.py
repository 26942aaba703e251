"""Finished and unfinished runs, read from their folders: to report on, or to work with in Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import filterfalse
from pathlib import Path
from typing import TYPE_CHECKING, overload

from fedtct.errors import FedtctError
from fedtct.runs.choose import read_choice
from fedtct.runs.folder import CONFIG, RunFolder
from fedtct.runs.plan import PLAN, Plan
from fedtct.runs.settings import settings_of
from fedtct.runs.summary import Summary

if TYPE_CHECKING:
    import pandas as pd


class Runs(Sequence[RunFolder]):
    """The runs in some folders, as an immutable sequence; ``to_pandas`` makes a table.

    A run has its ``config``, ``history`` and ``path``; once it is ``finished``, ``fit()`` returns its model.
    """

    def __init__(self, runs: Sequence[RunFolder]) -> None:
        self._runs = list(runs)
        self._paths = {run.path for run in runs}

    def __len__(self) -> int:
        return len(self._runs)

    def __repr__(self) -> str:
        return f"Runs({', '.join(str(run.path) for run in self)})"

    @overload
    def __getitem__(self, index: int) -> RunFolder: ...
    @overload
    def __getitem__(self, index: slice) -> Runs: ...
    def __getitem__(self, index: int | slice) -> RunFolder | Runs:
        return Runs(self._runs[index]) if isinstance(index, slice) else self._runs[index]

    def __iter__(self) -> Iterator[RunFolder]:
        return iter(self._runs)

    def to_pandas(self, *, lost: bool = False) -> pd.DataFrame:
        """One row per run: how good its model is, what it took, and the settings in which runs differ.

        Of runs at several learning rates, the table has only the chosen one. With ``lost`` it has the others too, and
        the column ``chosen`` tells them apart.
        """
        import pandas as pd

        varied = self._varied()
        rows = []
        for run in self if lost else filterfalse(self._has_lost, self):
            summary = Summary.of(run).as_dict()
            settings = {name: getattr(run.config, name) for name in varied if name not in summary}
            chosen = {"chosen": not self._has_lost(run)} if lost and read_choice(run.path.parent) else {}
            rows.append({"folder": summary.pop("folder"), **chosen, **settings, **summary})
        return pd.DataFrame(rows)

    def _has_lost(self, run: RunFolder) -> bool:
        """Whether this run was in a choice that another of these runs won."""
        choice = read_choice(run.path.parent)
        return choice is not None and choice.best != run.path.name and run.path.with_name(choice.best) in self._paths

    def _varied(self) -> list[str]:
        """The settings that differ between runs, without those of the machine, which change no result."""
        first, *others = (asdict(run.config) for run in self)
        differ = [name for name, value in first.items() if any(other[name] != value for other in others)]
        return [name for name in differ if name not in settings_of("machine")]


def read_runs(*folders: str | Path) -> Runs:
    """The runs in these folders, each once. A folder may hold a run, a comparison, or a choice between learning rates.

    >>> runs = read_runs("runs/first", "runs/second")  # doctest: +SKIP
    >>> table = runs.to_pandas()  # doctest: +SKIP
    >>> table.groupby(["split", "method"])["test_accuracy"].agg(["mean", "std"])  # doctest: +SKIP
    """
    runs = {run.path.resolve(): run for folder in folders for run in _runs_in(Path(folder))}
    if not runs:
        raise FedtctError("read_runs takes the folders of runs or comparisons: none was given")
    for run in runs.values():
        if not run.history:
            raise FedtctError(f"{run.path} has no rounds yet: there is nothing to report")
    return Runs(list(runs.values()))


def _runs_in(path: Path) -> list[RunFolder]:
    if not (path / PLAN).is_file():
        return [RunFolder.read(path)]
    begun = [path / name for name in Plan.read(path).runs if (path / name / CONFIG).is_file()]
    if not begun:
        raise FedtctError(f"{path} has no rounds yet: there is nothing to report")
    return [RunFolder.read(run) for run in begun]
