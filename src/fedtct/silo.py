"""One data holder: the samples that it trains on and those that it holds out, as they were given.

Nothing changes a silo: what a federation makes of its data is a seated silo's (``seated_silo.py``), and several
federations may have the same silos.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from fedtct.agreement import describe
from fedtct.data.copies import warn_of_copies
from fedtct.data.holding_out import hold_out
from fedtct.data.samples import TASKS, Inputs, as_samples, from_dataset, join, take, warn_of_scales
from fedtct.data.tables import is_table
from fedtct.errors import FedtctError, check_one_of
from fedtct.questions import Message
from fedtct.tasks import Answers

UNNAMED = "silo"


@dataclass(eq=False, repr=False)
class SiloData:
    """What a silo trains on and what it holds out: samples, and what is to be learnt of them."""

    name: str
    x: Inputs
    y: Answers
    held_x: Inputs
    held_y: Answers
    by_groups: bool = False  # whether samples were held out by whole groups

    def __len__(self) -> int:
        """How many samples it trains on."""
        return len(self.y)

    def __repr__(self) -> str:
        held = f", {len(self.held_y)} held out" if len(self.held_y) else ""
        return f"Silo('{self.name}', {len(self)} samples{held})"

    def parts(self) -> tuple[Inputs, Answers, Inputs, Answers]:
        """Samples and answers, then those held out."""
        return self.x, self.y, self.held_x, self.held_y

    def at(self, index: int, device: torch.device) -> "SiloData":
        """The same with tensors on a device; a silo without a name is called by its place, ``silo 3``."""
        name = f"{UNNAMED} {index}" if self.name == UNNAMED else self.name
        x, y, held_x, held_y = (part.to(device) if isinstance(part, Tensor) else part for part in self.parts())
        return SiloData(name, x, y, held_x, held_y, self.by_groups)

    def holds_rows(self) -> bool:
        """Whether a sample is a row of numbers: of a table, or of a matrix."""
        return is_table(self.x) or (self.x.ndim == 2 and self.x.is_floating_point())

    def describe(self, *, private: bool = False) -> Message:
        """What a server must know before it can start: sizes, classes and statistics, but no sample.

        If ``private``, only how many samples there are, of which shape and kind.
        """
        if private and self.by_groups:  # one sample in another group can make many others held out
            raise FedtctError(
                f"{self.name}: differential privacy does not cover holding out by groups: leave out groups, or set "
                "holdout to 0"
            )
        return describe(self.x, self.y, self.held_y, self.name, private=private)


class Silo(SiloData):
    """One data holder: samples ``x`` with their answers ``y``, or a torch Dataset of such pairs.

    ``x`` is an array, a tensor or a table (pandas.DataFrame). uint8 means pixels, which are normalised by the
    statistics of all silos; other whole numbers are tokens; real numbers are used as they are, in single precision. The
    columns of a table, numbers and texts, are encoded in the same way in all silos. ``y`` holds labels from 0, class
    names, or real numbers for a regression. A Dataset is read only once, and so are its random transforms: to augment
    images, use a method's ``augment``.

    - ``task``: "regression" or "classification", if ``y`` suggests the wrong one. With "classification", whole numbers
      are class names and need not count from 0
    - ``holdout``: the share of samples to keep out of training; choices and the silo's scores are based on them
    - ``groups``: for each sample, the patient (or machine, or customer) that it belongs to. All samples of one are held
      out, or none
    - ``name``: what messages call the silo

    >>> import numpy as np
    >>> silo = Silo(np.random.rand(50, 3), ["ill", "well"] * 25, holdout=0.1, name="north")
    >>> silo
    Silo('north', 45 samples, 5 held out)
    """

    def __init__(
        self,
        x: Any,
        y: Any = None,
        *,
        task: str = "auto",
        holdout: float = 0.0,
        groups: Any = None,
        name: str | None = None,
    ) -> None:
        name = name or UNNAMED
        check_one_of(TASKS, task=task)
        if y is None and not isinstance(x, Dataset):
            raise FedtctError(f"{name}: y is missing: give labels, names or numbers, or a torch Dataset of pairs")
        x, y = from_dataset(x, name, task) if y is None else as_samples(x, y, name, task)
        warn_of_scales(x)
        kept, held = hold_out(len(y), holdout, name, groups)
        kept_x, kept_y = (take(x, kept), take(y, kept)) if len(held) else (x, y)
        held_x = take(x, held)
        warn_of_copies(
            held_x, [kept_x], f"samples that {name} holds out", "drop the copies; if one person has several, set groups"
        )
        by_groups = groups is not None and holdout > 0
        super().__init__(name, kept_x, kept_y, held_x, take(y, held), by_groups)


def pool(silos: Sequence[SiloData]) -> SiloData:
    """All silos' data in one."""
    return SiloData("pooled", *map(join, zip(*(silo.parts() for silo in silos), strict=True)))
