"""M steps at once are the M steps one by one."""

from itertools import accumulate

import pytest
import torch
from core_helpers import explicit_steps, quick
from hypothesis import example, given
from hypothesis import strategies as st

from fedtct.least_squares import closed_form, local_regression, products
from fedtct.least_squares.closed_form import DualRegression, SeriesRegression
from fedtct.least_squares.power_sums import ChebyshevSeries, power_sums, step_sums
from fedtct.least_squares.products import times, transposed_times

STEPS = st.sampled_from([1, 2, 7, 64, 500])


def regression(n, p, seed, *, repeat_rows=False, empty_columns=False, dtype=torch.float64):
    """A random problem in which features have the scale of normalised ones; W and a term of its gradients besides."""
    draws = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=draws, dtype=dtype)

    z, y, w, term = normal(n, p), normal(n, 3), normal(p, 3), normal(p, 3)
    if repeat_rows:
        z = z[torch.arange(n) // 2]
    if empty_columns:
        z[:, : p // 2] = 0
    return z, y, w, term


def advance(local, w, term, lr, steps):
    """W after the steps, the scores at their start, and the mean gradient, each checked to be what it is said to be."""
    start = local.point(w)
    moved, gradient = local.advance(start, None if term is None else local.point(term), lr, steps)
    if isinstance(local, DualRegression) and not isinstance(local, SeriesRegression):
        torch.testing.assert_close(gradient[local.p :], times(local.z, gradient[: local.p]), rtol=1e-3, atol=1e-4)
    return moved, local.scores(start), gradient[: local.p]


@quick
@given(
    n=st.integers(1, 12),
    p=st.integers(1, 12),
    seed=st.integers(0, 999),
    steps=STEPS,
    share=st.floats(0.01, 0.99),
    corrected=st.booleans(),
    repeat_rows=st.booleans(),
    empty_columns=st.booleans(),
)
def test_closed_form_equals_explicit_steps(n, p, seed, steps, share, corrected, repeat_rows, empty_columns):
    z, y, w, term = regression(n, p, seed, repeat_rows=repeat_rows, empty_columns=empty_columns)
    local = local_regression(z, y)
    lr = share * 2 / max(local.largest_eigenvalue, 1e-3)
    term = term if corrected else None
    moved, scores, gradient = advance(local, w, term, lr, steps)
    expected = explicit_steps(z, y, w, term, lr, steps)
    assert (moved - expected).norm() <= 1e-10 * (1 + expected.norm())
    assert torch.allclose(scores, z @ w, rtol=1e-12, atol=1e-12)
    mean = (w - expected) / (lr * steps) - (term if corrected else 0)
    assert (gradient - mean).norm() <= 1e-10 * (1 + mean.norm() + expected.norm() / (lr * steps))


@pytest.mark.parametrize("steps", [1, 2, 7, 64, 500])
def test_explicit_steps_are_gradient_descent(steps):
    z, y, w, term = regression(5, 4, seed=0)
    lr, expected = 0.05, w.clone().requires_grad_()
    optimiser = torch.optim.SGD([expected], lr=lr)
    for _ in range(steps):
        optimiser.zero_grad()
        ((z @ expected - y).square().sum() / (2 * len(z)) + (term * expected).sum()).backward()
        optimiser.step()
    assert torch.allclose(explicit_steps(z, y, w, term, lr, steps), expected, rtol=1e-11, atol=1e-11)


@quick
@given(steps=st.integers(1, 300), c=st.floats(-1, 1) | st.sampled_from([1.0, 0.0, -0.9]))
@example(steps=500, c=1.0)  # a zero eigenvalue, where the formula of the geometric series divides by zero
@example(steps=500, c=0.0)
@example(steps=500, c=-0.9)
def test_power_sums_equal_plain_sums(steps, c):
    powers = [c**m for m in range(steps)]
    expected = [c**steps, sum(powers), sum(accumulate(powers[:-1]))]
    found = torch.stack(power_sums(torch.tensor(c, dtype=torch.float64), steps))
    assert found.tolist() == pytest.approx(expected, rel=1e-11, abs=1e-11)


@pytest.mark.parametrize(("n", "p"), [(5, 9), (9, 5)])
def test_each_column_may_have_steps_of_its_own(n, p):
    z, y, w, term = regression(n, p, seed=5)
    local = local_regression(z, y)
    lr = torch.tensor([0.2, 1.0, 1.9], dtype=torch.float64) / local.largest_eigenvalue
    steps = torch.tensor([500, 1, 64])
    found = advance(local, w, term, lr, steps)
    for column in range(3):
        alone = advance(local, w, term, float(lr[column]), int(steps[column]))
        for side_by_side, by_itself in zip(found, alone, strict=True):
            torch.testing.assert_close(side_by_side[:, column], by_itself[:, column])


def test_largest_eigenvalue_is_where_steps_begin_to_diverge():
    z, y, w, _ = regression(9, 4, seed=1)
    limit = 2 / local_regression(z, y).largest_eigenvalue
    solution = torch.linalg.lstsq(z, y).solution
    distances = [(explicit_steps(z, y, w, None, lr, 5000) - solution).norm() for lr in (0.99 * limit, 1.01 * limit)]
    assert distances[0] < 1e-6 < 1e6 < distances[1]


@pytest.mark.parametrize(("n", "p"), [(5, 9), (9, 5)])
def test_features_stored_in_half_precision(n, p):
    z, y, w, term = regression(n, p, seed=2, dtype=torch.float32)
    half = z.half()
    exact = local_regression(half.float(), y)
    stored = local_regression(half, y)
    lr = 0.9 * 2 / exact.largest_eigenvalue
    assert stored.largest_eigenvalue == pytest.approx(exact.largest_eigenvalue, rel=1e-5)
    for found, expected in zip(advance(stored, w, term, lr, 20), advance(exact, w, term, lr, 20), strict=True):
        assert found.dtype == torch.float32
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-4)
    rounded, *_ = advance(stored, w, term, lr / 2, 20)
    full, *_ = advance(local_regression(z, y), w, term, lr / 2, 20)
    assert (rounded - full).norm() <= 1e-2 * full.norm()


def without_memory(monkeypatch):
    monkeypatch.setattr(closed_form, "free_bytes", lambda device: 0)


@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize(("n", "p"), [(40, 60), (60, 40)])
@pytest.mark.parametrize("steps", [1, 2, 50, 2000])
def test_a_silo_too_large_for_its_gram_matrix_takes_the_same_steps(monkeypatch, n, p, steps, corrected):
    z, y, w, term = regression(n, p, seed=4)
    term = term if corrected else None
    decomposed = local_regression(z, y)
    without_memory(monkeypatch)
    with pytest.warns(UserWarning, match=f"Gram matrix of {n} samples .* does not fit"):
        local = local_regression(z, y)
    assert isinstance(local, SeriesRegression)
    assert local.largest_eigenvalue == pytest.approx(decomposed.largest_eigenvalue, rel=7e-3)
    lr = 1.9 / decomposed.largest_eigenvalue
    for found, expected in zip(
        advance(local, w, term, lr, steps), advance(decomposed, w, term, lr, steps), strict=True
    ):
        assert (found - expected).norm() <= 1e-6 * expected.norm()


@pytest.mark.parametrize(("n", "p"), [(20, 60), (60, 20)])
@pytest.mark.parametrize("share", [0.95, 0.999, 0.9999])
@pytest.mark.parametrize("steps", [500, 20_000])
@pytest.mark.filterwarnings("ignore:the Gram matrix")
def test_so_it_does_up_to_the_limit_that_it_tells(monkeypatch, n, p, share, steps):
    z, y, w, term = regression(n, p, seed=4)
    decomposed = local_regression(z, y)
    without_memory(monkeypatch)
    local = local_regression(z, y)
    assert local.largest_eigenvalue >= decomposed.largest_eigenvalue
    lr = share * 2 / local.largest_eigenvalue
    for found, expected in zip(
        advance(local, w, term, lr, steps), advance(decomposed, w, term, lr, steps), strict=True
    ):
        assert (found - expected).norm() <= 1e-4 * expected.norm()


@pytest.mark.parametrize(("n", "p"), [(40, 60), (60, 40)])
def test_a_round_of_one_step_needs_no_decomposition_and_is_two_passes_over_the_features(monkeypatch, n, p):
    z, y, w, _ = regression(n, p, seed=4)
    decomposed = local_regression(z, y)
    monkeypatch.setattr(closed_form, "QUICK", 0)
    monkeypatch.setattr(torch.linalg, "eigh", None)
    local = local_regression(z, y, many_steps=False)
    lr = 1.9 / decomposed.largest_eigenvalue
    passes = []
    for name in ("times", "transposed_times"):
        product = getattr(closed_form, name)
        monkeypatch.setattr(closed_form, name, lambda *given, product=product: passes.append(1) or product(*given))
    moved, _ = local.advance(local.point(w), None, lr, 1)
    assert len(passes) == 2
    torch.testing.assert_close(moved, explicit_steps(z, y, w, None, lr, 1))


def test_a_decomposition_that_does_not_converge_in_float32_is_made_in_float64(monkeypatch):
    z, y, w, _ = regression(40, 60, seed=4)
    z, y, w = z.float(), y.float(), w.float()
    eigh, seen = torch.linalg.eigh, []

    def stubborn(gram):
        seen.append(gram.dtype)
        if gram.dtype == torch.float32:
            raise torch.linalg.LinAlgError("it failed to converge")
        return eigh(gram)

    monkeypatch.setattr(torch.linalg, "eigh", stubborn)
    local = local_regression(z, y)
    assert seen == [torch.float32, torch.float64]
    lr = 1.9 / local.largest_eigenvalue
    moved, _ = local.advance(local.point(w), None, lr, 30)
    torch.testing.assert_close(moved, explicit_steps(z, y, w, None, lr, 30), rtol=1e-3, atol=1e-4)


def test_a_chebyshev_series_is_much_shorter_than_the_steps():
    eigenvalues = torch.linspace(0, 1, 100, dtype=torch.float64)
    angles = torch.arccos(2 * eigenvalues - 1)
    for steps, longest in ((2, 2), (500, 150), (5000, 500), (100_003, 2100)):
        series = ChebyshevSeries(upper=1.0, lr=1.9, steps=steps)
        assert len(series.s) <= longest
        cosines = torch.cos(torch.outer(angles, torch.arange(len(series.s))))
        for coefficients, exact in zip((series.s, series.t), step_sums(eigenvalues, 1.9, steps), strict=True):
            torch.testing.assert_close(cosines @ coefficients / exact.max(), exact / exact.max(), rtol=0, atol=1e-9)


def test_products_with_half_precision_go_by_blocks_of_rows(monkeypatch):
    monkeypatch.setattr(products, "BLOCK", 4 * 6 * 4)
    z, y, w, _ = regression(11, 6, seed=3, dtype=torch.float32)
    half = z.half()
    assert torch.allclose(times(half, w), half.float() @ w, rtol=1e-5, atol=1e-6)
    assert torch.allclose(transposed_times(half, y), half.float().T @ y, rtol=1e-5, atol=1e-6)
    assert local_regression(half, y).largest_eigenvalue == pytest.approx(
        local_regression(half.double(), y.double()).largest_eigenvalue, rel=1e-5
    )
