"""Damaged lines of CSV files, which pandas would read without a warning."""

import csv
import warnings
from pathlib import Path
from typing import Any

from fedtct.errors import FedtctError, listing


def refuse_nul(path: Path) -> None:
    """Refuse a NUL byte, which no text contains: it would become a part of a category."""
    data = path.read_bytes()
    if (place := data.find(0)) >= 0:
        line = len(data[: place + 1].splitlines())
        raise FedtctError(
            f"{path} is damaged or not UTF-8 text: line {line} has a NUL byte. Fix it, or save the table again as CSV "
            "in UTF-8"
        )


def warn_of_short_rows(path: Path, how: dict[str, Any], fields: int) -> None:
    """Warn of rows that have fewer fields than there are columns, as in a file that was cut off.

    They are not refused, because Excel leaves out separators at the end of rows that are empty there.
    """
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter=how["sep"])
        short = [rows.line_num for row in rows if len(row) < fields and any(map(str.strip, row))]
    if lines := [line for line in short if line > how["skiprows"]]:
        warnings.warn(
            f"{path} has too few fields in line {listing(lines, most=3)}, and the rest of the row counts as missing: "
            "was the file cut off, or a field left out?",
            stacklevel=2,
        )
