"""SCAFFOLD with one model sent a round is SCAFFOLD with control variates sent."""

from dataclasses import replace

import pytest
import torch
from core_helpers import (
    LOCAL,
    Diary,
    assign,
    batches,
    convex_net,
    flat,
    inner,
    parameters_of,
    plain_sgd,
    pooled,
    pooled_optimum,
    skewed_data,
    skewed_silos,
    tct,
    tiny_net,
)

from fedtct import (
    FedAvg,
    FedAvgRegression,
    FedDyn,
    FedtctError,
    IterativeRegression,
    LocalFederation,
    Scaffold,
    ScaffoldRegression,
    Silo,
)
from fedtct.training import ScaffoldCorrection


def everybody(number):
    return (0, 1, 2)


def textbook_scaffold(model, parts, rounds, present=everybody):
    """Option II of Karimireddy et al. (2020) with a server step of one; ``present`` are the silos of a round.

    The server keeps and sends c, silos keep their c_k, those that are away too. Where silos take different numbers of
    steps, the server goes as far as their mean number of steps leads, along the mean of their mean steps; with equal
    steps and equal silos that is their plain average.
    """
    total = sum(len(y) for _, y in parts)
    x = flat(model)
    c, c_k = torch.zeros_like(x), [torch.zeros_like(x) for _ in parts]
    for number in range(rounds):
        here = present(number)
        part_of_all = sum(len(parts[k][1]) for k in here) / total
        change, mean_steps, step = torch.zeros_like(x), 0.0, torch.zeros_like(x)
        for k in here:
            share = len(parts[k][1]) / total / part_of_all
            order = batches(len(parts[k][1]), LOCAL["local_epochs"], LOCAL["batch_size"], LOCAL["seed"], number, k)
            drift = c - c_k[k]
            local, taken = plain_sgd(
                assign(model, x),
                parts[k],
                order,
                lr=LOCAL["lr"],
                weight_decay=LOCAL["weight_decay"],
                penalty=lambda module, drift=drift: inner(module, drift),
            )
            c_plus = c_k[k] - c + (x - flat(local)) / (taken * LOCAL["lr"])
            change += share * (c_plus - c_k[k])
            mean_steps += share * taken
            step += share * (flat(local) - x) / taken
            c_k[k] = c_plus
        c = c + part_of_all * change  # |S|/N times the mean change, if silos are of one size
        x = x + mean_steps * step
    return x


class Sampling(LocalFederation):
    """Asks some of its silos to train, and leaves the others alone."""

    def __init__(self, silos, present, tells_total=True):
        super().__init__(silos, "cpu")
        self.present, self.tells_total, self.rounds = present, tells_total, 0

    def ask(self, question, message):
        if question not in ("train", "regress"):
            return super().ask(question, message)
        everybody = self.silos
        self.silos, self.rounds = [everybody[k] for k in self.present(self.rounds)], self.rounds + 1
        try:
            replies = super().ask(question, message)
        finally:
            self.silos = everybody
        return replace(replies, total=sum(map(len, everybody)) if self.tells_total else None)


@pytest.mark.parametrize("sizes", [(12, 12, 12), (16, 14, 10), (20, 10, 5)], ids=["equal", "equal steps", "unequal"])
@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_one_model_a_round_equals_the_textbook(sizes, rounds):
    parts, model = skewed_data(sizes), tiny_net()
    found = Scaffold(model, rounds=rounds, **LOCAL).fit([Silo(*part) for part in parts])
    assert torch.allclose(parameters_of(found), textbook_scaffold(model, parts, rounds), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("sizes", [(12, 12, 12), (20, 10, 5)], ids=["equal", "unequal"])
@pytest.mark.parametrize(
    "rounds",
    [
        [(0, 1), (1, 2), (0, 2), (0, 1), (1, 2)],
        [(0, 1, 2), (0, 1), (0, 1, 2), (0, 1, 2), (2,), (0, 1, 2)],
        [(0,), (0,), (1,), (2,), (0, 1, 2), (0, 2)],
    ],
    ids=["pairs", "now and then", "one by one"],
)
def test_silos_that_are_asked_in_some_rounds_alone_equal_the_textbook(rounds, sizes):
    """Those that were away keep their c_k, and c moves by the part of all samples that took part."""
    parts, model = skewed_data(sizes), tiny_net()
    federation = Sampling([Silo(*part) for part in parts], rounds.__getitem__)
    found = Scaffold(model, rounds=len(rounds), **LOCAL).fit(federation)
    expected = textbook_scaffold(model, parts, len(rounds), rounds.__getitem__)
    assert torch.allclose(parameters_of(found), expected, rtol=1e-9, atol=1e-11)


def test_the_mean_gradient_is_sent_only_after_a_round_that_somebody_missed():
    rounds = [(0, 1, 2), (0, 1), (0, 1, 2), (0, 1, 2)]
    model = tiny_net()
    history = Scaffold(model, rounds=4, **LOCAL).fit(Sampling(skewed_silos(), rounds.__getitem__)).history
    extra = [row.bytes_down - history[1].bytes_down for row in history[1:]]
    assert extra == [0, 0, 8 * len(flat(model)), 0]


@pytest.mark.parametrize("method", [Scaffold, FedDyn])
def test_a_federation_that_samples_must_tell_of_how_many(method):
    federation = Sampling(skewed_silos(), lambda number: (0, 1), tells_total=False)
    with pytest.raises(FedtctError, match=r"2 of 3 silos replied.*must give Replies the total"):
        method(tiny_net(), rounds=2, **LOCAL).fit(federation)
    FedAvg(tiny_net(), rounds=2, **LOCAL).fit(federation)


class Corrected(IterativeRegression):
    correction = "scaffold"


@pytest.mark.parametrize("kind", [ScaffoldRegression, Corrected])
def test_stage_two_with_corrections_needs_everybody(kind):
    federation = Sampling(skewed_silos(), lambda number: (0, 1))
    with pytest.raises(FedtctError, match=f"{kind.__name__} needs every silo in every round, but only 2 of 3 replied"):
        tct("mlp", kind(rounds=3, lr="auto"), p=30).fit(federation)
    tct("mlp", FedAvgRegression(rounds=3, lr="auto"), p=30).fit(federation)


def test_weighted_corrections_sum_to_zero_every_round():
    """h_k = c_k − c of unequal silos, as each will compute it from the next model it is sent."""
    corrections = []

    class Watch(Diary):
        def save(self, stage, checkpoint):
            if not checkpoint.finished:
                state = checkpoint.state
                correction = ScaffoldCorrection(LOCAL["lr"], state["server_steps"])
                memories = [dict(silo.memory["stage1"]) for silo in federation.silos]
                corrections.append([-correction.before(memory, state["parameters"]) for memory in memories])

    federation = LocalFederation(skewed_silos())
    Scaffold(tiny_net(), rounds=6, **LOCAL).fit(federation, journal=Watch())
    assert len(corrections) == 6
    total = sum(map(len, federation.silos))
    for h in corrections:
        weighted = sum(len(silo) / total * h_k for silo, h_k in zip(federation.silos, h, strict=True))
        assert min(h_k.norm() for h_k in h) > 1e-2
        assert weighted.norm() < 1e-12


def test_silos_that_take_different_numbers_of_steps_find_the_pooled_optimum():
    """Each silo holds copies of one sample, so that batches are all alike and there is no noise."""
    points, weight_decay = skewed_data((1,) * 6), 0.1
    parts = [(x.repeat(n, 1), y.repeat(n)) for (x, y), n in zip(points, (8, 8, 8, 16, 24, 40), strict=True)]
    settings = {"local_epochs": 1, "batch_size": 8, "lr": 0.2, "weight_decay": weight_decay}
    optimum = pooled_optimum(convex_net(), pooled(parts), weight_decay)

    def error(method, rounds):
        silos = [Silo(*part) for part in parts]
        found = method(convex_net(), rounds=rounds, evaluate_every=rounds, **settings).fit(silos)
        return float((parameters_of(found) - optimum).norm() / optimum.norm())

    assert error(Scaffold, 250) < 1e-6
    assert error(FedAvg, 250) > 1e-2
