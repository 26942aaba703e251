"""Checks of what a silo tells about its data: silos agree by it, and nonsense would end everybody's run."""

import json
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from fedtct.agreement import ROOT_MEAN_SQUARE
from fedtct.answers import HELD_LABELS, HELD_NAMES, LABELS, NAMES, NUMBERS, Description
from fedtct.data.table_code import EMPTY, MAX_CATEGORIES, NUMBER, TEXT
from fedtct.data.tables import LARGEST
from fedtct.errors import LARGEST_WHOLE

Fits = Callable[[Any], bool]
LARGEST_SQUARES = 1e300  # a sum of squared deviations of numbers up to LARGEST is far below


def misdescribed(told: Description) -> str:
    """What is wrong with a description; empty if nothing is. That no entry is missing was checked before."""
    for name, (fits, what) in FORMS.items():
        if name in told and not fits(told[name]):
            shown = "" if isinstance(told[name], Tensor) else f"{reprlib.repr(told[name])}, "
            return f"its '{name}' is {shown}not a {what}"
    sums = [told[name] for name in ("sum", "square_sum") if name in told]
    if any(len(channels) != int(told["shape"][0]) for channels in sums):
        return "its sums of pixels must be one for each channel"
    classes = json.loads(told[NAMES]) if NAMES in told else told.get(LABELS, ())
    if len(classes) > told["n"] + told["held"]:
        return f"it names {len(classes):,} classes, more than it has samples"
    return ""


def _one_of(*words: str) -> Fits:
    return lambda value: isinstance(value, str) and value in words


def _count(least: int) -> Fits:
    return lambda value: type(value) is int and least <= value <= LARGEST_WHOLE


def _number(least: float, most: float) -> Fits:
    return lambda value: isinstance(value, int | float) and least <= value <= most  # NaN is not within


def _counts(least: int) -> Fits:
    def fits(value: Any) -> bool:
        whole = isinstance(value, Tensor) and value.dtype == torch.int64
        return whole and value.ndim == 1 and len(value) > 0 and int(value.min()) >= least

    return fits


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_column(value: Any) -> bool:
    known = isinstance(value, Mapping) and value.keys() == COLUMN.keys()
    whole = known and all(fits(value[name]) for name, fits in COLUMN.items())
    return whole and len(value["categories"]) <= min(value["present"], MAX_CATEGORIES)


def _listed(fits: Fits) -> Fits:
    """For a text that is JSON of a list with something in it, all of which fits."""

    def all_fit(text: Any) -> bool:
        try:
            values = json.loads(text) if isinstance(text, str) else None
        except (ValueError, RecursionError):
            return False
        return isinstance(values, list) and len(values) > 0 and all(map(fits, values))

    return all_fit


COLUMN: dict[str, Fits] = {  # as data.table_code.Facts
    "name": _is_text,
    "kind": _one_of(NUMBER, TEXT, EMPTY),
    "present": _count(0),
    "missing": _count(0),
    "mean": _number(-LARGEST, LARGEST),
    "m2": _number(0, LARGEST_SQUARES),
    "categories": _are_texts,
}
FORMS: dict[str, tuple[Fits, str]] = {
    "n": (_count(1), "number of samples"),
    "held": (_count(0), "number of samples"),
    "shape": (_counts(1), "list of whole numbers from 1"),
    "kind": (_one_of("table", "pixels", "float32", "int64"), "kind of samples"),
    "answers": (_one_of(LABELS, NAMES, NUMBERS), "kind of answers"),
    "columns": (_listed(_is_column), "list of what columns hold"),
    ROOT_MEAN_SQUARE: (_number(0, LARGEST_SQUARES), "root mean square"),
    "pixels": (_count(1), "number of pixels"),
    "sum": (_counts(0), "list of whole numbers from 0"),
    "square_sum": (_counts(0), "list of whole numbers from 0"),
    LABELS: (_counts(0), "list of whole numbers from 0"),
    NAMES: (_listed(_is_text), "list of texts"),
    HELD_LABELS: (_counts(0), "list of whole numbers from 0"),
    HELD_NAMES: (_listed(_is_text), "list of texts"),
    "answer_mean": (_number(-LARGEST, LARGEST), "number that targets can have as their mean"),
    "answer_m2": (_number(0, LARGEST_SQUARES), "sum of squares"),
}
