"""How tables become numbers, in the same way in every silo.

Each silo tells facts about its columns once: counts, means, squared deviations and which texts occur. They merge to
the facts of the pooled table, however its rows are dealt. The code follows from these: numbers are standardised, texts
become a column for each category, and missing values the mean, with a column of their own that says so.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtct.data.numbers import Numbers
from fedtct.data.numbers_as_texts import as_code_number, as_number, refuse_numbers, written
from fedtct.data.tables import as_table, is_table
from fedtct.data.texts import composed
from fedtct.errors import FedtctError, listing, quoted

if TYPE_CHECKING:
    import pandas as pd

TO_IGNORE = "list it in ignore (--ignore in a command; in Python, drop it)"
MAX_CATEGORIES = 500
FAR = 1000  # standard deviations: among training rows, at most one of a million can be so far off
TOLD = 3  # examples of the texts that a model knows nothing of
NUMBER, TEXT, EMPTY = "numbers", "texts", "nothing"


@dataclass(frozen=True)
class Facts:
    """What a silo tells about a column."""

    name: str
    kind: str  # numbers, texts, or nothing where all values are missing
    present: int = 0
    missing: int = 0
    mean: float = 0.0
    m2: float = 0.0  # sum of squared deviations
    categories: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, values: NDArray[Any], whose: str) -> Facts:
        """The facts of one column of a table."""
        if values.dtype == object:
            texts = [value for value in values if value is not None]
            kind, categories = TEXT if texts else EMPTY, tuple(sorted(set(texts)))
            refuse_numbers(categories, f"{whose}: column '{name}'")
            return cls(name, kind, len(texts), len(values) - len(texts), categories=categories)
        there = values[~np.isnan(values)]
        if not len(there):
            return cls(name, EMPTY, 0, len(values))
        mean = float(there.mean())
        return cls(name, NUMBER, len(there), len(values) - len(there), mean, float(((there - mean) ** 2).sum()))

    @classmethod
    def merge(cls, parts: Sequence[Facts]) -> Facts:
        """The facts of all rows together."""
        numbers = Numbers.merge([part.numbers for part in parts])
        return cls(
            parts[0].name,
            next((part.kind for part in parts if part.kind != EMPTY), EMPTY),
            numbers.n,
            sum(part.missing for part in parts),
            numbers.mean,
            numbers.m2,
            tuple(sorted({category for part in parts for category in part.categories})),
        )

    @property
    def numbers(self) -> Numbers:
        """How its numbers are distributed."""
        return Numbers(self.present, self.mean, self.m2)

    @property
    def varies(self) -> bool:
        """Whether rows differ in this column: in its values, or in whether they have one."""
        sometimes_missing = self.present > 0 and self.missing > 0
        values_differ = len(self.categories) > 1 if self.kind == TEXT else not self.numbers.constant
        return sometimes_missing or values_differ

    def checked(self, whose: str) -> Facts:
        """These facts, refused if there are more categories than a column can be made for."""
        if (count := len(self.categories)) > MAX_CATEGORIES:
            raise FedtctError(
                f"{whose}: column '{self.name}' has {count} different texts, more than {MAX_CATEGORIES}: "
                f"{TO_IGNORE}, or put them into fewer categories"
            )
        return self


@dataclass(frozen=True)
class Column:
    """How a column becomes numbers."""

    name: str
    mean: float = 0.0
    scale: float = 0.0  # one over the standard deviation; 0 for a constant
    categories: tuple[str, ...] | None = None  # of texts
    missing: bool = False  # whether a missing value has a column of its own

    @classmethod
    def of(cls, facts: Facts) -> Column:
        """The code of a column with these facts."""
        if facts.kind == TEXT:
            return cls(facts.name, categories=facts.categories, missing=facts.missing > 0)
        scale = 0.0 if facts.numbers.constant else 1 / facts.numbers.std
        return cls(facts.name, facts.mean, scale, missing=facts.missing > 0)

    @property
    def width(self) -> int:
        """How many numbers a value becomes."""
        return (1 if self.categories is None else len(self.categories)) + self.missing

    def encode(self, values: NDArray[Any], whose: str) -> NDArray[np.float64]:
        """A row of numbers for each value; all zeros for a category that no silo has."""
        result = np.zeros((len(values), self.width))
        if self.categories is None:
            if values.dtype == object and (texts := [value for value in values if value is not None]):
                odd = next((text for text in texts if as_number(text) is None), texts[0])
                raise FedtctError(
                    f"{whose}: column '{self.name}' holds texts, but the silos' column holds numbers", data=f": '{odd}'"
                )
            gone = np.isnan(values := values.astype(np.float64))
            result[:, 0] = np.where(gone, 0.0, (values - self.mean) * self.scale)
            self._warn_of_far(result[:, 0], whose)
        else:
            found = {value: self._text(value) for value in set(values.tolist()) if value is not None and value == value}
            values = np.array([found.get(value) for value in values.tolist()], object)
            gone = np.array([value is None for value in values], bool)
            for place, category in enumerate(self.categories):
                result[:, place] = values == category
            self._warn_of_others(values, whose)
        if self.missing:
            result[:, -1] = gone
        else:
            self._warn_of_missing(int(gone.sum()), len(values), whose)
        return result

    def _warn_of_far(self, deviations: NDArray[np.float64], whose: str) -> None:
        """Warn of numbers unlike any that the model has seen."""
        if far := int((np.abs(deviations) > FAR).sum()):
            warnings.warn(
                f"{whose}: column '{self.name}' is more than {FAR:,} standard deviations from the silos' mean, "
                f"{self.mean:.4g}, in {far} of {len(deviations)} rows: are they correct, and in the same units?",
                stacklevel=2,
            )

    def _warn_of_missing(self, rows: int, of: int, whose: str) -> None:
        """Warn of missing values in a column that had none in training: the model has not learnt what they mean."""
        if rows:
            counted = "uses the mean" if self.categories is None else "ignores it"
            warnings.warn(
                f"{whose}: column '{self.name}' is empty in {rows} of {of} rows, but never was in training: the model "
                f"{counted} there",
                stacklevel=2,
            )

    def _warn_of_others(self, values: NDArray[Any], whose: str) -> None:
        """Warn of texts that the model does not know."""
        known = {None, *(self.categories or ())}
        if others := [value for value in values if value not in known]:
            told = listing(sorted(set(others)), TOLD)
            warnings.warn(
                f"{whose}: column '{self.name}' holds {told} in {len(others)} of {len(values)} rows, which no silo "
                "had in training: the model ignores these values",
                stacklevel=2,
            )

    def _text(self, value: float | str) -> str:
        """The category that a value means: the one written like it, or the only one with the same number (01 for 1)."""
        text = value if isinstance(value, str) else written(value)
        number = as_code_number(text)
        return text if number is None or text in (self.categories or ()) else self._numbers.get(number, text)

    @cached_property
    def _numbers(self) -> dict[Decimal, str]:
        """The categories that are numbers or truth values, by their number, if it is the only one with that."""
        numbers = [(as_code_number(category), category) for category in self.categories or ()]
        count = Counter(number for number, _ in numbers)
        return {number: category for number, category in numbers if number is not None and count[number] == 1}


@dataclass(frozen=True)
class TableCode:
    """How a table becomes numbers: the same in every silo, and for every sample that is predicted."""

    columns: tuple[Column, ...]
    in_order: bool = True  # whether all silos had the columns in this order

    @property
    def names(self) -> list[str]:
        """All columns."""
        return [column.name for column in self.columns]

    @property
    def texts(self) -> list[str]:
        """The columns of texts."""
        return [column.name for column in self.columns if column.categories is not None]

    @property
    def width(self) -> int:
        """How many numbers a row becomes."""
        return sum(column.width for column in self.columns)

    def encode(self, x: Any, whose: str) -> Tensor:
        """A table's rows as numbers; columns that the silos did not have are left out."""
        if not is_table(x):
            x = self._as_frame(np.asarray(x), whose)
        places: dict[str, int] = {}
        for place, name in enumerate(x.columns):
            places.setdefault(composed(str(name)), place)
        if lacking := [column.name for column in self.columns if column.name not in places]:
            raise FedtctError(f"{whose} has no column {quoted(lacking)}, which the silos learn from")
        x = as_table(x.iloc[:, [places[column.name] for column in self.columns]], whose)
        values = (column.to_numpy() for _, column in x.items())
        parts = [column.encode(own, whose) for column, own in zip(self.columns, values, strict=True)]
        return torch.from_numpy(np.concatenate(parts, 1)).float()

    def _as_frame(self, x: NDArray[Any], whose: str) -> pd.DataFrame:
        import pandas as pd

        if x.ndim != 2 or x.shape[1] != len(self.columns):
            raise FedtctError(
                f"{whose} has shape {x.shape}: it needs a row of {len(self.columns)} columns for each sample"
            )
        if not self.in_order:
            raise FedtctError(
                f"{whose} has no column names, and the silos' columns were in different orders: give a "
                f"pandas.DataFrame with columns {quoted(self.names)}"
            )
        return pd.DataFrame({column.name: x[:, place] for place, column in enumerate(self.columns)})

    def record(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> TableCode:
        """The code that was recorded."""
        columns = []
        for told in record["columns"]:
            categories = told["categories"]
            columns.append(Column(**told | {"categories": None if categories is None else tuple(categories)}))
        return cls(tuple(columns), bool(record["in_order"]))
