"""What silos agree on before they train: statistics that are those of the pooled data, however it was dealt."""

import pytest
import torch
from core_helpers import deal, normalised_features, pooled, quick, skewed_data, tct
from hypothesis import given
from hypothesis import strategies as st

from fedtct import Classifier, FedAvg, Ridge, ScaffoldRegression, Silo
from fedtct.session import Session
from fedtct.tangent import Moments, Normaliser, normalised

SEEDS = st.integers(0, 999)


def features(n: int, p: int = 5, seed: int = 0) -> torch.Tensor:
    """Means and deviations of very different sizes."""
    draws = torch.Generator().manual_seed(seed)
    scale = 10.0 ** torch.randint(-3, 4, (p,), generator=draws)
    return scale * (torch.randn(n, p, generator=draws) + 10 * torch.randn(p, generator=draws))


@quick
@given(sizes=st.lists(st.integers(1, 30), min_size=1, max_size=8), seed=SEEDS)
def test_merged_moments_are_those_of_the_pooled_features(sizes, seed):
    z = features(sum(sizes), seed=seed)
    merged = Moments.merge([Moments.of([part]) for part in z.split(sizes)])
    values = z.double()
    assert merged.n == len(z)
    assert torch.allclose(merged.mean, values.mean(0), rtol=1e-12)
    assert torch.allclose(merged.m2, (values - values.mean(0)).square().sum(0), rtol=1e-9, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_moments_of_rows_that_come_in_batches(dtype):
    z = features(2500).to(dtype)
    z[:64] -= 3 * z.std(0)  # the first batch is unlike the others
    before = z.clone()
    found = Moments.of(z.split(64))
    assert torch.allclose(found.mean, z.double().mean(0), rtol=1e-12)
    assert torch.allclose(found.m2, z.double().var(0, correction=0) * len(z), rtol=1e-10)
    assert torch.equal(z, before)


@quick
@given(seed=SEEDS)
def test_normalised_features_have_mean_zero_and_variance_one(seed):
    z = features(200, seed=seed)
    result = Normaliser.of(Moments.of([z]))(z).double()
    assert torch.allclose(result[:, :-1].mean(0), torch.zeros(5, dtype=torch.float64), atol=1e-4)
    assert torch.allclose(result[:, :-1].var(0, correction=0), torch.ones(5, dtype=torch.float64), atol=1e-4)
    assert bool((result[:, -1] == 1).all())  # the bias is not normalised


def test_near_constant_features_become_zero():
    draws = torch.Generator().manual_seed(0)
    noise = torch.randn(100, 5, generator=draws)
    constant, rounding, dead, tiny, real = noise.unbind(1)
    z = torch.stack([0 * constant + 3, 3 + 1e-6 * rounding, 0 * dead, 1e-14 * tiny, 1e-4 * real + 1], 1)
    normaliser = Normaliser.of(Moments.of([z]))
    assert (normaliser.scale == 0).tolist() == [True, True, True, True, False]
    assert torch.isfinite(normaliser(z)).all()
    assert bool((normaliser(z)[:, :4] == 0).all())


@pytest.mark.parametrize("stage2", [ScaffoldRegression(rounds=1, steps=1, lr="auto"), Ridge(d=50)])
def test_tct_normalises_over_all_silos(stage2):
    parts = skewed_data((40, 20, 7))
    x, _ = pooled(parts)
    model = tct("mlp", stage2, p=50).fit([Silo(*part) for part in parts]).model
    z = normalised_features(model, x)[:, :-1]
    alive = model.linear.normaliser.scale > 0
    assert alive.sum() > 20
    assert torch.allclose(z.mean(0), torch.zeros(50, dtype=torch.float64), atol=1e-5)
    assert torch.allclose(z.var(0, correction=0), alive.double(), atol=1e-4)


def test_normalize_false_leaves_features_as_they_are():
    parts = skewed_data()
    x, _ = pooled(parts)
    for stage2 in (ScaffoldRegression(rounds=1, steps=1, lr="auto"), Ridge(d=50)):
        model = tct("mlp", stage2, p=50, normalize=False).fit([Silo(*part) for part in parts]).model
        assert torch.equal(normalised_features(model, x)[:, :-1], model.tangents(x).double())


def pixels(n: int = 40, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    draws = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 256, (n, 3, 4, 4), generator=draws, dtype=torch.uint8)
    x[:, 1] //= 3
    return x, torch.arange(n) % 4


@quick
@given(seed=SEEDS, silos=st.integers(1, 10))
def test_pixel_statistics_do_not_depend_on_the_split(seed, silos):
    x, y = pixels()
    together = Session.open([Silo(x, y)], "linear").spec.inputs
    dealt = Session.open(deal(x, y, seed, silos), "linear").spec.inputs
    assert (dealt.mean, dealt.std) == (together.mean, together.std)  # to the last bit


def test_pixel_statistics_are_those_of_the_data():
    x, y = pixels()
    inputs = Session.open(deal(x, y, 0, 5), "linear").spec.inputs
    channels = x.double().div(255).transpose(0, 1).flatten(1)
    assert inputs.mean == pytest.approx(channels.mean(1).tolist(), rel=1e-12)
    assert inputs.std == pytest.approx(channels.std(1, correction=0).tolist(), rel=1e-12)


def test_networks_see_normalised_pixels():
    x, y = pixels()
    x[:, 2] = 7  # a channel without variance must not become infinite
    seen = Session.open(deal(x, y, 0, 5), "linear").network.prepare(x)
    assert torch.allclose(seen.mean((0, 2, 3)), torch.zeros(3), atol=1e-5)
    assert torch.allclose(seen.std((0, 2, 3), correction=0), torch.tensor([1.0, 1.0, 0.0]), atol=1e-5)


def test_held_out_pixels_are_not_in_the_statistics():
    x, y = pixels()
    silo = Silo(x, y, holdout=0.5)
    train = Silo(silo.x, silo.y)
    silo.held_x = torch.zeros_like(silo.held_x)
    assert Session.open([silo], "linear").spec.inputs == Session.open([train], "linear").spec.inputs


@pytest.mark.parametrize("convert", [torch.Tensor.float, torch.Tensor.double, lambda x: x.double().numpy()])
def test_float_data_is_used_as_it_is(convert):
    x, y = pixels()
    model = FedAvg("linear", rounds=0).fit([Silo(convert(x), y.numpy())]).model
    assert torch.equal(model.network.prepare(x.float()), x.float())
    assert torch.allclose(model.scores(convert(x)), model.network.module(x.float()))


@quick
@given(n=st.integers(1, 20), seed=SEEDS)
def test_scores_are_those_of_the_normalised_features(n, seed):
    z = features(n + 1, seed=seed).double()
    normaliser, w = Normaliser.of(Moments.of([z])), torch.randn(6, 3, dtype=torch.float64)
    expected = normaliser(z) @ w
    assert torch.allclose(normaliser.scores(z, w), expected, rtol=1e-10, atol=1e-10)


@quick
@given(n=st.integers(2, 60), seed=SEEDS)
def test_no_sample_that_is_trained_on_is_cut(n, seed):
    z = features(n, seed=seed)
    z[1:, 0] = z[1, 0]  # the feature of a single sample is as far off as can be
    normaliser = Normaliser.of(Moments.of([z]))
    assert torch.equal(normaliser(z), normaliser._replace(limit=torch.tensor([torch.inf]))(z))


def test_a_feature_that_one_sample_had_does_not_decide_about_others():
    """It has a deviation of next to nothing, and is thousands of these off where a unit wakes up."""
    z = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    z[:, 1] = 0
    z[0, 1] = 1e-3
    normaliser, w = Normaliser.of(Moments.of([z])), torch.ones(3, 1)
    new = torch.tensor([[0.0, 1.0], [0.0, -1.0]])
    assert normaliser(new)[:, 1].tolist() == [10.0, -10.0]
    assert torch.allclose(normaliser.scores(new.clone(), w), normaliser(new) @ w)


@pytest.mark.parametrize("stage2", [ScaffoldRegression(rounds=1, steps=1, lr="auto"), Ridge(d=50)])
def test_all_of_a_fit_cuts_features_alike(stage2, tmp_path):
    """What silos say of held-out samples, the test's rows, the model and the one that is loaded."""
    (x, y), *others = skewed_data((40, 20, 7))
    far = x * 1000
    silo = Silo(x, y)
    silo.held_x, silo.held_y = far, y
    fit = tct("mlp", stage2, p=50).fit([silo, *(Silo(*part) for part in others)], test=(far, y))
    assert normalised_features(fit.model, far)[:, :-1].abs().max() == pytest.approx(67**0.5)
    fit.model.save(tmp_path)
    row = fit.history[-1]
    assert row.test_accuracy == row.holdout_accuracy == fit.model.score(far, y)
    assert torch.equal(Classifier.load(tmp_path).scores(far), fit.model.scores(far))
    logits = normalised_features(fit.model, far).float() @ fit.model.linear.w
    assert row.test_loss == pytest.approx(fit.model.spec.task.squared_score(logits, y).mean_loss, rel=1e-4)


def test_half_precision_cuts_what_it_cannot_hold(monkeypatch):
    """A feature that hardly varies in training may be of any size in a sample from elsewhere."""
    monkeypatch.setattr("fedtct.tangent.normaliser.HALF_FROM", 0)
    normaliser = Normaliser(torch.zeros(2), torch.tensor([1e6, 2.0]))
    stored = normalised([torch.tensor([[1.0, 3.0], [-1.0, 4.0]])], 2, normaliser)
    assert stored.dtype == torch.float16
    assert stored.tolist() == [[65504.0, 6.0, 1.0], [-65504.0, 8.0, 1.0]]
