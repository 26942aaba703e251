"""Samples that belong together, as several rows of one patient, are held out together."""

import numpy as np
import pandas as pd
import pytest
import torch
from core_helpers import quick
from hypothesis import assume, given
from hypothesis import strategies as st

from fedtct import FedAvg, FedtctError, Silo

OWNERS = st.lists(st.integers(0, 9), min_size=2, max_size=60)


def numbered(n, **how):
    return Silo(torch.arange(n).unsqueeze(1), torch.arange(n), **how)


@quick
@given(owners=OWNERS, share=st.floats(0, 0.9))
def test_whoever_is_held_out_is_held_out_whole(owners, share):
    count, sizes = round(share * len(owners)), np.bincount(owners)
    assume(len(set(owners)) > 1 and count < len(owners))
    silo = numbered(len(owners), holdout=share, groups=owners)
    kept, held = silo.y.tolist(), silo.held_y.tolist()
    assert sorted(kept + held) == list(range(len(owners)))
    assert kept == sorted(kept)
    assert silo.held_x.squeeze(1).tolist() == held
    assert not {owners[row] for row in kept} & {owners[row] for row in held}
    assert kept
    assert bool(held) == bool(count)
    assert count == 0 or abs(len(held) - count) < max(sizes)
    others = {owners[row] for row in kept}  # of whom none would have brought the number nearer
    too_large = min(sizes[owner] for owner in others) - (count - len(held)) >= count - len(held)
    assert len(held) >= count or too_large or len(others) == 1


@quick
@given(n=st.integers(2, 60), share=st.floats(0, 0.9), names=st.booleans())
def test_of_groups_of_one_the_same_are_held_out_as_without(n, share, names):
    assume(round(share * n) < n)
    owners = [f"p{row}" for row in range(n)] if names else range(1000, 1000 + n)
    assert numbered(n, holdout=share, groups=owners).held_y.tolist() == numbered(n, holdout=share).held_y.tolist()


@quick
@given(owners=OWNERS)
def test_groups_may_come_in_any_form(owners):
    assume(len(set(owners)) > 1)
    forms = [
        np.array(owners),
        torch.tensor(owners),
        pd.Series(owners, index=range(7, 7 + len(owners))),
        pd.Series(owners, dtype="Int64"),
        [f" p{owner}" * (place % 2) or f"p{owner} " for place, owner in enumerate(owners)],
    ]
    held = numbered(len(owners), holdout=0.3, groups=owners).held_y.tolist()
    assert all(numbered(len(owners), holdout=0.3, groups=form).held_y.tolist() == held for form in forms)


BAD = [
    ([1, 2, 3], "north: groups has 3 entries for 10 samples: give one for each"),
    ("patient", "north: groups has 1 entries"),
    ([1, None] * 5, "north: 5 of 10 samples have no group"),
    (np.array([1.0, np.nan] * 5), "5 of 10 samples have no group"),
    (pd.array([1, None] * 5, dtype="Int64"), "5 of 10 samples have no group"),
    (np.zeros((10, 2)), "groups must be a list or an array of names or numbers"),
    ([[1]] * 10, "groups must be a list or an array of names or numbers"),
    (["one"] * 10, "all 10 samples are of one group, so none can be held out: set holdout to 0"),
]


@pytest.mark.parametrize(("groups", "message"), BAD)
def test_groups_that_cannot_be_are_refused(groups, message):
    with pytest.raises(FedtctError, match=message):
        numbered(10, holdout=0.2, groups=groups, name="north")


def test_one_group_is_enough_where_nothing_is_to_be_held_out():
    assert len(numbered(10, groups=["one"] * 10)) == 10


def test_where_all_groups_are_large_a_smallest_is_held_out():
    assert numbered(10, holdout=0.1, groups=["a"] * 6 + ["b"] * 4).held_y.tolist() == [6, 7, 8, 9]


def test_private_silos_do_not_let_groups_decide_what_is_held_out():
    """One sample in another group can move many from one side to the other, which no noise accounts for."""
    method = FedAvg("linear", rounds=1, local_epochs=1, noise=1.0, num_classes=2)
    data, owners = (torch.randn(20, 3), torch.arange(20) % 2), torch.arange(20) // 2
    with pytest.raises(FedtctError, match="north: differential privacy does not cover holding out by groups"):
        method.fit([Silo(*data, holdout=0.2, groups=owners, name="north")])
    method.fit([Silo(*data, groups=owners)])
    FedAvg("linear", rounds=1, local_epochs=1).fit([Silo(*data, holdout=0.2, groups=owners)])
