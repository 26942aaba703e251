"""Stage 2 in one round: exact, and indifferent to how the data is dealt."""

import pytest
import torch
from core_helpers import Diary, deal, normalised_features, quick, tct
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.linear_model import Ridge as SklearnRidge
from torch import nn

from fedtct import FedtctError, Ridge, Silo, partition
from fedtct.federation import Cost, Replies
from fedtct.least_squares import RidgePath, Sums
from fedtct.least_squares import sums as sums_module
from fedtct.least_squares.sums import decompose_range
from fedtct.privacy import noisy_sums
from fedtct.stage2.ridge import COST, STRENGTHS, _best_on_holdout
from fedtct.tangent import Moments, Normaliser
from fedtct.tasks import NUMBERED

targets = NUMBERED.targets

N, D, CLASSES = 300, 60, 10


@pytest.fixture(scope="module")
def digits():
    data = load_digits()
    return torch.tensor(data.images[:N] * 15.9375).byte().unsqueeze(1), torch.tensor(data.target[:N])


def ridge_model(silos, *, normalize=True, **options):
    return tct("mlp", Ridge(d=D, **options), normalize=normalize).fit(silos).model


def test_the_same_model_however_the_data_is_dealt(digits):
    x, y = digits
    expected = ridge_model([Silo(x, y)]).scores(x)
    splits = [("iid", 7), ("classes:2", 5), ("classes:1", 10), ("dirichlet:0.1", 4), ("dirichlet:0.5", 8)]
    ways = [[Silo(x[part], y[part]) for part in partition(y, k, split, seed=1)] for split, k in splits]
    ways += [deal(x, y, seed, silos) for seed, silos in enumerate([2, 3, 5, 20, 30])]
    for silos in ways:
        assert torch.allclose(ridge_model(silos).scores(x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("strength", [1e-3, 0.1, 10.0])
def test_equals_scikit_learns_ridge_on_the_pooled_features(digits, strength, normalize):
    x, y = digits
    model = ridge_model(deal(x, y, 0, 6), ridge=strength, normalize=normalize)
    z = normalised_features(model, x)[:, :-1].numpy()
    reference = SklearnRidge(alpha=len(y) * strength).fit(z, targets(y, CLASSES).double().numpy())
    assert torch.allclose(model.scores(x).double(), torch.tensor(reference.predict(z)), rtol=1e-5, atol=1e-5)


def path_and_features(n=40, d=6, outputs=3, seed=0):
    """A ridge path from sums, and the centred and scaled features it is about."""
    draws = torch.Generator().manual_seed(seed)
    z = 2 * torch.randn(n, d, generator=draws, dtype=torch.float64) + 3
    y = torch.randn(n, outputs, generator=draws, dtype=torch.float64) + 1
    sums = Sums.of([(z, y)])
    normaliser = Normaliser.of(sums.moments())
    return RidgePath.of(sums, normaliser), (z - z.mean(0)) * normaliser.scale.double(), y


@pytest.mark.parametrize("cost", [1.0, COST])
@pytest.mark.parametrize("strength", STRENGTHS)
def test_generalised_cross_validation_is_that_of_the_hat_matrix(strength, cost):
    path, z, y = path_and_features()
    n, identity = len(z), torch.eye(z.shape[1], dtype=torch.float64)
    hat = z @ torch.linalg.solve(z.T @ z / n + strength * identity, z.T / n) + 1 / n  # the bias is not penalised
    residuals = y - hat @ y
    expected = residuals.square().sum() / n / (1 - cost * hat.trace() / n) ** 2
    assert path.generalised_cross_validation(strength, cost) == pytest.approx(float(expected), rel=1e-8)


def test_generalised_cross_validation_without_a_degree_of_freedom_left_is_the_worst():
    path, _, _ = path_and_features(n=6, d=8)
    assert path.generalised_cross_validation(1e-6) > path.generalised_cross_validation(1.0)


@quick
@given(n=st.integers(1, 12), d=st.integers(1, 30), seed=st.integers(0, 999), copies=st.integers(1, 3))
def test_a_matrix_of_low_rank_is_decomposed_by_its_range(n, d, seed, copies):
    z = torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).repeat(copies, 1)
    covariance = z.T @ z / len(z)
    eigenvalues, q = decompose_range(covariance)
    assert 1 <= len(eigenvalues) <= min(n, d)
    assert torch.allclose((q * eigenvalues) @ q.T, covariance, rtol=1e-9, atol=1e-9)
    assert torch.allclose(q.T @ q, torch.eye(len(eigenvalues), dtype=torch.float64), atol=1e-6)
    assert torch.equal(eigenvalues, eigenvalues.sort().values)


def test_features_that_never_change_have_no_directions():
    eigenvalues, q = decompose_range(torch.zeros(4, 4, dtype=torch.float64))
    assert eigenvalues.numel() == 0
    assert q.shape == (4, 0)


@pytest.mark.parametrize("strength", [1e-6, 1e-3, 1.0])
def test_few_samples_give_the_same_model_the_short_way(strength, monkeypatch):
    path, _, _ = path_and_features(n=10, d=40)
    monkeypatch.setattr(sums_module, "FEW", 0.0)
    long, _, _ = path_and_features(n=10, d=40)
    assert len(path.eigenvalues) < 10 < len(long.eigenvalues) == 40
    same = Normaliser.identity(40), torch.zeros(40, dtype=torch.float64)
    assert torch.allclose(path.weights(strength, *same), long.weights(strength, *same), rtol=1e-7, atol=1e-9)
    if strength > 1e-6:  # where few samples are fitted exactly, GCV is 0/0
        scores = [p.generalised_cross_validation(strength) for p in (path, long)]
        assert scores[0] == pytest.approx(scores[1], rel=1e-5)


@pytest.mark.parametrize("strength", [1e-12, 1e-9, 1e-6])
def test_eigenvalues_far_below_the_largest_count_where_the_ridge_is_weak(strength):
    draws = torch.Generator().manual_seed(0)
    directions = torch.linalg.qr(torch.randn(30, 8, generator=draws, dtype=torch.float64)).Q
    covariance = (directions * torch.logspace(0, -10, 8).double()) @ directions.T
    ways = decompose_range(covariance), torch.linalg.eigh(covariance)
    assert len(ways[0][0]) < 30
    fits = [(q * (eigenvalues / (eigenvalues + strength))) @ q.T for eigenvalues, q in ways]
    assert torch.allclose(*fits, rtol=0, atol=1e-3)


def test_gcv_takes_the_strength_with_the_best_score(digits):
    """Where a degree of freedom counts as 1.2; as 1.1 it would be another strength."""
    x, y = (part[:200] for part in digits)
    chosen = ridge_model([Silo(x, y)]).scores(x)
    scores = {strength: ridge_model([Silo(x, y)], ridge=strength).scores(x) for strength in STRENGTHS}
    distance = {strength: float((s - chosen).norm()) for strength, s in scores.items()}
    z = normalised_features(ridge_model([Silo(x, y)]), x)[:, :-1]
    sums = Sums.of([(z, targets(y, CLASSES))])
    path = RidgePath.of(sums, Normaliser.identity(D))
    best, other = (
        min(STRENGTHS, key=lambda strength: path.generalised_cross_validation(strength, cost)) for cost in (1.2, 1.1)
    )
    assert best != other
    assert distance[best] == 0
    assert all(distance[strength] > 0 for strength in STRENGTHS if strength != best)


def test_holdout_takes_the_strength_that_errs_least_on_held_out_samples(digits):
    x, y = digits
    silos = [Silo(s.x, s.y, holdout=0.4) for s in deal(x, y, 0, 3)]
    held_x, held_y = torch.cat([s.held_x for s in silos]), torch.cat([s.held_y for s in silos])

    def error(ridge):
        return float((ridge_model(silos, ridge=ridge).scores(held_x) - targets(held_y, CLASSES)).square().sum())

    errors = [error(strength) for strength in STRENGTHS]
    assert 0 < errors.index(min(errors)) < len(errors) - 1
    assert error("holdout") == min(errors)


@quick
@given(errors=st.lists(st.integers(0, 3), min_size=9, max_size=9))
def test_of_strengths_that_err_alike_the_strongest_is_taken(errors):
    silos = [{"held_loss": share * torch.tensor(errors).double()} for share in (1, 2)]
    chosen = STRENGTHS.index(_best_on_holdout(Replies(silos, Cost())))
    assert all((error, -place) >= (errors[chosen], -chosen) for place, error in enumerate(errors))


@quick
@given(st.sampled_from(["gcv", "holdout"]), st.integers(-12, 12), st.integers(0, 99))
def test_features_that_are_not_normalised_may_be_of_any_size(ridge, power, seed):
    """Those of a network that is nothing but its head are its inputs: strengths must be chosen in their units."""
    draws = torch.Generator().manual_seed(seed)
    x, y = torch.randn(60, 5, generator=draws), torch.randint(3, (60,), generator=draws)
    y[:30] = x[:30, :3].argmax(1)

    def scores(x):
        network = nn.Linear(5, 3, bias=False)
        silos = [Silo(x[:40], y[:40], holdout=0.3), Silo(x[40:], y[40:], holdout=0.3)]
        return tct(network, Ridge(d=5, ridge=ridge), normalize=False).fit(silos).model.scores(x)

    torch.testing.assert_close(scores(x * 2.0**power), scores(x), rtol=1e-4, atol=1e-5)


def test_features_that_are_not_normalised_and_never_change_give_the_mean():
    x, y = torch.ones(12, 4), torch.arange(12) % 3
    model = tct(nn.Linear(4, 3), Ridge(d=5), normalize=False).fit([Silo(x, y)]).model
    torch.testing.assert_close(model.scores(x), torch.zeros(12, 3), rtol=0, atol=1e-6)


def test_holdout_needs_held_out_samples_and_says_so_before_training(digits):
    x, y = digits
    journal = Diary()
    with pytest.raises(FedtctError, match="needs held-out samples"):
        tct("mlp", Ridge(d=D, ridge="holdout")).fit([Silo(x, y)], journal=journal)
    assert len(journal.history) == 0


@pytest.mark.parametrize("options", [{"d": 0}, {"ridge": 0.0}, {"ridge": -1.0}, {"ridge": "best"}])
def test_settings_that_cannot_work(options):
    with pytest.raises(FedtctError, match=r"d must be at least 1|ridge must be"):
        Ridge(**options)


@quick
@given(sizes=st.lists(st.integers(1, 20), min_size=1, max_size=6), d=st.integers(1, 6), seed=st.integers(0, 999))
def test_sums_add_up_and_survive_packing(sizes, d, seed):
    draws = torch.Generator().manual_seed(seed)
    z = torch.randn(sum(sizes), d, generator=draws)
    y = torch.randn(sum(sizes), 2, generator=draws)
    batches = list(zip(z.split(sizes), y.split(sizes), strict=True))
    parts = [Sums.of([batch]) for batch in batches]
    total = Sums.total([part.pack() for part in parts], [part.t for part in parts], [part.yy for part in parts])
    for found, expected in zip(Sums.of(batches), total, strict=True):
        assert torch.allclose(torch.as_tensor(found), torch.as_tensor(expected), rtol=1e-12, atol=1e-12)

    design = torch.cat([torch.ones(len(z), 1), z], 1).double()
    assert torch.allclose(total.s, design.T @ design, rtol=1e-12, atol=1e-12)
    assert torch.allclose(total.t, design.T @ y.double(), rtol=1e-12, atol=1e-12)
    assert total.yy == pytest.approx(float(y.double().square().sum()), rel=1e-12)
    assert parts[0].pack().numel() == (d + 1) * (d + 2) // 2
    for found, expected in zip(total.moments(), Moments.of([z]), strict=True):
        assert torch.allclose(torch.as_tensor(found), torch.as_tensor(expected), rtol=1e-9, atol=1e-9)


def test_with_noise_the_covariance_of_few_samples_is_decomposed_whole():
    """It is indefinite, which the short way cannot take: most of the problem would be dropped without a word."""
    draws = torch.Generator().manual_seed(0)
    z, y = torch.randn(10, 40, generator=draws), torch.randn(10, 3, generator=draws)
    sums = noisy_sums(Sums.of([(z, y)]), noise=0.1, key=b"1")
    path = Ridge(noise=0.1).decompose(sums, Normaliser.identity(40))
    mean = sums.s[0, 1:] / 10
    eigenvalues, q = torch.linalg.eigh(sums.s[1:, 1:] / 10 - torch.outer(mean, mean))
    assert float(eigenvalues[0]) < -0.01
    torch.testing.assert_close(path.eigenvalues, eigenvalues.clamp_min(0))
    torch.testing.assert_close((path.q.T @ q).abs(), torch.eye(40).double())


@pytest.mark.parametrize("silos", [1, 9])
def test_with_noise_the_strength_is_how_far_noise_moves_the_covariance(silos):
    d, n = 150, 1000.0
    nothing = Sums.of([(torch.zeros(0, d), torch.zeros(0, 3))])
    parts = [noisy_sums(nothing, noise=0.5, key=bytes([place])) for place in range(silos)]
    s = sum(part.s for part in parts)
    s[0, 0] = n
    moved = torch.linalg.eigvalsh(s[1:, 1:] / n)[-1].item() * d  # features of norm one are scaled by √d
    assert Ridge(noise=0.5)._noise_level(parts[0]._replace(s=s), silos) == pytest.approx(moved, rel=0.05)


def test_choosing_on_held_out_samples_is_paid_for(digits):
    x, y = digits
    silos = [Silo(s.x, s.y, holdout=0.4) for s in deal(x, y, 0, 3)]
    by_gcv, by_holdout = (tct("mlp", Ridge(d=D, ridge=way)).fit(silos).history[-1] for way in ("gcv", "holdout"))
    models = len(STRENGTHS) * (D + 1) * CLASSES * 4
    assert by_holdout.bytes_down - by_gcv.bytes_down > models
    assert by_holdout.silo_bytes_up > by_gcv.silo_bytes_up
