"""Where only some silos train in a round, drawn for it: by every rule's own account of who is away."""

import pytest
import torch
from core_helpers import parameters_of, skewed_data, skewed_silos, tct, tiny_net
from test_scaffold import LOCAL, textbook_scaffold

from fedtct import FedAdam, FedAvg, FedDyn, FedProx, FedtctError, Journal, LocalFederation, Ridge, Scaffold, Silo

METHODS = (FedAvg, FedProx, Scaffold, FedDyn, FedAdam)
SIZES = (20, 10, 5)


def sampled(per_round=2, **more):
    return LocalFederation([Silo(*part) for part in skewed_data(SIZES)], "cpu", per_round=per_round, **more)


def who_trained(history):
    """The places of the silos that each round was of."""
    return [tuple(int(name.removeprefix("silo ")) for name in row.silos) for row in history[1:]]


def test_scaffold_is_the_textbooks_with_the_silos_that_were_drawn():
    model = tiny_net()
    fit = Scaffold(model, rounds=6, **LOCAL).fit(sampled())
    rounds = who_trained(fit.history)
    assert {len(places) for places in rounds} == {2}
    assert len(set(rounds)) > 1  # others in other rounds
    expected = textbook_scaffold(model, skewed_data(SIZES), len(rounds), rounds.__getitem__)
    assert torch.allclose(parameters_of(fit), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("method", METHODS)
def test_drawing_all_of_them_is_asking_everybody(method):
    some, all_of_them = (
        method(tiny_net(), rounds=2, **LOCAL).fit(federation) for federation in (sampled(3), sampled(None))
    )
    assert torch.equal(parameters_of(some), parameters_of(all_of_them))


@pytest.mark.parametrize("trainable", ["all", "last-layer"])  # in the second silos are told what is frozen besides
def test_bytes_are_those_of_the_mean_of_all_silos_whoever_was_drawn(trainable):
    for row in FedAvg(tiny_net(), rounds=4, trainable=trainable, **LOCAL).fit(sampled()).history:
        ways = ((row.bytes_down, row.silo_bytes_down), (row.bytes_up, row.silo_bytes_up))
        assert all(mean == pytest.approx(sum(each) / len(SIZES), abs=2) for mean, each in ways)


class Stopping(Journal):
    """Stops a fit after some rounds; whoever opens it again goes on."""

    def __init__(self, after):
        super().__init__()
        self.after, self.kept = after, {}

    def save(self, stage, checkpoint):
        self.kept[stage] = checkpoint
        if checkpoint.round == self.after:
            self.after = -1
            raise InterruptedError

    def restore(self, stage):
        return self.kept.get(stage)


@pytest.mark.parametrize("method", METHODS)
def test_a_fit_that_goes_on_draws_what_an_undisturbed_one_does(method):
    stage1, journal = method(tiny_net(), rounds=5, **LOCAL), Stopping(after=2)

    def rounds():
        return stage1.run(stage1.open(sampled(), journal=journal)).parameters

    with pytest.raises(InterruptedError):
        rounds()
    assert torch.equal(rounds(), parameters_of(stage1.fit(sampled())))


def test_stage_two_asks_everybody():
    history = tct("mlp", Ridge(d=50), stage1=FedAvg(rounds=3, local_epochs=1)).fit(sampled()).history
    took_part = {
        stage: {len(row.silos) for row in history if row.stage == stage and row.silos} for stage in ("stage1", "stage2")
    }
    assert took_part == {"stage1": {2}, "stage2": {3}}


@pytest.mark.parametrize(("wrong", "told"), [(0, "at least 1"), (4, "per_round is 4, but there are 3 silos")])
def test_a_number_that_cannot_be_is_refused(wrong, told):
    with pytest.raises(FedtctError, match=told):
        LocalFederation(skewed_silos(), per_round=wrong)
