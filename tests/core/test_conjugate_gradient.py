"""Conjugate gradients across silos, against the textbook's in one place."""

import itertools
from dataclasses import replace

import pytest
import torch
from core_helpers import CLASSES, deal, error, pooled, problem, quick, skewed_data, tct
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtct import ConjugateGradient, FedtctError, GradientDescent, LocalFederation, Replies, ScaffoldRegression, Silo
from fedtct.federation import Cost
from fedtct.least_squares import closed_form
from fedtct.least_squares.closed_form import SeriesRegression, largest_alone
from fedtct.stage2 import conjugate_gradient

X, Y = pooled(skewed_data(features=60))


def fit(stage2, silos):
    return tct("linear", stage2).fit(silos)


def losses(stage2, silos):
    return [row.train_loss for row in fit(stage2, silos).history if row.stage == "stage2"]


def textbook(z, y, steps):
    w, residual = torch.zeros(z.shape[1], CLASSES).double(), z.T @ y / len(z)
    direction = residual
    for _ in range(steps):
        curved = z.T @ (z @ direction) / len(z)
        squares = (residual**2).sum(0)
        far = squares / (direction * curved).sum(0)
        w, residual = w + far * direction, residual - far * curved
        direction = residual + (residual**2).sum(0) / squares * direction
    return w


@pytest.mark.parametrize("rounds", [2, 3, 6])
def test_rounds_are_those_of_the_textbook(rounds):
    """After one that tells the gradient."""
    parts = skewed_data(features=60)
    found = fit(ConjugateGradient(rounds=rounds), [Silo(*part) for part in parts]).model
    expected = textbook(*pooled(problem(found, parts)), rounds - 1)
    assert torch.allclose(found.linear.w.double(), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("stage2", [ConjugateGradient(rounds=6), GradientDescent(rounds=6)], ids=type)
def test_silos_of_many_samples_do_not_decompose_them(monkeypatch, stage2):
    silos = [Silo(*part) for part in skewed_data(features=60)]
    expected = fit(stage2, silos).model.linear.w
    monkeypatch.setattr(closed_form, "QUICK", 0)
    monkeypatch.setattr(torch.linalg, "eigh", None)  # it would fail
    assert torch.allclose(fit(stage2, silos).model.linear.w, expected, rtol=5e-3, atol=1e-4)


@settings(quick, max_examples=6)
@given(seed=st.integers(0, 999), silos=st.integers(1, 6))
def test_the_split_plays_no_part(seed, silos):
    expected = fit(ConjugateGradient(rounds=6), [Silo(X, Y)]).model.linear.w
    found = fit(ConjugateGradient(rounds=6), deal(X, Y, seed, silos)).model.linear.w
    assert torch.allclose(found, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("sizes", [(12, 12, 12), (25, 8, 3), (3,) * 8], ids=str)
def test_it_solves_the_pooled_problem_in_as_many_rounds_as_there_are_features(sizes):
    parts = skewed_data(sizes)
    assert error(ConjugateGradient(rounds=8), [Silo(*part) for part in parts], parts) < 1e-3


def test_of_many_solutions_it_finds_the_smallest_and_stays_there():
    parts = skewed_data((12, 6, 3), features=60)
    for rounds in (40, 200):
        assert (
            error(ConjugateGradient(rounds=rounds, evaluate_every=200), [Silo(*part) for part in parts], parts) < 1e-3
        )


def test_the_loss_never_rises_and_no_method_of_gradients_gets_as_far():
    silos = [Silo(*part) for part in skewed_data(features=60)]
    found = losses(ConjugateGradient(rounds=15), silos)
    assert all(later <= 1.0001 * before for before, later in itertools.pairwise(found))
    descent = losses(GradientDescent(rounds=15), silos)
    assert found[1] == pytest.approx(descent[1], rel=1e-4)  # a step of gradient descent
    assert all(own <= 1.0001 * other for own, other in zip(found[2:], descent[1:], strict=False))
    assert found[-1] < 0.1 * descent[-1]


def test_what_long_steps_tell_of_the_gradient_is_as_exact_as_a_silo_computes_it(monkeypatch):
    """Near a solution, where gradients are small; of a step that is safe little but rounding errors would be left."""
    draws = torch.Generator().manual_seed(0)
    z = torch.randn(300, 120, generator=draws) * torch.logspace(0, -3, 120)
    y = torch.randn(300, 3, generator=draws)
    silo = SeriesRegression(z, y, largest_alone(z, y))
    z, y, lr = z.double(), y.double(), 1 / silo.largest_eigenvalue
    near = 1.001 * torch.linalg.lstsq(z, y).solution.float()
    exact = -lr * z.T @ (z @ near.double() - y) / len(z)

    def wrong(stride):
        monkeypatch.setattr(conjugate_gradient, "STRIDE", stride)
        reply = {"n": 300, "w": silo.advance(silo.point(near), None, stride * lr, 1)[0]}
        return float((conjugate_gradient._downhill(Replies([reply], Cost()), near) - exact).norm())

    own, least, greatest = wrong(conjugate_gradient.STRIDE), wrong(2.0**30), wrong(1.0)
    assert own < 1.1 * least < 0.5 * greatest


class Leaving(LocalFederation):
    """Only its first silo, which is unlike the others, answers in some rounds."""

    begins_anew = True

    def __init__(self, silos, alone):
        super().__init__(silos, "cpu")
        self.alone, self.round = alone, -1

    def ask(self, question, message):
        replies = super().ask(question, message)
        self.round += question == "regress"
        if question != "regress" or self.round not in self.alone:
            return replies
        cost = replace(replies.cost, silos=replies.cost.silos[:1])
        return Replies(replies.messages[:1], cost, total=sum(map(len, self.silos)))


@pytest.mark.parametrize("alone", [{8, 9}, {3, 4}, {3, 4, 5, 6}, {1, 3, 5, 7}], ids=str)
def test_a_model_gets_no_worse_when_silos_leave(alone):
    """Where directions begin anew no step is taken that was safe for everybody alone."""
    draws = torch.Generator().manual_seed(0)
    x = [20 + 8 * torch.randn(20, 6, generator=draws), torch.randn(600, 6, generator=draws)]
    silos = [Silo(part, (part[:, 0] > part[:, 0].mean()).long()) for part in x]
    found = losses(ConjugateGradient(rounds=10), Leaving(silos, alone))
    together = {number for number in range(10) if number not in alone} | {10}  # all rate: rounds' ratings are of these
    rated = [found[number] for number in sorted(together)]
    assert all(later <= 1.05 * earlier for earlier, later in itertools.pairwise(rated))


def test_silos_are_sent_two_models_where_they_rate_and_one_where_not():
    silos = [Silo(*part) for part in skewed_data()]
    rated, unrated = (fit(ConjugateGradient(rounds=4, evaluate_every=n), silos) for n in (1, 4))
    assert torch.equal(rated.model.linear.w, unrated.model.linear.w)
    one, two = (fit.history[-2].bytes_down for fit in (unrated, rated))
    size = 4 * rated.model.linear.w.numel()
    assert two - one == pytest.approx(size, abs=20)
    scaffold = fit(ScaffoldRegression(rounds=4), silos)
    assert abs(scaffold.history[-2].bytes_down - one) < 40


def test_there_is_no_step_to_choose():
    with pytest.raises(TypeError):
        ConjugateGradient(lr=0.1)
    with pytest.raises(FedtctError, match="ConjugateGradient has no"):
        tct("linear", ConjugateGradient()).fit_grid([], [(0.001, 5)])
