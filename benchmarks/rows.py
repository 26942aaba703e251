"""The one format of results: a row compares the plain way, ours and the machine; a record is a file of rows."""

import json
import platform
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.machine import processor
from benchmarks.work import SEED

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"


@dataclass(frozen=True)
class Row:
    """One measurement. ``plain``, ``ours`` and ``floor`` are in the same ``unit``: seconds, or something a second."""

    part: str  # which part of the work: "stage 1", "tangent features", "stage 2", …
    what: str  # which case of it: "simple-cnn, fp32, batch 64"
    unit: str  # "s" or "MiB", where less is better, or a rate such as "images/s", where more is
    ours: float
    plain: float | None = None  # the straightforward way
    plain_is: str = ""  # what that way is, and whether it was scaled up from fewer steps
    floor: float | None = None  # what the machine could do at best
    bound: str = ""  # what sets the floor: flops, bytes, launches; and from which figures
    peak_bytes: int | None = None  # the most memory that ours held: the process's on a CPU, the device's on a GPU
    ratio_target: float | None = None  # ours is to be at least this many times as fast as plain
    ours_target: float | None = None  # and to reach this, in ``unit``
    note: str = ""
    detail: dict[str, Any] = field(default_factory=dict)  # further figures, by name

    @property
    def ratio(self) -> float | None:
        """How many times as fast as the straightforward way."""
        return None if self.plain is None else _times_as_fast(self.ours, self.plain, self.unit)

    @property
    def share_of_floor(self) -> float | None:
        """How near the machine's best: 1 is there."""
        return None if self.floor is None else _times_as_fast(self.ours, self.floor, self.unit)

    @property
    def met(self) -> bool | None:
        """Whether the targets are met; none if there are none."""
        checks = []
        if self.ratio_target is not None and self.ratio is not None:
            checks.append(self.ratio >= self.ratio_target)
        if self.ours_target is not None:
            checks.append(_times_as_fast(self.ours, self.ours_target, self.unit) >= 1)
        return all(checks) if checks else None


def _times_as_fast(ours: float, other: float, unit: str) -> float:
    return other / ours if unit in ("s", "MiB") else ours / other


@dataclass(frozen=True)
class Record:
    """The rows of one command on one machine, and what is needed to take them again."""

    command: str
    hardware: str
    rows: list[Row]
    seed: int = 0
    threads: int = 0
    commit: str = ""
    torch: str = torch.__version__
    python: str = platform.python_version()
    machine: dict[str, Any] = field(default_factory=dict)  # what the machine itself does: GFLOP/s, GB/s
    configuration: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def here(cls, command: str, rows: list[Row], **more: Any) -> "Record":
        """A record of this machine and this checkout; ``more`` adds to that or corrects it."""
        known = dict[str, Any](hardware=processor(), seed=SEED, threads=torch.get_num_threads(), commit=commit())
        return cls(command=command, rows=rows, **known | more)

    def write(self, path: Path) -> None:
        """Write the file, as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(_short(asdict(self)), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Record":
        """The record that ``write`` wrote."""
        fields = json.loads(path.read_text(encoding="utf-8"))
        return cls(**fields | {"rows": [Row(**row) for row in fields["rows"]]})


def commit() -> str:
    """The commit that is checked out; "+ edits" if files differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True).stdout

    try:
        edits = git("status", "--porcelain", "--", "src", "benchmarks", "pyproject.toml", "constraints.txt")
        return git("rev-parse", "HEAD").strip() + (" + edits" if edits else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def show(rows: Iterable[Row], title: str) -> None:
    """Print rows as a table."""
    table = Table(title=title)
    table.add_column("what")
    for heading in ("plain", "ours", "ratio", "target", "floor", "of floor", "peak memory"):
        table.add_column(heading, justify="right")
    rows = list(rows)
    order = list(dict.fromkeys(row.part for row in rows))
    part = None
    for row in sorted(rows, key=lambda row: order.index(row.part)):
        if row.part != part:
            table.add_section()
            table.add_row(f"[bold]{row.part}")
            part = row.part
        colour = {True: "[green]", False: "[red]", None: ""}[row.met]
        cells = [quantity(row.plain, row.unit), quantity(row.ours, row.unit), f"{colour}{times(row.ratio)}"]
        rest = [target(row), quantity(row.floor, row.unit), percent(row.share_of_floor), memory(row.peak_bytes)]
        table.add_row(f"  {row.what}", *cells, *rest)
    Console(width=None if Console().is_terminal else 150).print(table)


def quantity(value: float | None, unit: str) -> str:
    """A figure with three digits and its unit."""
    if value is None:
        return "–"
    if unit == "s" and value < 1:
        return f"{1000 * value:.3g} ms"
    digits = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{digits} {unit}"


def times(ratio: float | None) -> str:
    """How many times."""
    return "–" if ratio is None else f"{ratio:,.0f}×" if ratio >= 100 else f"{ratio:.3g}×"


def percent(share: float | None) -> str:
    """A share."""
    return "–" if share is None else f"{100 * share:.3g} %"


def memory(size: int | None) -> str:
    """An amount of memory."""
    return "–" if size is None else f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


def target(row: Row) -> str:
    """What a row is to reach."""
    wanted = []
    if row.ratio_target is not None:
        wanted.append(f"≥ {times(row.ratio_target)}")
    if row.ours_target is not None:
        wanted.append(f"{'≤' if row.unit == 's' else '≥'} {quantity(row.ours_target, row.unit)}")
    return ", ".join(wanted) or "–"


def _short(value: Any) -> Any:
    """With as many digits as a measurement has."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _short(v) for key, v in value.items()}
    return [_short(v) for v in value] if isinstance(value, list) else value
