"""Numbers that are written as texts: which texts are numbers, and which were meant as numbers and are refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from fedtct.errors import FedtctError, listing

MANY_NUMBERS = 20  # with so many different numbers among texts, these are not codes
FEW_ODD = 0.25  # of a column's values: so few texts among numbers mark missing values, or are slips
COMMA_NUMBER = re.compile(r"[+-]?\d+(,\d+)?([eE][+-]?\d+)?")
GROUPED = re.compile(r"[+-]?\d{1,3}([ '’\u00a0\u202f]\d{3})+([.,]\d+)?")  # with something between thousands
ANY_NUMBER = re.compile(r"[+-]?((\d+|\d{1,3}(\.\d{3})+)(,\d+)?|(\d+|\d{1,3}(,\d{3})+)(\.\d+)?)([eE][+-]?\d+)?")
WITH_UNIT = re.compile(r"([$€£¥]?)\s*[+-]?\d[\d.,]*\s*([^\d\s.,]\D{0,9})?")
CODE_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")


def written(value: Any) -> str:
    """A table's number as a text: 1, not 1.0."""
    return str(value) if isinstance(value, bool | np.bool_) else f"{float(value):.15g}"


def as_number(text: str) -> float | None:
    """The number that a text stands for, or none; of a truth value 1 or 0."""
    if text in ("True", "False"):
        return float(text == "True")
    try:
        return float(text)
    except ValueError:
        return None


def as_code_number(text: str) -> Decimal | None:
    """The exact number that a code stands for; none for 1E2, which is 100 only by coincidence."""
    text = {"True": "1", "False": "0"}.get(text, text)
    return Decimal(text) if CODE_NUMBER.fullmatch(text) else None


def are_comma_numbers(values: Sequence[Any], number: re.Pattern[str] = COMMA_NUMBER) -> bool:
    """Whether all these are texts of the form ``number``, by default with decimal commas, and some have a comma."""
    texts = all(isinstance(value, str) and number.fullmatch(value) for value in values)
    return texts and any("," in value for value in values)


def refuse_numbers(values: Sequence[Any], whose: str) -> None:
    """Refuse texts that are numbers but were not read as such: each would become a category or a class."""
    if are_comma_numbers(values, ANY_NUMBER):
        raise FedtctError(
            f"{whose} holds numbers with commas as texts: write 1234.5; CSV files with semicolons between columns may "
            "have 1234,5 (in Python: pandas.read_csv's decimal and thousands)"
        )


def refuse_slips(values: Sequence[Any], whose: str) -> None:
    """Refuse texts that were meant as numbers: each would become a category, and leave the silo as it is."""
    if not all(isinstance(value, str) for value in values):
        return
    refuse_numbers(values, whose)
    _refuse_units(values, whose)
    others = [value for value in values if as_number(value) is None]
    none = [value for value in others if not ANY_NUMBER.fullmatch(value) and not GROUPED.fullmatch(value)]
    written_otherwise = len(others) - len(none)
    if none and written_otherwise > len(values) / 2:  # as 12,5 is between semicolons: these few kept it from being read
        others = none
    if odd := sorted(set(others)) if written_otherwise and len(none) <= FEW_ODD * len(values) else odd_ones(values):
        raise FedtctError(
            f"{whose} holds numbers, but not in {len(others)} of {len(values)} rows: write numbers as 1234.5 and "
            "leave missing values empty; if these are codes, list the column in texts",
            data=f". Found: {listing(odd)}",
        )


def _refuse_units(values: Sequence[str], whose: str) -> None:
    """Refuse numbers that all have the same unit beside them, as in 39 % and € 7,50."""
    found = [WITH_UNIT.fullmatch(value) for value in values]
    units = {match.groups(default="") for match in found if match}
    if all(found) and len(units) == 1 and any(*units) and len(set(values)) > MANY_NUMBERS:
        raise FedtctError(
            f"{whose} holds numbers with a unit: write only the numbers; if these are codes, list the column in texts",
            data=f". Found: {listing(values, most=3)}",
        )


def odd_ones(texts: Sequence[str]) -> list[str]:
    """The few texts in a column of numbers; none if there are many texts, or few different numbers."""
    odd = [text for text in texts if as_number(text) is None]
    numbers = len(set(texts) - set(odd))
    return sorted(set(odd)) if numbers > MANY_NUMBERS and len(odd) <= FEW_ODD * len(texts) else []
