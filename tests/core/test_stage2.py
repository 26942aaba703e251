"""Stage 2 by rounds: where it converges, how it steps, and which step sizes it refuses."""

import re
import warnings
from dataclasses import dataclass, replace

import pytest
import torch
from core_helpers import (
    CLASSES,
    Diary,
    deal,
    error,
    explicit_steps,
    pooled,
    problem,
    quick,
    skewed_data,
    skewed_silos,
    tct,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtct import (
    TCT,
    FedAvg,
    FedAvgRegression,
    FedtctError,
    GradientDescent,
    IterativeRegression,
    LocalFederation,
    Ridge,
    ScaffoldRegression,
    Silo,
    TangentFeatures,
)
from fedtct.stage2 import grid
from fedtct.stage2.convexify import convexify
from fedtct.stage2.iterative import StepLimits
from fedtct.tasks import NUMBERED
from fedtct.training import ScaffoldCorrection

targets = NUMBERED.targets

ITERATIVE = [ScaffoldRegression, FedAvgRegression, GradientDescent]


def test_targets_are_one_hot_less_their_mean():
    expected = torch.tensor([[0.75, -0.25, -0.25, -0.25], [-0.25, -0.25, 0.75, -0.25]])
    assert torch.equal(targets(torch.tensor([0, 2]), 4), expected)


@pytest.mark.parametrize("sizes", [(12, 12, 12), (25, 8, 3), (3,) * 8], ids=str)
def test_scaffold_converges_to_the_pooled_solution_and_fedavg_does_not(sizes):
    """In silos of more samples than features, of fewer, and of both."""
    parts, settings = skewed_data(sizes), {"rounds": 300, "steps": 20, "lr": "auto", "evaluate_every": 300}
    silos = [Silo(*part) for part in parts]
    assert error(ScaffoldRegression(**settings), silos, parts) < 1e-4
    assert error(FedAvgRegression(**settings), silos, parts) > 3e-2


def test_of_many_solutions_scaffold_finds_the_smallest():
    """More features than samples: every solution fits all silos, and descent from zero ends in one of them."""
    parts = skewed_data((12, 6, 3), features=60)
    stage2 = ScaffoldRegression(rounds=300, steps=20, lr="auto", evaluate_every=300)
    assert error(stage2, [Silo(*part) for part in parts], parts) < 1e-3


@settings(quick, max_examples=6)
@given(seed=st.integers(0, 999), silos=st.integers(1, 6))
def test_scaffold_converges_whatever_the_split(seed, silos):
    x, y = pooled(skewed_data())
    stage2 = ScaffoldRegression(rounds=300, steps=20, lr="auto", evaluate_every=300)
    assert error(stage2, deal(x, y, seed, silos), [(x, y)]) < 2e-3


@pytest.mark.parametrize("sizes", [(20, 10, 5), (3, 3, 3)], ids=["n>p", "n<p"])
def test_rounds_of_scaffold_are_those_of_the_paper(sizes):
    """Algorithm 1 of the paper, step by step, with the aggregation by samples of its footnote."""
    parts, steps, lr, rounds = skewed_data(sizes), 7, 0.05, 4
    stage2 = ScaffoldRegression(rounds=rounds, steps=steps, lr=lr)
    model = tct("linear", stage2).fit([Silo(*part) for part in parts]).model
    regression = problem(model, parts)
    shares = [len(y) / sum(sizes) for _, y in regression]
    w = torch.zeros_like(model.linear.w.double())
    h = [torch.zeros_like(w) for _ in parts]
    local = [w for _ in parts]
    for _ in range(rounds):
        h = [h_k + (w - w_k) / (steps * lr) for h_k, w_k in zip(h, local, strict=True)]
        local = [explicit_steps(z, y, w, -h_k, lr, steps) for (z, y), h_k in zip(regression, h, strict=True)]
        w = sum(share * w_k for share, w_k in zip(shares, local, strict=True))
    assert torch.allclose(model.linear.w.double(), w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", [ScaffoldRegression, FedAvgRegression])
def test_equal_silos_take_plain_gradient_descent_steps(method):
    part = skewed_data((12,))[0]
    steps, rounds, lr = 6, 5, 0.1
    model = tct("linear", method(rounds=rounds, steps=steps, lr=lr)).fit([Silo(*part) for _ in range(3)]).model
    z, y = problem(model, [part])[0]
    expected = explicit_steps(z, y, torch.zeros(z.shape[1], CLASSES).double(), None, lr, rounds * steps)
    assert torch.allclose(model.linear.w.double(), expected, rtol=1e-4, atol=1e-5)


def test_gradient_descent_steps_on_the_pooled_loss():
    parts, rounds, lr = skewed_data(), 8, 0.1
    silos = [Silo(*part) for part in parts]
    descent = tct("linear", GradientDescent(rounds=rounds, lr=lr)).fit(silos).model
    averaging = tct("linear", FedAvgRegression(rounds=rounds, steps=1, lr=lr)).fit(silos).model
    z, y = pooled(problem(descent, parts))
    expected = explicit_steps(z, y, torch.zeros(z.shape[1], CLASSES).double(), None, lr, rounds)
    assert torch.equal(descent.linear.w, averaging.linear.w)
    assert torch.allclose(descent.linear.w.double(), expected, rtol=1e-4, atol=1e-6)


def test_weighted_corrections_sum_to_zero_every_round():
    class Watch(Diary):
        def save(self, stage, checkpoint):
            super().save(stage, checkpoint)
            if stage == "stage2" and not checkpoint.finished:
                corrections.append(self.corrections(checkpoint))

        def corrections(self, checkpoint):
            w, found = checkpoint.state["w"], []
            for silo in federation.silos:
                memory, regression = dict(silo.memory["stage2"]), silo.regression()
                found.append(ScaffoldCorrection(lr, steps).before(memory, regression.point(w))[: len(w)])
            return torch.stack(found)

    corrections, lr, steps = [], 0.05, 9
    federation = LocalFederation(skewed_silos())
    tct("linear", ScaffoldRegression(rounds=5, steps=steps, lr=lr)).fit(federation, journal=Watch())
    assert len(corrections) == 5
    shares = torch.tensor([len(silo) for silo in federation.silos]) / sum(map(len, federation.silos))
    for terms in corrections:
        assert terms.norm() > 0.1
        assert torch.einsum("k,kpc->pc", shares, terms).norm() < 1e-5 * terms.norm()


@pytest.mark.parametrize("method", ITERATIVE)
def test_a_diverging_step_size_is_refused_and_one_that_works_named(method):
    """For gradient descent it need not be the largest, and no silo alone decides."""
    told = r"diverges with lr=50, as with any lr from [\d.e+-]+ on\. lr=([\d.e+-]+), which lr='auto' uses, is safe"
    with pytest.raises(FedtctError, match=told) as error:
        tct("linear", method(rounds=1, lr=50.0)).fit(skewed_silos())
    named = float(re.search(told, str(error.value))[1])
    options = {} if method is GradientDescent else {"steps": 25}
    history = tct("linear", method(rounds=300, lr=named, **options)).fit(skewed_silos()).history
    losses = [row.train_loss for row in history if row.stage == "stage2"]
    assert max(losses[1:]) < 0.8 * losses[0]
    assert losses[-1] == pytest.approx(losses[-10], rel=1e-2)


def test_between_what_is_safe_and_what_diverges_one_is_warned():
    """Unlike silos: the pooled Hessian's largest eigenvalue lies somewhere between a part's and the sum of parts'."""
    limits = StepLimits(diverges_from=4.0, safe=0.95)
    with pytest.warns(UserWarning, match=r"may diverge with lr=2: 0\.95\d*, which lr='auto' uses, is safe"):
        assert limits.check(2.0) == 2.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert limits.check(0.99) == 0.99
        assert limits.check("auto") == 0.95


def test_the_limit_is_two_over_the_largest_eigenvalue_of_any_silo_and_auto_takes_95_percent_of_it():
    parts = skewed_data((20, 10, 5))
    silos = [Silo(*part) for part in parts]
    model = tct("linear", ScaffoldRegression(rounds=1, lr="auto")).fit(silos).model
    limit = min(2 / torch.linalg.eigvalsh(z.T @ z / len(z))[-1].item() for z, _ in problem(model, parts))
    with pytest.raises(FedtctError, match="diverges"):
        tct("linear", ScaffoldRegression(rounds=1, lr=1.001 * limit)).fit(silos)
    tct("linear", ScaffoldRegression(rounds=1, lr=0.999 * limit)).fit(silos)
    chosen, given = (
        tct("linear", ScaffoldRegression(rounds=1, steps=1, lr=lr)).fit(silos) for lr in ("auto", 0.95 * limit)
    )
    assert torch.allclose(chosen.model.linear.w, given.model.linear.w, rtol=1e-4, atol=1e-7)


def test_gradient_descent_is_only_warned_of_steps_that_the_pooled_loss_bears():
    parts = skewed_data((20, 10, 5))
    silos = [Silo(*part) for part in parts]
    z, _ = pooled(problem(tct("linear", GradientDescent(rounds=1)).fit(silos).model, parts))
    limit = 2 / torch.linalg.eigvalsh(z.T @ z / len(z))[-1].item()
    with pytest.warns(UserWarning, match="may diverge"):
        tct("linear", GradientDescent(rounds=1, lr=0.999 * limit)).fit(silos)


@pytest.mark.parametrize("method", ITERATIVE)
def test_automatic_step_size_learns(method):
    history = tct("linear", method(rounds=40, lr="auto")).fit(skewed_silos()).history
    assert history[-1].train_accuracy > 0.6
    assert history[-1].train_loss < 0.8 * history[-41].train_loss


@pytest.mark.parametrize("options", [{"rounds": 0}, {"steps": 0}, {"lr": 0.0}, {"lr": -1.0}, {"evaluate_every": 0}])
def test_settings_that_cannot_work(options):
    with pytest.raises(FedtctError, match=r"at least 1|must be positive"):
        ScaffoldRegression(**options)


@pytest.mark.parametrize(
    ("p", "spans"), [(300, True), (300, False), (10, False)], ids=["span", "columns", "few features"]
)
@pytest.mark.parametrize("method", [ScaffoldRegression, FedAvgRegression])
def test_a_grid_is_its_cells_one_by_one(method, p, spans, monkeypatch):
    stage1, cells = FedAvg("mlp", rounds=1, local_epochs=1), [(0.001, 5), (0.003, 20), (0.001, 20)]
    if spans:
        session = stage1.open(skewed_silos())
        convexify(session, TangentFeatures(p=p).recipe(stage1.run(session)))
        assert grid.span_pays([silo.regression() for silo in session.federation.silos], columns=1000)
    monkeypatch.setattr(grid, "span_pays", lambda *_, **__: spans)
    method = TCT("mlp", stage1, TangentFeatures(p=p), method(rounds=4))
    for (lr, steps), found in zip(cells, method.fit_grid(skewed_silos(), cells), strict=True):
        expected = replace(method, stage2=replace(method.stage2, lr=lr, steps=steps)).fit(skewed_silos()).model.linear
        assert (found.linear.w - expected.w).norm() <= 1e-5 * expected.w.norm()
    with pytest.raises(FedtctError, match="stage 2 diverges with lr=10"):
        method.fit_grid(skewed_silos(), [(0.001, 5), (10.0, 5)])


@pytest.mark.parametrize("sizes", [(12,), (1, 1, 1), (20, 1, 5)])
def test_a_grid_of_one_silo_or_of_single_samples(sizes):
    silos, method = [Silo(*part) for part in skewed_data(sizes)], tct("mlp", ScaffoldRegression(rounds=3), p=300)
    (found,) = method.fit_grid(silos, [(0.001, 5)])
    expected = replace(method, stage2=replace(method.stage2, lr=0.001, steps=5)).fit(silos).model.linear
    assert (found.linear.w - expected.w).norm() <= 1e-5 * expected.w.norm()


@dataclass(frozen=True, kw_only=True)
class Halfway(ScaffoldRegression):
    """A method of one's own: the model goes half as far."""

    def round(self, federation, state, number, lr):
        after, replies = super().round(federation, state, number, lr)
        return {"w": (state["w"] + after["w"]) / 2}, replies


@dataclass(frozen=True, kw_only=True)
class Elsewhere(ScaffoldRegression):
    """Another: steps begin half-way to the origin."""

    def question(self, state, number, lr, *, start=None):
        return super().question(state, number, lr, start=state["w"] / 2)


class Corrected(IterativeRegression):
    """SCAFFOLD, by what it says that silos do alone."""

    correction = "scaffold"


def test_a_correction_is_exact_whoever_wrote_it():
    assert Corrected.exact
    assert not FedAvgRegression.exact
    mine, theirs = (tct("mlp", kind(rounds=3), p=300).fit(skewed_silos()) for kind in (Corrected, ScaffoldRegression))
    assert torch.equal(mine.model.linear.w, theirs.model.linear.w)


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (({}, None), r"Halfway.round returns a state without 'w': it needs replies.average\('w'\), say"),
        ({"w": 0}, "Halfway.round must return a pair: the new state and the replies"),
    ],
)
def test_a_round_of_ones_own_is_told_what_it_lacks(returned, told, monkeypatch):
    monkeypatch.setattr(Halfway, "round", lambda *args: returned)
    with pytest.raises(FedtctError, match=told):
        tct("mlp", Halfway(rounds=1), p=300).fit(skewed_silos())


def test_a_correction_that_silos_do_not_know_is_refused():
    class Misspelt(ScaffoldRegression):
        correction = "scafold"

    with pytest.raises(FedtctError, match=r"stage 2 has no correction 'scafold'\. Known: none, scaffold"):
        Misspelt()


@pytest.mark.parametrize("kind", [Halfway, Elsewhere])
def test_a_grid_of_a_method_of_ones_own_is_its_cells_one_by_one(kind):
    method = tct("mlp", kind(rounds=3), p=300)
    (found,) = method.fit_grid(skewed_silos(), [(0.001, 5)])
    expected = replace(method, stage2=replace(method.stage2, lr=0.001, steps=5)).fit(skewed_silos()).model.linear
    assert torch.equal(found.linear.w, expected.w)


@pytest.mark.parametrize(
    ("method", "cells", "message"),
    [
        (Ridge(), [(0.001, 5)], r"Ridge has no \(lr, steps\) to try"),
        (GradientDescent(), [(0.001, 5)], r"GradientDescent has no \(lr, steps\) to try"),
        (ScaffoldRegression(), [(0.001, 5), (-1.0, 5)], "must be positive"),
        (ScaffoldRegression(), [(0.001, 0)], "at least 1"),
        (ScaffoldRegression(patience=2), [(0.001, 5)], "leave patience out"),
        (ScaffoldRegression(), [], "nothing to try"),
    ],
)
def test_a_grid_that_cannot_be_is_refused_before_any_work(method, cells, message):
    with pytest.raises(FedtctError, match=message):
        TCT("mlp", stage2=method).fit_grid([], cells)
