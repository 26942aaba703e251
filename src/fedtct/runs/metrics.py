"""Rows on disk: ``metrics.jsonl``, a line a round."""

import json
import math
from pathlib import Path

from fedtct.errors import FedtctError
from fedtct.files import strict
from fedtct.history import History, Row, as_plain

METRICS = "metrics.jsonl"


def to_line(row: Row) -> str:
    """A row as a line of strict JSON; numbers that are not finite are null."""
    return json.dumps(strict(as_plain(row)), allow_nan=False) + "\n"


def from_line(line: bytes, where: Path) -> Row:
    """The row that a line holds."""
    try:
        values = json.loads(line)
        lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        # The lines of regressions alone have it: where it is null there was an R² that is no number.
        r2 = {"train_r2": math.nan} if values.get("train_r2", 0.0) is None else {}
        return Row(**values | lists | r2)
    except (ValueError, TypeError, KeyError) as error:
        raise FedtctError(f"{where} is damaged: a line is not a row of metrics") from error


def read_rows(path: Path) -> History:
    """The rows of a run folder; a last line that is still being written does not count."""
    text = (path / METRICS).read_bytes() if (path / METRICS).is_file() else b""
    return History([from_line(line, path / METRICS) for line in text[: text.rfind(b"\n") + 1].splitlines()])
