"""Probabilities: a temperature that all silos' held-out samples agree on, and honesty where there are none."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from core_helpers import quick, skewed_data, tct
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedtct import Classifier, FedAvg, FedtctError, Ridge, ScaffoldRegression, Silo
from fedtct.calibration import TEMPERATURES, best_temperature


class Flattening(nn.Sequential):
    """Takes no empty batch, as many models do not."""

    def forward(self, x):
        return super().forward(x.view(x.size(0), -1))


TRAIN = FedAvg("mlp", rounds=3, local_epochs=2, batch_size=8)
OWN = Flattening(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
METHODS = {
    "network": TRAIN,
    "ridge": tct("mlp", Ridge(d=30), stage1=TRAIN),
    "scaffold": tct("mlp", ScaffoldRegression(rounds=2, steps=20, lr="auto"), stage1=TRAIN, p=30),
}
TRAIN_OWN = replace(TRAIN, model=OWN)
OWN_METHODS = [TRAIN_OWN, *(replace(METHODS[name], model=OWN, stage1=TRAIN_OWN) for name in ("ridge", "scaffold"))]
PARTS = skewed_data((60, 40, 20))


def silos(holdout):
    return [Silo(*part, holdout=holdout) for part in PARTS]


def log_loss(model, x, y, temperature):
    return float(F.cross_entropy(model.scores(x).double() / temperature, y))


@pytest.mark.parametrize("holdouts", [(0.4, 0.4, 0.4), (0.4, 0.0, 0.4)], ids=["all hold out", "one does not"])
@pytest.mark.parametrize("name", METHODS)
def test_the_temperature_is_that_of_the_pooled_held_out_samples(name, holdouts, tmp_path):
    parts = [Silo(*part, holdout=holdout) for part, holdout in zip(PARTS, holdouts, strict=True)]
    model = METHODS[name].fit(parts).model
    assert model.calibrated
    x, y = torch.cat([s.held_x for s in parts]), torch.cat([s.held_y for s in parts])
    best = log_loss(model, x, y, model.temperature)
    assert best == pytest.approx(float(F.nll_loss(model.predict_proba(x).log(), y)), rel=1e-6)
    for factor in (0.97, 1.03):
        assert best <= log_loss(model, x, y, model.temperature * factor) + 1e-6
    assert torch.equal(model.predict_proba(x).argmax(1), model.predict(x))
    model.save(tmp_path)
    assert torch.equal(Classifier.load(tmp_path).predict_proba(x), model.predict_proba(x))


@pytest.mark.parametrize("method", OWN_METHODS, ids=METHODS)
def test_a_silo_that_holds_nothing_out_is_no_empty_batch_to_a_model(method):
    parts = [Silo(*part, holdout=holdout) for part, holdout in zip(PARTS, (0.4, 0.0, 0.4), strict=True)]
    assert method.fit(parts).model.calibrated


@pytest.mark.parametrize("name", METHODS)
def test_without_held_out_samples_probabilities_are_not_calibrated(name):
    model = METHODS[name].fit(silos(0.0)).model
    assert not model.calibrated
    p = model.predict_proba(PARTS[0][0])
    assert p.sum(1) == pytest.approx(1)
    assert torch.equal(p.argmax(1), model.predict(PARTS[0][0]))


def test_a_held_out_sample_without_finite_scores_does_not_decide():
    parts, others = silos(0.4), silos(0.4)
    parts[0].held_x[0] = 3e38 * torch.tensor([1.0, -1.0, 1.0, -1.0])
    others[0].held_x, others[0].held_y = others[0].held_x[1:], others[0].held_y[1:]
    assert TRAIN.fit(parts).model.temperature == TRAIN.fit(others).model.temperature


def test_a_model_may_rule_classes_out():
    class Ruled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(4, 4)
            self.register_buffer("mask", torch.tensor([0.0, 0.0, 0.0, -torch.inf]))

        def forward(self, x):
            return self.head(x) + self.mask

    torch.manual_seed(0)
    train, other = FedAvg(Ruled(), rounds=3), silos(0.4)
    model = train.fit(silos(0.4)).model
    x = PARTS[0][0]
    assert model.calibrated
    assert torch.equal(model.predict_proba(x).argmax(1), model.predict(x))
    assert model.predict_proba(x)[:, 3].eq(0).all()
    other[0].held_y[0] = 3  # ruled out: its loss is infinite at every temperature
    assert train.fit(other).model.temperature == pytest.approx(model.temperature, rel=0.5)


def test_a_model_without_finite_scores_is_not_calibrated():
    with pytest.warns(UserWarning, match="diverged"):
        assert not FedAvg("mlp", rounds=2, lr=1e30).fit(silos(0.4)).model.calibrated


def test_numbers_have_no_probabilities():
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    model = FedAvg("linear", rounds=1).fit([Silo(x, x[:, 0], holdout=0.2)]).model
    with pytest.raises(FedtctError, match="it has no probabilities"):
        model.predict_proba(x)


@quick
@given(st.floats(-6, 4), st.floats(0.1, 9.0))
def test_the_vertex_is_found_between_the_temperatures_that_were_tried(log, width):
    losses = 1 + width * (TEMPERATURES.log() - log).square()
    assert best_temperature(losses, samples=10) == pytest.approx(float(torch.tensor(log).double().exp()), rel=1e-6)


@quick
@given(st.integers(1, 10**6), st.integers(2, 100), st.floats(0.01, 100))
def test_samples_that_are_all_told_rightly_do_not_make_sure(samples, classes, margin):
    others = (classes - 1) * torch.exp(-margin / TEMPERATURES)
    temperature = best_temperature(samples * others.log1p(), samples)
    sure = 1 / (1 + (classes - 1) * math.exp(-margin / temperature))
    assert sure == pytest.approx((samples + 1) / (samples + 2), rel=0.02)


def test_one_that_is_told_wrongly_decides_if_only_just():
    scores = torch.tensor([[5.0, 0.0]] * 100 + [[0.02, 0.0]]).double()
    y = torch.tensor([0] * 100 + [1])
    losses = torch.stack([F.cross_entropy(scores / t, y, reduction="sum") for t in TEMPERATURES])
    assert losses.min() < 1  # as little as if all were right
    assert best_temperature(losses, len(y)) == pytest.approx(float(TEMPERATURES[losses.argmin()]), rel=0.1)


def test_a_few_held_out_samples_that_are_all_right_leave_doubt():
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(200, 4, generator=draws)
    x[:, 0] += 8 * x[:, 0].sign()  # two classes, far apart
    fit = FedAvg("linear", rounds=5).fit([Silo(x, (x[:, 0] > 0).long(), holdout=0.1)])
    assert fit.history[-1].holdout_accuracy == 1
    assert fit.model.predict_proba(x).amax(1).log().mean().exp() == pytest.approx(21 / 22, abs=0.01)
