"""Every number that the paper published, and the run that reproduces it."""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from fedtct.errors import FedtctError

LEARNING_RATES = (0.1, 0.01, 0.001)  # the paper's grid for FedAvg, FedProx, SCAFFOLD and the centralized bound
HOLDOUT = 0.1  # of every silo's samples, for that choice
STAGE2_LR = 5e-5


@dataclass(frozen=True)
class Scale:
    """How much of the paper's protocol is run."""

    name: str
    rounds: int  # of a baseline
    stage1: int  # rounds of TCT
    stage2: int
    grid: int  # rounds after which a learning rate is chosen
    local_epochs: int = 5
    p: int = 100_000
    limit: int = 0  # training samples, 0 for all


SCALES = {
    scale.name: scale
    for scale in (
        Scale("full", rounds=200, stage1=100, stage2=100, grid=40),
        Scale("half", rounds=100, stage1=50, stage2=50, grid=20),
        Scale("tiny", rounds=4, stage1=2, stage2=2, grid=2, local_epochs=1, p=500, limit=500),
    )
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
        """What one calls it on a command line."""
        return f"{self.dataset}/{self.split}/{self.method}"


@cache
def published() -> tuple[Cell, ...]:
    """All cells of all tables."""
    text = (files("fedtct.paper") / "targets.csv").read_text(encoding="utf-8")
    return tuple(
        Cell(
            row["table"],
            row["dataset"],
            row["model"],
            row["init"],
            row["split"],
            row["method"],
            float(row["top1_percent"]),
            row["note"],
        )
        for row in csv.DictReader(text.splitlines())
    )


def find_cell(table: str, key: str) -> Cell:
    """The cell of a table with that key."""
    cells = [cell for cell in published() if cell.table == table]
    for cell in cells:
        if cell.key == key:
            return cell
    known = f"its cells are {', '.join(c.key for c in cells)}" if cells else "there is no such table"
    raise FedtctError(f"{table} has no cell '{key}': {known}")
