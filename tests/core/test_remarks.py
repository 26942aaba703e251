"""What several silos are warned of alike is said once, with the names of all."""

import warnings

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtct import FedAvg, Silo
from fedtct.remarks import joined_warnings

SILOS = ["north", "northern", "a.csv", "Zürich 2"]
REMARKS = [
    "{silo}: column 'x1' is empty in {n} of 12 rows",
    "{silo}: column 'x2' is empty in {n} of 12 rows",
    "3 of {n} samples that {silo} holds out are copies",
    "the GPU cannot be used",
]


def shown(said, silos=SILOS):
    """What is shown of these warnings, when they are joined."""
    with warnings.catch_warnings(record=True, action="always") as heard, joined_warnings(silos):
        for text in said:
            warnings.warn(text, stacklevel=1)
    return [str(warning.message) for warning in heard]


@given(
    st.sampled_from(REMARKS).flatmap(
        lambda remark: st.lists(
            st.tuples(st.sampled_from(SILOS), st.integers(0, 99)), min_size=1, unique_by=lambda t: t[0]
        ).map(lambda about: [remark.format(silo=silo, n=n) for silo, n in about])
    )
)
def test_what_is_alike_is_shown_once_as_it_was_said_first_and_names_everybody(said):
    line, *more = shown(said)
    assert not more
    assert line.startswith(said[0])
    if "GPU" not in said[0]:
        assert all(any(name in text and name in line for name in SILOS) for text in said)


def test_a_number_is_a_silo_where_a_remark_begins():
    assert shown(["2: 2 of 5 rows are odd", "5: 3 of 2 rows are odd"], ["2", "5"]) == [
        "2: 2 of 5 rows are odd (likewise in 5)"
    ]


@given(
    st.lists(st.sampled_from(REMARKS), unique=True).map(lambda remarks: [r.format(silo="north", n=3) for r in remarks])
)
def test_what_is_said_of_other_columns_or_of_one_silo_stays_apart(said):
    assert shown(said) == said


def test_a_silo_of_which_more_is_said_is_not_lost():
    said = [f"north: {count} rows are odd" for count in (3, 5)]
    assert shown([*said, "northern: 4 rows are odd"]) == [said[0] + " (likewise in northern)", said[1]]


def test_what_was_said_before_a_failure_is_shown():
    def fail():
        with joined_warnings(SILOS):
            warnings.warn("north is odd", stacklevel=1)
            raise ZeroDivisionError

    with pytest.warns(UserWarning, match="north is odd"), pytest.raises(ZeroDivisionError):
        fail()


def test_silos_whose_columns_are_alike_get_one_warning():
    tables = [pd.DataFrame({"age": range(30), "name": [f"person {30 * k + n}" for n in range(30)]}) for k in range(4)]
    silos = [Silo(table, ["ill", "well"] * 15, name=f"clinic-{k}") for k, table in enumerate(tables)]
    with pytest.warns(UserWarning, match="'name' has 30 different texts") as heard:
        FedAvg("mlp", rounds=0).fit(silos)
    [line] = [str(warning.message) for warning in heard if "different texts" in str(warning.message)]
    assert line.startswith("clinic-0: ")
    assert line.endswith("(likewise in clinic-1, clinic-2, clinic-3)")
