"""Every kernel of the short dot products gives what the definition says, whatever lies around its output."""

import pytest
import torch
from core_helpers import quick
from hypothesis import given
from hypothesis import strategies as st

from fedtct.tangent.dots import Dots, Kernel, fast_kernel, plain_kernel


def triton_kernel() -> Kernel:
    from fedtct.tangent.dots_triton import triton_kernel

    return triton_kernel


def defined(dots: Dots) -> torch.Tensor:
    entries = zip(dots.g_at.tolist(), dots.x_at.tolist(), strict=True)
    pieces = [(dots.g[:, i : i + dots.length] * dots.x[:, j : j + dots.length]).sum(1) for i, j in entries]
    return torch.stack(pieces, 1)


def problem(samples: int, entries: int, length: int, dtype: torch.dtype) -> Dots:
    draws = torch.Generator().manual_seed(samples + entries + length)
    g, x = (torch.randn(samples, length + extra, generator=draws, dtype=dtype) for extra in (40, 9))
    g_at, x_at = (torch.randint(extra + 1, (entries,), generator=draws) for extra in (40, 9))
    return Dots(g, x, g_at, x_at, length)


@pytest.mark.parametrize("name", ["plain", "c", "triton"])
@given(
    samples=st.integers(1, 4),
    entries=st.integers(1, 300),
    length=st.integers(1, 150),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
@quick
def test_kernels_follow_the_definition(name: str, samples: int, entries: int, length: int, dtype: torch.dtype) -> None:
    kernel = {"plain": lambda: plain_kernel, "c": lambda: fast_kernel("cpu"), "triton": triton_kernel}[name]()
    dots = problem(samples, entries, length, dtype)
    around = torch.full((samples, entries + 5), 7.0, dtype=dtype)
    kernel(dots.g, dots.x, dots.g_at, dots.x_at, length, around[:, 2:-3])
    torch.testing.assert_close(around[:, 2:-3], defined(dots), rtol=1e-4, atol=1e-4 if dtype == torch.float32 else 1e-9)
    assert (around[:, [0, 1, -3, -2, -1]] == 7).all()


def test_installation_has_the_compiled_kernel() -> None:
    assert fast_kernel("cpu") is not plain_kernel


def test_rows_that_are_no_samples_are_refused_rather_than_written_beyond_the_result() -> None:
    dots = Dots(torch.ones(6, 4), torch.ones(6, 4), torch.zeros(3).long(), torch.zeros(3).long(), 2)
    with pytest.raises(RuntimeError, match="6 rows for 2 samples"):
        dots.write(torch.zeros(2, 3))
