"""What nobody trains is told once: rounds carry the rest alone, and the model is the same."""

import warnings
from dataclasses import replace

import pytest
import torch
from core_helpers import LOCAL, parameters_of, quick, skewed_silos, tiny_net
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedtct import (
    TCT,
    Centralized,
    FedAdam,
    FedAvg,
    FedDyn,
    FedProx,
    FedtctError,
    LocalFederation,
    Ridge,
    Scaffold,
    TangentFeatures,
)
from fedtct.federation.local import content_bytes
from fedtct.models import InputSpec, Network
from fedtct.training import Frozen, split_trained

METHODS = [FedAvg, FedProx, FedDyn, FedAdam, Scaffold]
SETTINGS = 400  # bytes that a round's settings and scores take at most


def half_frozen_net(*, norm: bool = True) -> nn.Module:
    """Frozen by whoever made it: the first layer's parameters, but not the statistics after it."""
    model = tiny_net(norm=norm)
    model[0].requires_grad_(False)
    return model


def network_of(model: nn.Module) -> Network:
    return Network(model, "3", InputSpec((4,), torch.float32))


@quick
@given(trainable=st.sampled_from(["last-layer", "last:1", "last:2"]), seed=st.integers(0, 100))
def test_the_parts_make_the_whole(trainable, seed):
    network = network_of(tiny_net(norm=True, seed=seed))
    weights = network.weights()
    part, message = split_trained(network, trainable, weights)
    frozen = Frozen.told(network, message)
    assert all(torch.equal(one, other) for one, other in zip(frozen.whole(part), weights, strict=True))
    assert all(torch.equal(one, other) for one, other in zip(frozen.part(weights), part, strict=True))
    assert sum(map(len, part)) + sum(map(len, frozen.rest)) == sum(map(len, weights))
    term = frozen.spread(torch.ones_like(part.parameters))
    assert int(term.sum()) == len(part.parameters)


def test_if_all_is_trained_nothing_is_told():
    network = network_of(tiny_net(norm=True))
    part, message = split_trained(network, "all", network.weights())
    assert message == {}
    assert Frozen.told(network, message).whole(part) is part


class Overheard(LocalFederation):
    """Keeps what is asked, and how many bytes travelled."""

    def __init__(self, silos):
        super().__init__(silos, "cpu")
        self.asked, self.travelled = [], 0

    def ask(self, question, message):
        replies = super().ask(question, message)
        self.asked.append(question)
        if question in ("freeze", "train"):
            up = sum(map(content_bytes, replies.messages)) // len(replies.messages)
            self.travelled += content_bytes(message) + up
        return replies


@pytest.mark.parametrize("method", [FedAvg, FedProx, FedAdam, Scaffold])  # FedDyn sends more where it is rated
@pytest.mark.parametrize(
    ("model", "trainable", "numbers"),
    [
        (tiny_net(norm=True), "last-layer", 21),
        (tiny_net(norm=True), "last:2", 12 + 12 + 21),
        (half_frozen_net(), "all", 12 + 12 + 21),
        (tiny_net(norm=True), "all", 30 + 12 + 12 + 21),
    ],
    ids=["last layer", "last two", "frozen by its maker", "all"],
)
def test_rounds_carry_what_is_trained_alone_and_the_rest_travels_once(method, model, trainable, numbers):
    federation = Overheard(skewed_silos())
    history = method(model, rounds=3, trainable=trainable, **LOCAL).fit(federation).history
    rest = 30 + 12 + 12 + 21 - numbers
    for row in history[1:]:
        once = 8 * rest if row.round == 1 else 0
        assert 8 * numbers + once <= row.bytes_down <= 8 * numbers + once + SETTINGS
        assert 8 * numbers <= row.bytes_up <= 8 * numbers + SETTINGS
    assert federation.asked == ["describe", *["freeze"] * bool(rest), "train", "train", "train", "evaluate"]
    assert history.total_bytes == federation.travelled


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("trainable", ["last-layer", "last:2"])
def test_the_model_is_that_of_rounds_which_carry_everything(method, trainable):
    """A question that does not say that something is frozen brings all weights, and so does its reply."""
    how = method(tiny_net(norm=True), rounds=3, trainable=trainable, **LOCAL)
    found = how.fit(skewed_silos())
    federation = LocalFederation(skewed_silos(), "cpu")
    session = how.open(federation)
    state = how.start(session.network.weights())
    for number in range(3):
        state, _ = how.round(federation, state, number)
    assert torch.allclose(parameters_of(found), state["parameters"], rtol=1e-10, atol=1e-12)
    assert torch.allclose(found.model.network.weights().buffers, state["buffers"], rtol=1e-10, atol=1e-12)


def test_a_bound_sends_nothing():
    fit = Centralized(tiny_net(norm=True), rounds=2, trainable="last-layer", **LOCAL).fit(skewed_silos())
    assert fit.history.total_bytes == 0


def test_a_silo_that_was_not_told_says_so():
    how = FedAvg(tiny_net(), trainable="last-layer", **LOCAL)
    federation = LocalFederation(skewed_silos(), "cpu")
    network = how.open(federation).network
    part, message = split_trained(network, "last-layer", network.weights())
    question = how.question(part._asdict() | {"frozen": message}, 0)
    with pytest.raises(FedtctError, match="silo 0 does not have the weights that are not trained"):
        federation.ask("train", question)
    federation.ask("freeze", message | {"parameters": message["parameters"] + 1})
    with pytest.raises(FedtctError, match="silo 0 does not have the weights that are not trained"):
        federation.ask("train", question)
    federation.ask("freeze", message)
    federation.ask("train", question)


@pytest.mark.parametrize(
    ("model", "trainable", "expected"),
    [
        (tiny_net(norm=True), "all", False),
        (tiny_net(norm=True), "last:2", False),
        (tiny_net(norm=True), "last-layer", True),
        (half_frozen_net(), "all", False),
        (half_frozen_net(norm=False), "all", True),
    ],
)
def test_stage_1_of_tct_that_changes_no_features_is_warned_of(model, trainable, expected):
    """Its model is then that of no rounds at all."""
    tct = TCT(model, FedAvg(rounds=2, trainable=trainable, local_epochs=1), TangentFeatures(p=20), Ridge(d=20))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = tct.fit(skewed_silos()).model
    assert any("head alone" in str(warning.message) for warning in said) == expected
    untrained = replace(tct, stage1=replace(tct.stage1, rounds=0)).fit(skewed_silos()).model
    assert torch.equal(found.linear.w, untrained.linear.w) == expected
