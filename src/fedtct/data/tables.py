"""Tables in one form: float64 for numbers, None or texts for the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedtct.data.numbers_as_texts import written
from fedtct.data.texts import all_composed, composed
from fedtct.errors import FedtctError

if TYPE_CHECKING:
    import pandas as pd

LARGEST = 1e100  # beyond, squares overflow
NUMBER_TYPES = (Real, Decimal, np.bool_)  # databases and Parquet files have exact decimals
TIMES = (date, time, timedelta)


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


def as_code(category: Any) -> Any:
    """A category of pandas as a text, if it is a number and not missing."""
    return written(category) if isinstance(category, NUMBER_TYPES) and category == category else category


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
    elif pd.api.types.is_numeric_dtype(kind) or all(isinstance(value, NUMBER_TYPES) for value in plain):
        result = np.full(len(values), np.nan)
        result[~missing] = np.array(plain, np.float64)
        return _finite(result, name, whose)
    texts = np.full(len(values), None, object)
    texts[~missing] = all_composed(str(value) for value in plain)
    return texts


def _finite(numbers: NDArray[np.float64], name: str, whose: str) -> NDArray[np.float64]:
    """These numbers, some of which may be missing."""
    if (np.abs(numbers) > LARGEST).any():
        raise FedtctError(f"{whose}: column '{name}' holds infinite or huge values: fix or drop these rows")
    return numbers
