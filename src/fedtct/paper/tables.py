"""Every number that the paper published, and the run that reproduces it."""

import csv
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from fedtct.paper.protocol import FEDADAM_GRID, GRID, Retrain, Run, Tangent, Train

TITLES = {
    "table1": "Retraining the last layers centrally (CIFAR-10, classes:2)",
    "table2": "All methods, three datasets, four splits",
    "table3": "FedAdam and FedDyn",
    "table4": "ResNet-18 with GroupNorm",
    "table5": "From ImageNet weights",
    "table6": "One round of stage 2",
    "table7": "Learning rates of stage 2 and of FedAdam (CIFAR-10)",
    "table8": "Stage 2: learning rate and local steps (CIFAR-10, classes:2)",
    "table9": "Stage 2: learning rate and local steps (CIFAR-100, dirichlet:0.01)",
}


@dataclass(frozen=True)
class Cell:
    """One published number."""

    table: str
    dataset: str
    model: str
    init: str
    split: str
    method: str
    published: float  # top-1 accuracy in per cent
    note: str

    @property
    def key(self) -> str:
        """Its name on the command line, such as ``cifar10/classes:2/tct``."""
        setting = (
            re.sub(r"(stage-2 |local )?lr |\s", "", self.note) if self.table in ("table7", "table8", "table9") else ""
        )
        init = f"/{self.init}" if self.table == "table1" else ""
        return f"{self.dataset}/{self.split}/{self.method}{init}" + (f"/{setting}" if setting else "")

    @property
    def run(self) -> Run:
        """The run whose result this is."""
        network = Train(
            self.dataset, self.model, "random" if self.table == "table1" else self.init, self.split, "fedavg"
        )
        if self.table == "table1":
            return Retrain(network, layers=int(self.method.split("-")[2]), trained=self.init == "fedavg")
        if self.method.startswith("tct"):
            return Tangent(network, **stage2_settings(self.note))
        rates: tuple[float, ...] = FEDADAM_GRID if self.method == "fedadam" else GRID
        if self.table == "table7":
            rates = (number(self.note.removeprefix("local lr ")),)
        split = "pooled" if self.method == "centralized" else self.split
        return Train(self.dataset, self.model, self.init, split, self.method, rates)

    @property
    def round(self) -> int | None:
        """Which round of stage 2 the number is of; none for the last of the run."""
        return 1 if self.method == "tct-one-round" else None


def stage2_settings(note: str) -> dict[str, Any]:
    """Learning rate and local steps as the note of a cell gives them."""
    settings: dict[str, Any] = {}
    if rate := re.search(r"lr ([\d^.e-]+)", note):
        settings["lr"] = number(rate[1])
    if steps := re.search(r"M=(\d+)", note):
        settings["steps"] = int(steps[1])
    return settings


def number(text: str) -> float:
    """A number such as ``1e-4`` or ``10^-4.5``."""
    return 10 ** float(text[3:]) if text.startswith("10^") else float(text)


@cache
def cells(table: str | None = None) -> tuple[Cell, ...]:
    """All published numbers, or those of a table."""
    text = (files("fedtct.paper") / "targets.csv").read_text(encoding="utf-8")
    names = ("table", "dataset", "model", "init", "split", "method", "note")
    every = (
        Cell(published=float(row["top1_percent"]), **{name: row[name] for name in names})
        for row in csv.DictReader(text.splitlines())
    )
    return tuple(cell for cell in every if table in (None, cell.table))
