"""Numbers that are no measurements: numbers of records, and numbers that stand for a missing value."""

import warnings

import numpy as np
from numpy.typing import NDArray

ENOUGH = 30  # rows, to recognise numbers of records: of so many random whole numbers below 60 some are equal
MARKS = [-9.0, *(sign * (10.0**digits - 1) for digits in range(2, 7) for sign in (1, -1))]  # -9, 99, -99 and so on


def warn_of_suspicious_numbers(name: str, values: NDArray[np.float64], to_ignore: str) -> None:
    """Warn if a column seems to have such numbers, in the same words in every silo."""
    if are_of_records(values):
        warnings.warn(
            f"column '{name}' has a different whole number in every row, as record numbers do: if it says nothing "
            f"about a sample, {to_ignore}",
            stacklevel=2,
        )
    for mark in marks_of_missing(values):
        warnings.warn(
            f"column '{name}' holds {mark:.0f} in several rows, unlike all its other values: if it marks missing "
            "values, leave them empty",
            stacklevel=2,
        )


def are_of_records(values: NDArray[np.float64]) -> bool:
    """Whether every row has a different whole number, and these rise or fall from row to row, or leave few out."""
    if len(values) < ENOUGH or (values != np.round(values)).any() or len(np.unique(values)) < len(values):
        return False
    steps = np.diff(values)
    return bool((steps > 0).all() or (steps < 0).all() or np.ptp(values) < 2 * len(values))


def marks_of_missing(values: NDArray[np.float64]) -> list[float]:
    """Numbers of nothing but nines that occur more than once, and are far from all others or the only ones below zero.

    Far means further than the others are from each other.
    """
    there = values[~np.isnan(values)]
    others = there[~np.isin(there, MARKS)]
    if not len(others) or not np.ptp(others):
        return []
    odd = [mark for mark in MARKS if np.abs(others - mark).min() > np.ptp(others) or mark < 0 <= others.min()]
    return [mark for mark in odd if (there == mark).sum() > 1]
