"""Rows of metrics.jsonl: what was measured comes back from disk, and what is no number is null."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtct.files import strict
from fedtct.history import Row
from fedtct.runs.metrics import from_line, to_line

shares = st.none() | st.floats(0, 1)


@given(st.builds(Row, st.text(), st.integers(0), shares, shares, shares, silo_accuracies=st.tuples(st.floats(0, 1))))
def test_rows_survive_being_written(row: Row) -> None:
    assert from_line(to_line(row).encode(), Path("metrics.jsonl")) == row


def test_what_is_not_a_number_is_null() -> None:
    line = to_line(Row("stage1", 3, test_loss=math.nan, train_loss=math.inf))
    values = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert (values["test_loss"], values["train_loss"]) == (None, None)
    assert strict({"a": [math.nan, (1.5, {"b": -math.inf})]}) == {"a": [None, [1.5, {"b": None}]]}


@pytest.mark.parametrize("rating", [{"train_accuracy": 0.1}, {"train_r2": math.nan}], ids=["classes", "numbers"])
def test_that_a_round_diverged_survives_being_written(rating: dict[str, float]) -> None:
    row = Row("stage1", 3, train_loss=math.nan, **rating)
    back = from_line(to_line(row).encode(), Path("metrics.jsonl"))
    assert (row.diverged, row.regression) == (back.diverged, back.regression) == (True, "train_r2" in rating)
    assert to_line(back) == to_line(row)
