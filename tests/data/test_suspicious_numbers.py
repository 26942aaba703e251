"""Columns of numbers that were hardly measured are told of, and no others."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtct import FedAvg, Silo
from fedtct.data.suspicious_numbers import MARKS, are_of_records, marks_of_missing
from fedtct.data.table_agreement import describe_table

draws = np.random.default_rng(0)
SEEDS = st.integers(0, 10**6)


def told_of(*columns):
    """What is said when silos with these columns meet."""
    y = np.arange(len(columns[0])) % 2
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tables = [pd.DataFrame({"a": column, "b": np.sin(np.arange(len(column)))}) for column in columns]
        FedAvg("linear", rounds=0).fit([Silo(table, y[: len(table)]) for table in tables])
    return list(dict.fromkeys(str(warning.message) for warning in caught))


RECORDS = {
    "one after another": [np.arange(100_001, 100_061), np.arange(100_061, 100_121)],
    "backwards": [np.arange(90, 0, -1)],
    "of several silos, in order": [np.sort(draws.choice(10**6, 50, replace=False)) for _ in range(3)],
    "in no order, with some left out": [draws.permutation(60)[:40]],
    "as real numbers": [np.arange(60.0)],
}


@pytest.mark.parametrize("case", RECORDS)
def test_numbers_of_records_are_told_of_once(case):
    (said,) = told_of(*RECORDS[case])
    assert said.startswith("column 'a' has a different whole number in every row")
    assert "--ignore" in said


MEASURED = {
    "ages": lambda draw, n: draw.integers(18, 95, n),
    "ages of a file in their order": lambda draw, n: np.sort(draw.integers(18, 95, n)),
    "incomes": lambda draw, n: draw.integers(12_000, 90_000, n),
    "rare large ones": lambda draw, n: np.round(draw.lognormal(6, 2, n)),
    "with fractions, in order": lambda draw, n: np.sort(draw.normal(50, 9, n)),
    "years": lambda draw, n: draw.integers(1950, 2025, n),
    "counts": lambda draw, n: draw.poisson(2, n),
    "up to 99": lambda draw, n: draw.integers(0, 100, n),
    "degrees below zero": lambda draw, n: draw.integers(-20, 35, n),
    "changes": lambda draw, n: draw.poisson(3, n) - draw.poisson(9, n),
    "shares": lambda draw, n: np.minimum(draw.integers(0, 140, n), 100),
}


@settings(max_examples=40)
@given(case=st.sampled_from(sorted(MEASURED)), seed=SEEDS, n=st.integers(30, 300), gaps=st.booleans())
def test_what_was_measured_is_not_suspected(case, seed, n, gaps):
    draw = np.random.default_rng(seed)
    values = MEASURED[case](draw, n).astype(float)
    values[draw.random(n) < 0.1 * gaps] = np.nan
    assert not are_of_records(values)
    assert not marks_of_missing(values)


def test_a_few_rows_tell_nothing():
    assert not are_of_records(np.arange(29.0))


@settings(max_examples=40)
@given(
    case=st.sampled_from(sorted(MEASURED)), seed=SEEDS, mark=st.sampled_from([-9.0, -99.0, -999.0, 99_999.0, 999_999.0])
)
def test_marks_of_missing_values_are_found_where_they_are_far_from_the_rest_or_alone_below_zero(case, seed, mark):
    draw = np.random.default_rng(seed)
    values = MEASURED[case](draw, 60).astype(float)
    marked = draw.choice(60, 3, replace=False)
    others = np.delete(values, marked)
    others = others[~np.isin(others, MARKS)]  # a 99 among them may be a mark, too
    far = min(abs(others - mark)) > np.ptp(others)
    alone = mark < 0 and min(others) >= 0
    values[marked] = mark
    assert marks_of_missing(values) == ([mark] if far or alone else [])


def test_marks_are_told_of_once_and_leave_nothing_else_in_a_reply():
    glucose = np.where(np.arange(60) % 9 == 0, -999, draws.normal(100, 20, 60).round(1))
    (said,) = told_of(glucose, glucose[::-1])
    assert said.startswith("column 'a' holds -999 in several rows")
    told = describe_table(pd.DataFrame({"a": glucose}), "north")[0]
    assert set(told) == {"name", "kind", "present", "missing", "mean", "m2", "categories"}
    assert told_of(np.where(np.arange(60) == 9, -999, draws.normal(100, 20, 60).round(1))) == []
