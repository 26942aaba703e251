"""Takes a stopped run back to its newest checkpoint: the rounds after it will be run again."""

import os
from pathlib import Path

from fedtct.errors import FedtctError
from fedtct.runs.checkpoint import CHECKPOINTS, checkpoint_of, rows_at
from fedtct.runs.metrics import METRICS, from_line


def rewind(run: Path) -> None:
    """Drop the rows after the newest checkpoint of a run folder; refused if rows before it are missing."""
    metrics = run / METRICS
    lines = metrics.read_bytes().splitlines(keepends=True) if metrics.is_file() else []
    count = _rows_kept(run, lines)
    if len(lines) < count:
        raise FedtctError(f"{metrics} is damaged: it has {len(lines)} rows, but its checkpoint comes after {count}")
    if len(lines) > count:
        os.truncate(metrics, sum(map(len, lines[:count])))


def _rows_kept(run: Path, lines: list[bytes]) -> int:
    """How many rows come before the newest checkpoint.

    A checkpoint does not count, and is removed, if that of a stage before it is lost.
    """
    saved = {path: rows_at(path) for path in (run / CHECKPOINTS).glob("*.safetensors")}
    for path, count in saved.copy().items():
        rows = [from_line(line, run / METRICS) for line in lines[:count]]
        if any(checkpoint_of(run, row.stage) not in saved for row in rows):
            path.unlink()
            saved[path] = 0
    return max(saved.values(), default=0)
