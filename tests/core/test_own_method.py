"""A method of the user's own: a subclass with a `round`, which must say what becomes of the weights."""

import pytest
from core_helpers import skewed_silos, tiny_net

from fedtct import FedAvg, FedtctError


class Forgetful(FedAvg):
    """FedAvg whose state lacks an entry."""

    lacks = "buffers"

    def round(self, federation, state, number):
        state, replies = super().round(federation, state, number)
        return {name: value for name, value in state.items() if name != self.lacks}, replies


class Unstarted(FedAvg):
    """A state of its own that the weights are not part of."""

    def start(self, weights):
        return {"momentum": weights.parameters}


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("name", ["parameters", "buffers"])
def test_a_round_without_weights_is_told_what_it_lacks(name, rounds, monkeypatch):
    """Not that they stay as they were: running statistics of no data would make a model that predicts nonsense."""
    monkeypatch.setattr(Forgetful, "lacks", name)
    with pytest.raises(FedtctError, match=f"Forgetful.round returns a state without '{name}'.*average"):
        Forgetful(tiny_net(norm=True), rounds=rounds).fit(skewed_silos())


def test_a_round_that_returns_its_state_alone_is_told(monkeypatch):
    monkeypatch.setattr(Forgetful, "round", lambda *args: FedAvg.round(*args)[0])
    with pytest.raises(FedtctError, match=r"Forgetful.round must return a pair: the new state and the replies"):
        Forgetful(tiny_net(norm=True), rounds=1).fit(skewed_silos())


def test_what_replies_do_not_hold_is_told_with_what_they_do(monkeypatch):
    monkeypatch.setattr(Forgetful, "round", lambda *args: ({}, FedAvg.round(*args)[1].values("params")))
    with pytest.raises(FedtctError, match=r"replies have no 'params': they have .*'n', .*'parameters', 'buffers'"):
        Forgetful(tiny_net(), rounds=1).fit(skewed_silos())


def test_a_start_without_weights_is_told_what_it_lacks():
    with pytest.raises(FedtctError, match=r"Unstarted.start returns a state without 'parameters'.*_asdict"):
        Unstarted(tiny_net(), rounds=1).fit(skewed_silos())
