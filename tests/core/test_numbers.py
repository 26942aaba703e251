"""Numbers as what is to be learnt: targets of any unit, by both stages."""

import math

import pytest
import torch
from core_helpers import parameters_of, quick, tct
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score
from torch import nn

from fedtct import Classifier, FedAvg, FedtctError, Ridge, ScaffoldRegression, Silo
from fedtct.federation import Cost
from fedtct.history import Row
from fedtct.stage2.ridge import STRENGTHS
from fedtct.tasks import Regression

TRAIN = {"rounds": 2, "local_epochs": 2, "batch_size": 8}


def numbers(n=120, seed=0, offset=1000.0):
    draws = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 5, generator=draws)
    return x, offset + 20 * (x[:, 0] - 2 * x[:, 1]).double() + torch.randn(n, generator=draws)


@pytest.mark.parametrize("stage2", [Ridge(d=500), ScaffoldRegression(rounds=5, steps=100, lr="auto")])
def test_numbers_are_learnt_by_both_stages(stage2, tmp_path):
    x, y = numbers()
    fit = tct("mlp", stage2, stage1=FedAvg(**TRAIN), p=500).fit(
        [(x[:70], y[:70]), (x[70:100], y[70:100])], test=(x[100:], y[100:])
    )
    last, predicted = fit.history[-1], fit.model.predict(x[100:])
    assert last.test_r2 == pytest.approx(r2_score(y[100:], predicted), rel=1e-4)
    assert last.test_rmse == pytest.approx(float((predicted - y[100:]).square().mean().sqrt()), rel=1e-4)
    assert last.test_r2 > 0.8
    assert fit.model.score(x[100:], y[100:]) == pytest.approx(last.test_r2, rel=1e-6)
    assert last.worst_silo_r2 == min(last.silo_r2s)
    assert last.test_accuracy is None
    table = fit.history.to_pandas()
    assert {"test_r2", "test_rmse", "train_loss"} <= set(table)
    assert "test_accuracy" not in table
    fit.model.save(tmp_path)
    assert torch.equal(Classifier.load(tmp_path).predict(x), fit.model.predict(x))
    with pytest.raises(FedtctError, match="it has no classes"):
        fit.model.classes  # noqa: B018


def test_stage_two_of_a_linear_model_is_least_squares():
    x, y = numbers(60)
    model = (
        tct(lambda shape, outputs: nn.Linear(shape[0], outputs), Ridge(d=6, ridge=1e-9))
        .fit([(x[:20], y[:20]), (x[20:], y[20:])])
        .model
    )
    expected = LinearRegression().fit(x, y).predict(x)
    assert model.predict(x).numpy() == pytest.approx(expected, rel=1e-6)


@quick
@given(st.integers(0, 999), st.sampled_from([1.0, 1e-3, 1e6]), st.sampled_from([0.0, 1e4]))
def test_units_of_the_target_do_not_matter(seed, unit, offset):
    x, y = numbers(40, seed=seed, offset=0.0)
    fits = [FedAvg("linear", rounds=1).fit([(x[:25], z[:25]), (x[25:], z[25:])]) for z in (y, unit * (y + offset))]
    assert fits[1].history[-1].train_r2 == pytest.approx(fits[0].history[-1].train_r2, abs=1e-4)


def test_patience_and_ridge_choose_numbers_by_held_out_r2():
    x, y = numbers()
    silos = [Silo(x[:60], y[:60], holdout=0.3), Silo(x[60:], y[60:], holdout=0.3)]
    history = FedAvg("mlp", rounds=4, patience=1, local_epochs=1).fit(silos).history
    assert all(row.holdout_r2 is not None for row in history)

    def held_out_r2(ridge):
        return tct("mlp", Ridge(d=200, ridge=ridge), p=200).fit(silos).history[-1].holdout_r2

    ratings = [held_out_r2(strength) for strength in STRENGTHS]
    assert held_out_r2("holdout") == max(ratings) > max(ratings[0], ratings[-1])


@pytest.mark.parametrize(
    ("silos", "model", "message"),
    [
        (
            [numbers(20), (numbers(20)[0], torch.arange(20) % 2)],
            "mlp",
            "is numbers in silo 0 and labels in silo 1",
        ),
        ([(numbers(20)[0], torch.ones(20))], "mlp", "the target is 1 for every sample"),
        ([numbers(20)], nn.Linear(5, 3), "has 3 outputs, but a regression needs 1"),
    ],
)
def test_numbers_that_cannot_be_learnt(silos, model, message):
    with pytest.raises(FedtctError, match=message):
        FedAvg(model).fit(silos)


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_targets_that_are_all_at_the_agreed_mean_are_numbers_all_the_same(shift):
    task = Regression(mean=1000.0, std=20.0)
    score = task.score(torch.full((5, 1), 0.1), task.encode(torch.full((5,), 1000.0 + shift), 1, "it"))
    row = Row.of("stage1", 1, Cost(), task, None, score)
    assert row.regression
    assert row.test_accuracy is None
    assert math.isnan(row.test_r2)  # there is no variance to explain
    assert row.test_rmse == pytest.approx(2.0 - shift)


def test_patience_refuses_held_out_targets_that_do_not_vary():
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    silo = Silo(x, x[:, 0].double(), holdout=0.2)
    silo.held_y = torch.full_like(silo.held_y, 0.5)
    with pytest.raises(FedtctError, match="whose targets do not vary"):
        FedAvg("linear", rounds=3, patience=1).fit([silo])


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (2.0, -2.0, 2.0)], ids=["∞", "∞ − ∞"])
def test_patience_refuses_held_out_samples_that_a_model_has_no_number_for(weights):
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    silo = Silo(x, x[:, 0].double(), holdout=0.2)
    silo.held_x[0] = 3e38
    model = nn.Linear(3, 1)
    model.weight.data = torch.tensor([weights])
    with pytest.raises(FedtctError, match="so extreme that the model's error on them is not a number"):
        FedAvg(model, rounds=2, patience=1).fit([silo])


def test_patience_keeps_the_model_before_those_whose_error_is_no_number():
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    silo = Silo(x, x.sum(1).double(), holdout=0.2)
    silo.held_x[0] = 3e38
    model = nn.Linear(3, 1, bias=False)
    nn.init.zeros_(model.weight)  # of what is far off it says 0, once it has learnt anything no number
    fit = FedAvg(model, rounds=5, lr=0.5, patience=2).fit([silo])
    assert [math.isfinite(row.holdout_r2) for row in fit.history] == [True, False, False]
    assert not parameters_of(fit).any()
