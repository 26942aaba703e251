"""Tables: columns of numbers and of texts, some values missing, turned into numbers the same way in every silo.

Each silo tells facts about its columns once: counts, means, squared deviations and which texts occur. They merge to
those of the pooled table however its rows are dealt, and from them follows the code: numbers are standardised, a text
is a column for each category, a missing value counts as the mean and has a column of its own that says so.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtct.data.numbers import Numbers
from fedtct.data.texts import all_composed, composed
from fedtct.errors import FedtctError, listing, quoted

if TYPE_CHECKING:
    import pandas as pd

TO_IGNORE = "list it in ignore (--ignore in a command; in Python, drop it)"
MAX_CATEGORIES = 500
FAR = 1000  # standard deviations; in training, a single one of a million rows
MANY_NUMBERS = 20  # different ones among texts: these are no codes
FEW_ODD = 0.25  # of a column's values: texts among so many numbers are marks of missing values, or slips
LARGEST = 1e100  # beyond, squares overflow
COMMA_NUMBER = re.compile(r"[+-]?\d+(,\d+)?([eE][+-]?\d+)?")
GROUPED = re.compile(r"[+-]?\d{1,3}([ '’\u00a0\u202f]\d{3})+([.,]\d+)?")  # with something between thousands
ANY_NUMBER = re.compile(r"[+-]?((\d+|\d{1,3}(\.\d{3})+)(,\d+)?|(\d+|\d{1,3}(,\d{3})+)(\.\d+)?)([eE][+-]?\d+)?")
WITH_UNIT = re.compile(r"([$€£¥]?)\s*[+-]?\d[\d.,]*\s*([^\d\s.,]\D{0,9})?")
CODE_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")
NUMBERS = (Real, Decimal, np.bool_)  # databases and Parquet files have exact decimals
TIMES = (date, time, timedelta)
NUMBER, TEXT, EMPTY = "numbers", "texts", "nothing"


def is_table(x: Any) -> bool:
    """Whether x is a pandas DataFrame; pandas need not be imported to find out."""
    return hasattr(x, "iloc") and hasattr(x, "columns")


def as_table(frame: pd.DataFrame, whose: str) -> pd.DataFrame:
    """The table with float64 for numbers and None or texts for the rest; other kinds of columns are refused."""
    import pandas as pd

    if not len(frame.columns):
        raise FedtctError(f"{whose}: the table has no columns to learn from")
    names = [composed(str(name)) for name in frame.columns]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise FedtctError(f"{whose}: there are several columns called '{min(twice)}'")
    columns = [_column(values, name, whose) for name, (_, values) in zip(names, frame.items(), strict=True)]
    # Of texts pandas would make a kind of its own.
    parts = [pd.Series(values, dtype=object) if values.dtype == object else values for values in columns]
    return pd.DataFrame(dict(zip(names, parts, strict=True)), index=range(len(frame)))


def from_matrix(x: NDArray[Any], columns: Sequence[str] | None = None) -> pd.DataFrame:
    """A matrix of numbers as a table; columns without names are called x0, x1 and so on."""
    import pandas as pd

    return pd.DataFrame(x, columns=[f"x{place}" for place in range(x.shape[1])] if columns is None else list(columns))


def are_comma_numbers(values: Sequence[Any], number: re.Pattern[str] = COMMA_NUMBER) -> bool:
    """Whether these are texts that all are numbers, some with a comma: as a decimal comma alone, unless told."""
    texts = all(isinstance(value, str) and number.fullmatch(value) for value in values)
    return texts and any("," in value for value in values)


def refuse_numbers(values: Sequence[Any], whose: str) -> None:
    """Refuse texts that are numbers which were not read as such: each would be a category or a class."""
    if are_comma_numbers(values, ANY_NUMBER):
        raise FedtctError(
            f"{whose} holds numbers with commas as texts: write 1234.5; CSV files with semicolons between columns may "
            "have 1234,5 (in Python: pandas.read_csv's decimal and thousands)"
        )


def written(value: Any) -> str:
    """A number of a table as the text that it would be: 1, not 1.0."""
    return str(value) if isinstance(value, bool | np.bool_) else f"{float(value):.15g}"


def as_code(category: Any) -> Any:
    """A category of pandas as a text, if it is a number and not missing."""
    return written(category) if isinstance(category, NUMBERS) and category == category else category


def refuse_slips(values: Sequence[Any], whose: str) -> None:
    """Refuse texts that somebody meant as numbers: each would be a category, and leave the silo as it stands."""
    if not all(isinstance(value, str) for value in values):
        return
    refuse_numbers(values, whose)
    _refuse_units(values, whose)
    others = [value for value in values if _as_number(value) is None]
    none = [value for value in others if not ANY_NUMBER.fullmatch(value) and not GROUPED.fullmatch(value)]
    written_otherwise = len(others) - len(none)
    if none and written_otherwise > len(values) / 2:  # as 12,5 is between semicolons: these few kept it from being read
        others = none
    if odd := sorted(set(others)) if written_otherwise and len(none) <= FEW_ODD * len(values) else odd_ones(values):
        raise FedtctError(
            f"{whose} holds numbers, but not in {len(others)} of {len(values)} rows: write "
            "numbers as 1234.5 and leave what is missing empty; if these are codes, list the column in texts",
            data=f". Found: {listing(odd)}",
        )


def _refuse_units(values: Sequence[str], whose: str) -> None:
    """Refuse numbers that all have the same unit written beside them, as 39 % and € 7,50 have."""
    found = [WITH_UNIT.fullmatch(value) for value in values]
    units = {match.groups(default="") for match in found if match}
    if all(found) and len(units) == 1 and any(*units) and len(set(values)) > MANY_NUMBERS:
        raise FedtctError(
            f"{whose} holds numbers with a unit beside them: write the numbers alone; if these are codes, list the "
            "column in texts",
            data=f". Found: {listing(values, most=3)}",
        )


def _column(values: pd.Series[Any], name: str, whose: str) -> NDArray[Any]:
    import pandas as pd

    kind = values.dtype
    if isinstance(kind, np.dtype) and kind.kind in "biuf":
        return _finite(values.to_numpy(np.float64, copy=True), name, whose)
    missing = values.isna().to_numpy(bool)
    plain = [value for value, gone in zip(values.tolist(), missing, strict=True) if not gone]
    times = kind.kind == "O" and any(isinstance(value, TIMES) for value in plain)
    if times or kind.kind in "mMc":
        what = "dates or times" if times else kind
        raise FedtctError(
            f"{whose}: column '{name}' holds {what}: turn it into numbers or texts first, or leave it out"
        )
    if isinstance(kind, pd.CategoricalDtype):  # its numbers are codes
        plain = [as_code(value) for value in plain]
    elif pd.api.types.is_numeric_dtype(kind) or all(isinstance(value, NUMBERS) for value in plain):
        result = np.full(len(values), np.nan)
        result[~missing] = np.array(plain, np.float64)
        return _finite(result, name, whose)
    texts = np.full(len(values), None, object)
    texts[~missing] = all_composed(str(value) for value in plain)
    return texts


def _finite(numbers: NDArray[np.float64], name: str, whose: str) -> NDArray[np.float64]:
    """These numbers, some of which may be missing."""
    if (np.abs(numbers) > LARGEST).any():
        raise FedtctError(f"{whose}: column '{name}' holds infinite or huge values: mend or drop these rows")
    return numbers


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
        """Whether rows differ in this column: in its values, or in whether there is one."""
        sometimes_missing = self.present > 0 and self.missing > 0
        return sometimes_missing or len(self.categories) > 1 or Column.of(self).scale > 0

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
        std = facts.numbers.std
        constant = std <= 1e-12 * abs(facts.mean)
        return cls(facts.name, facts.mean, 0.0 if constant else 1 / std, missing=facts.missing > 0)

    @property
    def width(self) -> int:
        """How many numbers a value becomes."""
        return (1 if self.categories is None else len(self.categories)) + self.missing

    def encode(self, values: NDArray[Any], whose: str) -> NDArray[np.float64]:
        """A row of numbers for each value; a category that no silo has is none of them."""
        result = np.zeros((len(values), self.width))
        if self.categories is None:
            if values.dtype == object and (texts := [value for value in values if value is not None]):
                odd = next((text for text in texts if _as_number(text) is None), texts[0])
                raise FedtctError(f"{whose}: column '{self.name}' holds texts, the silos' numbers", data=f": '{odd}'")
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
        """Say that there are numbers unlike all that the model has seen."""
        if far := int((np.abs(deviations) > FAR).sum()):
            warnings.warn(
                f"{whose}: column '{self.name}' is more than {FAR:,} standard deviations from the silos' mean, "
                f"{self.mean:.4g}, in {far} of {len(deviations)} rows: are they written rightly, in the same units?",
                stacklevel=2,
            )

    def _warn_of_missing(self, rows: int, of: int, whose: str) -> None:
        """Say that values are missing where none was, so that the model has not learnt what that may mean."""
        if rows:
            counted = "the mean" if self.categories is None else "none of its categories"
            warnings.warn(
                f"{whose}: column '{self.name}' is empty in {rows} of {of} rows, which it never was in training: these "
                f"count as {counted}",
                stacklevel=2,
            )

    def _warn_of_others(self, values: NDArray[Any], whose: str) -> None:
        """Say that there are texts that the model knows nothing of."""
        known = {None, *(self.categories or ())}
        if others := [value for value in values if value not in known]:
            warnings.warn(
                f"{whose}: column '{self.name}' holds {listing(sorted(set(others)))} in {len(others)} of {len(values)} "
                "rows, which no silo had in training: they count as none of its categories",
                stacklevel=2,
            )

    def _text(self, value: float | str) -> str:
        """The category that is meant: the one that is written so or, by a number, the only one that reads so, as 01."""
        text = value if isinstance(value, str) else written(value)
        number = _as_code_number(text)
        return text if number is None or text in (self.categories or ()) else self._numbers.get(number, text)

    @cached_property
    def _numbers(self) -> dict[Decimal, str]:
        """Categories that a file without any other text would have as numbers or truth values."""
        numbers = [(_as_code_number(category), category) for category in self.categories or ()]
        count = Counter(number for number, _ in numbers)
        return {number: category for number, category in numbers if number is not None and count[number] == 1}


def odd_ones(texts: Sequence[str]) -> list[str]:
    """The few texts of a column that would else be one of numbers; none if there are many, or few different numbers."""
    odd = [text for text in texts if _as_number(text) is None]
    numbers = len(set(texts) - set(odd))
    return sorted(set(odd)) if numbers > MANY_NUMBERS and len(odd) <= FEW_ODD * len(texts) else []


def _as_number(text: str) -> float | None:
    if text in ("True", "False"):
        return float(text == "True")
    try:
        return float(text)
    except ValueError:
        return None


def _as_code_number(text: str) -> Decimal | None:
    """The number, to its last digit, that a code is; 1E2 is none: that it may be read as 100 is a coincidence."""
    text = {"True": "1", "False": "0"}.get(text, text)
    return Decimal(text) if CODE_NUMBER.fullmatch(text) else None


@dataclass(frozen=True)
class TableCode:
    """How a table becomes numbers: the same in every silo, and for every sample that is predicted."""

    columns: tuple[Column, ...]
    in_order: bool = True  # in which all silos had them

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
            raise FedtctError(f"{whose} has shape {x.shape}: it needs a row of {len(self.columns)} columns a sample")
        if not self.in_order:
            raise FedtctError(
                f"{whose} has no names of columns, and silos had theirs in different orders: give a pandas.DataFrame "
                f"with {quoted(self.names)}"
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
