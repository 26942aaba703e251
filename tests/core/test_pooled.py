"""The pooled optimum that stage 2 is measured against, and what a look at stage 2 records."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtct.least_squares import local_regression, optimal_share
from fedtct.least_squares import pooled as pooled_module
from fedtct.stage2.inspection import RANKS, spectrum


def problem(sizes: list[int], features: int, rank: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    draws = torch.Generator().manual_seed(seed)
    n = sum(sizes)
    z = torch.randn(n, rank, generator=draws).double() @ torch.randn(rank, features, generator=draws).double()
    return z, torch.randn(n, 2, generator=draws).double()


@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 8), min_size=1, max_size=4),
    features=st.integers(1, 30),
    rank=st.integers(1, 12),
    seed=st.integers(0, 100),
)
def test_it_is_the_least_squares_of_all_data(sizes: list[int], features: int, rank: int, seed: int) -> None:
    z, y = problem(sizes, features, rank, seed)
    parts = [local_regression(a, b) for a, b in zip(z.split(sizes), y.split(sizes), strict=True)]
    best = torch.linalg.pinv(z, rtol=1e-10) @ y
    zero, optimal = y.square().sum(), (z @ best - y).square().sum()
    share = optimal_share(parts)
    assert share == pytest.approx(float(optimal / zero), abs=1e-8)
    # So the report knows how far predictions are from the best ones by losses alone.
    w = best + torch.randn(best.shape, generator=torch.Generator().manual_seed(seed)).double()
    distance = (z @ (w - best)).square().sum() / zero
    assert float((z @ w - y).square().sum() / zero) - share == pytest.approx(float(distance), abs=1e-6)


def test_it_is_left_alone_where_it_would_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    z, y = problem([5, 5], 20, 10, 0)
    monkeypatch.setitem(pooled_module.WORTH, "cpu", 100.0)
    assert optimal_share([local_regression(z, y)]) is None


@pytest.mark.parametrize("count", [1, 2, 7, 119, 5000])
def test_a_spectrum_begins_with_the_largest_and_ends_with_the_smallest(count: int) -> None:
    eigenvalues = torch.arange(1.0, count + 1)  # as eigh gives them, rising
    found = spectrum(eigenvalues)
    assert found["ranks"][0] == 1
    assert found["ranks"][-1] == count
    assert len(found["ranks"]) <= RANKS
    assert [count + 1 - rank for rank in found["ranks"]] == found["eigenvalues"]
