"""Lines of a CSV file that are not as they were written: pandas reads them without a word."""

from pathlib import Path

from fedtct.errors import FedtctError


def refuse_nul(path: Path) -> None:
    """Refuse a NUL byte, which no text has: it would be a part of a category."""
    data = path.read_bytes()
    if (place := data.find(0)) >= 0:
        line = len(data[: place + 1].splitlines())
        raise FedtctError(
            f"{path} is damaged, or no UTF-8 text: line {line} holds a NUL byte; mend it, or save the table again as "
            "CSV in UTF-8"
        )
