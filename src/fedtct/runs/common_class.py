"""A class that is so common in what models are rated on that accuracy says little, and what says more."""

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

import torch
from torch import Tensor

from fedtct.runs.finding_types import CLASSES, SPLIT
from fedtct.runs.folder import RunFolder
from fedtct.runs.summary import final_row

COMMON = 0.8  # a class with this share of the rated samples makes accuracy say little
SHOWN = 0.02  # above chance, in balanced accuracy: from here on rare classes count as found


class CommonClass(NamedTuple):
    """A class that is so common in what models are rated on that accuracy says little."""

    name: str
    share: float  # the accuracy of always naming it
    balanced: float | None  # the model's accuracy if classes were equally common; none if there is no other class
    chance: float  # the balanced accuracy of always naming it, or of guessing

    @property
    def others_found(self) -> bool:
        """Whether the model surely recognises any other class."""
        return self.balanced is not None and self.balanced >= self.chance + SHOWN

    @classmethod
    def of(cls, runs: Sequence[RunFolder]) -> "CommonClass | None":
        """The mean over runs that differ in their seed; none if no class is so common, or if it is not known."""
        if any(final_row(run.history, run.config).diverged for run in runs):
            return None
        found = [run.finding(CLASSES) for run in runs]
        tables = [torch.tensor(classes["confusion"], dtype=torch.float64) for classes in found if classes]
        if len(tables) < len(found):
            return None
        label = int(torch.stack([table.sum(1) for table in tables]).sum(0).argmax())
        share = fmean(float(table[label].sum() / table.sum()) for table in tables)
        if not share >= COMMON:  # without any samples it is no number
            return None
        name = class_names(runs[0], len(tables[0]))[label]
        balanced = [accuracy_in_mix(table, torch.ones(len(table))) for table in tables] if share < 1 else []
        chance = fmean(1 / int((table.sum(1) > 0).sum()) for table in tables)
        return cls(name, share, fmean(balanced) if balanced else None, chance)


def class_names(run: RunFolder, count: int) -> list[str]:
    """The names of a run's classes; numbers if they have none."""
    split = run.finding(SPLIT)
    names: list[str] = split["class_names"] if split else (run.agreement() or {}).get("task", {}).get("names", [])
    return names if len(names) == count else [str(label) for label in range(count)]


def accuracy_in_mix(found: Tensor, mix: Tensor) -> float:
    """What the accuracy would be if classes came in this mix; classes without a tested sample do not count."""
    tested = found.sum(1) > 0
    shares = torch.where(tested, mix, 0).double()
    return float((shares * found.diagonal() / found.sum(1).clamp_min(1)).sum() / shares.sum())
