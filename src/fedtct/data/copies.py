"""Copies of training samples among those that rate a model: they say nothing about new samples."""

import warnings
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from fedtct.data.samples import Inputs
from fedtct.data.tables import is_table

WORTH_A_WORD = 0.05  # the share of copies from which on there is a warning


def warn_of_copies(rated: Inputs, trained: Iterable[Inputs], what: str, cure: str) -> None:
    """Warn if many samples that rate a model are equal to training samples."""
    if not len(rated) or not _told_apart(rated):
        return
    known = np.concatenate([_fingerprints(x) for x in trained])
    copies = int(np.isin(_fingerprints(rated), known).sum())
    if copies >= WORTH_A_WORD * len(rated):
        warnings.warn(
            f"{copies} of {len(rated)} {what} are equal to training samples, so scores say less about new samples: "
            f"{cure}",
            stacklevel=3,
        )


def _told_apart(x: Inputs) -> bool:
    """Whether samples are hardly equal by chance, as they may be if all features are counts or categories."""
    if is_table(x):
        numbers = x.select_dtypes("number").to_numpy(np.float64, na_value=0.0)
        return bool((numbers != np.round(numbers)).any())
    if x.is_floating_point():
        return bool((x != x.round()).any())
    return bool(x.ndim > 2)  # pixels are, tokens are not


def _fingerprints(x: Inputs) -> NDArray[np.uint64]:
    """A number for each sample, the same for equal ones, in whatever order a table has its columns."""
    import pandas as pd

    if is_table(x):
        table = x[sorted(x.columns)]
        numbers = table.select_dtypes("number").astype(np.float64)
        return np.asarray(pd.util.hash_pandas_object(table.assign(**numbers), index=False), np.uint64)
    rows = np.ascontiguousarray(x.numpy(force=True).reshape(len(x), -1))
    return np.array([hash(row.tobytes()) for row in rows], np.int64).view(np.uint64)
