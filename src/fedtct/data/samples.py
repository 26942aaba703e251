"""Samples and their answers, from the forms that users have; refused if nothing can be learnt from them."""

import warnings
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from fedtct.data.tables import LARGEST, NUMBER_TYPES, as_code, as_table, is_table
from fedtct.data.texts import all_composed
from fedtct.errors import FedtctError

MANY_WHOLE = 20  # a target with at most so many different whole numbers surely has classes
FEW_WHOLE = 10  # so few different reals, all of them whole, may be classes: pandas writes them so beside gaps
CHANNELS = (1, 3, 4)  # numbers of channels of images: grey, in colour, and with transparency
TASKS = ("auto", "classification", "regression")
UNEVEN = 100  # the largest feature is so many times the typical one, or times one
Inputs = Any  # a tensor, or a table (pandas.DataFrame)


def as_samples(x: Any, y: Any, whose: str, task: str = "auto") -> tuple[Inputs, Any]:
    """Samples as a tensor or a table; labels (int64), numbers (float64) or names, one for each."""
    # Files and estimators give a table with a plain array: they know the task, and have warned about it already.
    task_is_known = task != "auto" or (is_table(x) and isinstance(y, np.ndarray | Tensor))
    x, y = as_inputs(x, whose), as_answers(y, whose, task)
    if len(y) == 0:
        raise FedtctError(f"{whose} is empty: a silo needs at least one sample")
    if x.ndim < 2 or len(x) != len(y) or 0 in x.shape:
        raise FedtctError(
            f"{whose}: x has shape {tuple(x.shape)} for {len(y)} labels: it needs one row for each label, and values "
            "in it"
        )
    _warn_of_channels(x)
    if not task_is_known:
        _warn_of_whole_numbers(y)
    return x, y


def as_inputs(x: Any, whose: str) -> Inputs:
    """Pixels stay uint8, other whole numbers (tokens) become int64, the rest float32; tables stay tables."""
    if is_table(x):
        return as_table(x, whose)
    _refuse_masked_and_sparse(x, whose)
    x = _as_tensor(x, whose)
    if x.is_complex():
        raise FedtctError(f"{whose}: samples must be real numbers, not {x.dtype}")
    if x.dtype != torch.uint8:
        x = x.float() if x.is_floating_point() or x.dtype == torch.bool else x.long()
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        bad = int((~torch.isfinite(x.flatten(1) if x.ndim > 1 else x[:, None]).all(1)).sum())
        table = ", or train on tables (pandas.DataFrame), which may have gaps" if x.ndim == 2 else ""
        raise FedtctError(f"{whose}: {bad} of {len(x)} samples hold NaN or infinite values: fix or drop them{table}")
    return x


def as_answers(y: Any, whose: str, task: str = "auto") -> Any:
    """With task "auto" whole numbers are labels, real ones targets of a regression, texts and truth values names."""
    _refuse_masked_and_sparse(y, whose)
    y = y if isinstance(y, Tensor) else _as_array(y)
    if y.ndim != 1 or "complex" in str(y.dtype):
        raise FedtctError(f"{whose}: y must be a vector of labels, numbers or names, not {y.dtype} {tuple(y.shape)}")
    if task != "auto":
        y = numbers_or_names(y.tolist(), task, f"{whose}: y")
    if isinstance(y, np.ndarray) and y.dtype.kind in "OUSTb" and len(y):
        return _as_names(y, whose)
    y = _as_tensor(y, whose)
    if y.is_floating_point():
        if bad := int((~(y.abs() <= LARGEST)).sum()):
            raise FedtctError(f"{whose}: {bad} of {len(y)} targets are NaN, infinite or huge: fix or drop them")
        return y.double()
    if y.dtype == torch.bool:
        return _as_names(y.numpy(force=True), whose)
    y = y.long()
    if len(y) and int(y.min()) < 0:
        raise FedtctError(
            f"{whose}: some labels are below 0: number classes from 0, or give them as texts; give quantities as real "
            "numbers (in Python y.astype(float)), or set task = regression",
            data=f"; the least is {int(y.min())}",
        )
    return y


def _warn_of_channels(x: Inputs) -> None:
    """Warn that images are taken as channels, height and width, if they seem to have their channels last."""
    if not isinstance(x, Tensor) or x.dtype == torch.int64 or x.ndim != 4:
        return
    first, middle, last = x.shape[1:]
    # If the last two are equal, it is many channels of few pixels, as from convolutions.
    if last in CHANNELS and last != middle and first not in CHANNELS:
        warnings.warn(
            f"samples of shape {(first, middle, last)} are taken as channels, height and width: if they are images "
            "whose channels come last, transpose them to (N, C, H, W), with x.transpose(0, 3, 1, 2) or, for a "
            "tensor, x.permute(0, 3, 1, 2)",
            stacklevel=2,
        )


def _warn_of_whole_numbers(y: Any) -> None:
    """Warn that a few whole numbers that are written as reals, and occur more than once, are taken as quantities."""
    if not isinstance(y, Tensor) or not y.is_floating_point():
        return
    different = y.unique()
    if len(different) <= FEW_WHOLE and len(different) < len(y) and bool((different == different.round()).all()):
        warnings.warn(
            "y holds a few different whole numbers, written like 1.0, and they are taken as quantities: if they are "
            "classes, give them as whole numbers (in Python y.astype(int)), or set task = classification; if not, "
            "set task = regression",
            stacklevel=2,
        )


def numbers_or_names(values: Sequence[Any], task: str, whose: str) -> Any:
    """Plain values as answers: numbers of a regression, or names of classes."""
    if missing := sum(value is None for value in values):
        raise FedtctError(f"{whose}: {missing} of {len(values)} labels are missing: add them, or drop these samples")
    if task == "regression":
        try:
            return np.array([float(value) for value in values])
        except (TypeError, ValueError) as error:
            raise FedtctError(f"{whose} holds texts: a regression needs numbers") from error
    if any(isinstance(value, float) and not value.is_integer() for value in values):
        raise FedtctError(f"{whose} holds numbers that are not whole, which cannot be classes: try task = regression")
    return np.array(all_composed(str(int(value)) if isinstance(value, float) else str(value) for value in values))


def warn_of_scales(x: Inputs) -> None:
    """Warn that a matrix is not scaled, if its columns differ so much in scale that networks hardly learn."""
    if isinstance(x, Tensor) and x.is_floating_point() and x.ndim == 2:
        sizes = x.double().square().mean(0).sqrt()
        sizes = sizes[sizes > 0]
        if len(sizes) and float(sizes.max()) > UNEVEN * min(1.0, float(sizes.median())):
            warnings.warn(
                "features are large or on very different scales, and arrays are used as they are: standardise them, "
                "or give a pandas.DataFrame, which is standardised over all silos",
                stacklevel=3,
            )


def from_dataset(dataset: "Dataset[Any]", whose: str, task: str = "auto") -> tuple[Inputs, Any]:
    """All of a torch Dataset: its items must be pairs of a sample and what is to be learnt of it."""
    try:
        length = len(dataset)  # type: ignore[arg-type]  # torch promises none; without one it is refused below
        pairs = [(x, y) for x, y in (dataset[i] for i in range(length))]
        x = torch.stack([torch.as_tensor(np.asarray(x) if not isinstance(x, Tensor) else x) for x, _ in pairs])
    except (TypeError, ValueError, IndexError, KeyError, RuntimeError) as error:
        raise FedtctError(
            f"{whose}: the items of a Dataset must be pairs (x, y) with arrays x of one shape", error
        ) from error
    answers = [y.item() if isinstance(y, Tensor) and y.ndim == 0 else y for _, y in pairs]
    return as_samples(x, answers, whose, task)


def take(values: Any, rows: Tensor) -> Any:
    """Some of the samples, or of what is to be learnt."""
    if is_table(values):
        return values.iloc[rows.numpy()].reset_index(drop=True)
    return values[rows] if isinstance(values, Tensor) else values[rows.numpy()]


def join(parts: Sequence[Any]) -> Any:
    """The samples of all parts, one part after another."""
    if is_table(parts[0]):
        import pandas as pd

        return pd.concat(parts, ignore_index=True)
    return torch.cat(list(parts)) if isinstance(parts[0], Tensor) else np.concatenate(parts)


def _refuse_masked_and_sparse(values: Any, whose: str) -> None:
    """Refuse masked values, which would be taken as they are, and sparse matrices, of which no array can be made."""
    if hasattr(values, "toarray"):
        raise FedtctError(f"{whose}: sparse matrices are not supported: use toarray()")
    if np.ma.is_masked(values):
        raise FedtctError(f"{whose}: some values are masked: fill them in, or drop these samples")


def _as_tensor(values: Any, whose: str) -> Tensor:
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        # Torch takes neither views with negative steps nor read-only files.
        double = values.dtype.kind == "f" and values.dtype.itemsize > 8
        values = np.require(values, np.float64 if double else values.dtype.newbyteorder("="), ["C", "W"])
    try:
        return torch.as_tensor(values).detach().to_dense()  # samples need no gradients
    except (TypeError, ValueError, RuntimeError) as error:
        remedy = "give a table with texts as a pandas.DataFrame"
        raise FedtctError(f"{whose}: samples and labels must be arrays of numbers; {remedy}", error) from error


def _as_array(y: Any) -> "np.ndarray[Any, Any]":
    """Answers as an array: pandas' categories as texts, because numbers among them are codes; decimals as floats."""
    if str(getattr(y, "dtype", "")) == "category":
        return np.array([as_code(value) for value in y], object)
    array = np.asarray(y)
    real = array.dtype == object and all(isinstance(value, NUMBER_TYPES) for value in array.flat)
    exact = real and any(isinstance(value, float | Decimal) for value in array.flat)
    return array.astype(np.float64) if exact else array


def _as_names(y: "np.ndarray[Any, Any]", whose: str) -> Any:
    values = y.tolist()
    if bad := sum(not isinstance(value, str | bool | int | np.integer | np.bool_) for value in values):
        raise FedtctError(f"{whose}: {bad} of {len(y)} labels are missing or not texts: fix or drop these samples")
    return np.array(all_composed(str(value) for value in values))
