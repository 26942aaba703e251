"""Products with half-precision features are those of float32, whoever computes them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtct.least_squares import products
from fedtct.least_squares.products import inner, outer, times, transposed_times

SIZES = {"n": st.integers(1, 150), "p": st.integers(1, 300), "columns": st.sampled_from([1, 10, 20, 150])}
few = settings(max_examples=8)


def features(n: int, p: int) -> torch.Tensor:
    """As a GPU holds them: in rows that begin at multiples of 64."""
    return torch.randn(n, -(-p // 64) * 64, generator=torch.Generator().manual_seed(n + p)).half()[:, :p]


def close(found: torch.Tensor, exact: torch.Tensor) -> bool:
    return found.shape == exact.shape and bool((found - exact).norm() <= 1e-6 * (1e-30 + exact.norm()))


@few
@given(**SIZES, magnitude=st.sampled_from([0.0, 1e-12, 1.0, 1e12]), block=st.sampled_from([1, 20_000, 2**24]))
@pytest.mark.parametrize("kernel", [False, True], ids=["plain", "triton"])
def test_they_are_the_products(kernel, n, p, columns, magnitude, block):
    z, draws = features(n, p), torch.Generator().manual_seed(0)
    w, r = (magnitude * torch.randn(rows, columns, generator=draws) for rows in (p, n))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "_suits_kernel", lambda z, b: kernel)
        patch.setattr(products, "BLOCK", block)
        assert close(times(z, w), z.double() @ w.double())
        assert close(transposed_times(z, r), z.double().T @ r.double())


@few
@given(n=st.integers(1, 60), p=st.integers(1, 60), narrowest=st.integers(1, 20))
def test_gram_matrices_are_symmetric_products(n, p, narrowest):
    z = features(n, p)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "NARROWEST", narrowest)
        pairs = [(outer(z, torch.float32), z), (inner(z, torch.float32), z.T)]
    for found, a in pairs:
        assert close(found, a.double() @ a.double().T)
        assert torch.equal(found, found.T)


def test_a_long_sum_is_shared_by_programs(monkeypatch):
    monkeypatch.setattr(products, "_suits_kernel", lambda z, b: True)
    z, w = features(3, 5000), torch.randn(5000, 2, generator=torch.Generator().manual_seed(0))
    assert close(times(z, w), z.double() @ w.double())


@pytest.mark.parametrize("magnitude", [1e-36, 1e10, 1e30, torch.inf, torch.nan])
def test_a_column_is_the_same_to_the_last_bit_beside_any_other(magnitude, monkeypatch):
    monkeypatch.setattr(products, "_suits_kernel", lambda z, b: True)
    z, w = features(20, 70), torch.randn(70, 4, generator=torch.Generator().manual_seed(0))
    alone, beside = times(z, w), times(z, w * torch.tensor([1.0, magnitude, 1.0, 1.0]))
    assert torch.equal(beside[:, [0, 2, 3]], alone[:, [0, 2, 3]])
    assert not 1e-30 < magnitude < torch.inf or close(beside[:, 1], z.double() @ (magnitude * w[:, 1].double()))
