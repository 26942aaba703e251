"""SCAFFOLD with one model sent a round is SCAFFOLD with control variates sent."""

import pytest
import torch
from core_helpers import (
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
    tiny_net,
)

from fedtct import FedAvg, LocalFederation, Scaffold, Silo
from fedtct.training import ScaffoldCorrection

LOCAL = {"local_epochs": 2, "batch_size": 8, "lr": 0.2, "weight_decay": 0.01, "seed": 3}


def textbook_scaffold(model, parts, rounds):
    """Option II of Karimireddy et al. (2020), every silo taking part and a server step of one.

    The server keeps and sends c, silos keep their c_k. Where silos take different numbers of steps, the server goes as
    far as their mean number of steps leads, along the mean of their mean steps; with equal steps and equal silos
    that is their plain average.
    """
    shares = [len(y) / sum(len(y) for _, y in parts) for _, y in parts]
    x = flat(model)
    c, c_k = torch.zeros_like(x), [torch.zeros_like(x) for _ in parts]
    for number in range(rounds):
        y, steps, c_plus = [], [], []
        for k, part in enumerate(parts):
            order = batches(len(part[1]), LOCAL["local_epochs"], LOCAL["batch_size"], LOCAL["seed"], number, k)
            drift = c - c_k[k]
            local, taken = plain_sgd(
                assign(model, x),
                part,
                order,
                lr=LOCAL["lr"],
                weight_decay=LOCAL["weight_decay"],
                penalty=lambda module, drift=drift: inner(module, drift),
            )
            y.append(flat(local))
            steps.append(taken)
            c_plus.append(c_k[k] - c + (x - y[k]) / (taken * LOCAL["lr"]))
        mean_steps = sum(share * taken for share, taken in zip(shares, steps, strict=True))
        c = c + sum(share * (new - old) for share, new, old in zip(shares, c_plus, c_k, strict=True))
        x = x + mean_steps * sum(share * (y_k - x) / m for share, y_k, m in zip(shares, y, steps, strict=True))
        c_k = c_plus
    return x


@pytest.mark.parametrize("sizes", [(12, 12, 12), (16, 14, 10), (20, 10, 5)], ids=["equal", "equal steps", "unequal"])
@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_one_model_a_round_equals_the_textbook(sizes, rounds):
    parts, model = skewed_data(sizes), tiny_net()
    found = Scaffold(model, rounds=rounds, **LOCAL).fit([Silo(*part) for part in parts])
    assert torch.allclose(parameters_of(found), textbook_scaffold(model, parts, rounds), rtol=1e-9, atol=1e-11)


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
