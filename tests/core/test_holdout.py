"""What a silo holds out is never learnt from, and is what choices are made by."""

import pytest
import torch
from core_helpers import Diary, parameters_of, quick, skewed_data, tct
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from fedtct import FedAvg, FedDyn, FedtctError, Ridge, Scaffold, ScaffoldRegression, Silo

pytestmark = pytest.mark.filterwarnings("ignore:stage1 diverged")

SETTINGS = {"rounds": 3, "local_epochs": 1, "batch_size": 8}
TRAIN = FedAvg(**SETTINGS)

METHODS = {
    "FedAvg": FedAvg("mlp", **SETTINGS),
    "Scaffold": Scaffold("mlp", **SETTINGS),
    "FedDyn": FedDyn("mlp", **SETTINGS),
    "ScaffoldRegression": tct("mlp", ScaffoldRegression(rounds=3, lr="auto"), p=30, stage1=TRAIN),
    "Ridge": tct("mlp", Ridge(d=30), stage1=TRAIN),
}


def silos(change_held=None):
    result = [Silo(*part, holdout=0.4) for part in skewed_data((30, 20, 10))]
    for silo in result:
        if change_held:
            change_held(silo)
    return result


def other_labels(silo):
    silo.held_y = (silo.held_y + 1) % 3


def other_samples(silo):
    silo.held_x = 100 * silo.held_x.flip(0)


@pytest.mark.parametrize("change", [other_labels, other_samples])
@pytest.mark.parametrize("name", METHODS)
def test_held_out_samples_do_not_influence_the_model(name, change, tmp_path):
    fits = METHODS[name].fit(silos()), METHODS[name].fit(silos(change))
    for fit, folder in zip(fits, ("one", "other"), strict=True):
        fit.model.save(tmp_path / folder)
    one, other = (load_file(tmp_path / folder / "model.safetensors") for folder in ("one", "other"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)  # of the temperature they decide
    assert fits[0].history[-1].holdout_accuracy != fits[1].history[-1].holdout_accuracy


@quick
@given(n=st.integers(2, 60), share=st.floats(0, 0.9))
def test_every_sample_is_trained_on_or_held_out(n, share):
    x, y = torch.arange(n).unsqueeze(1), torch.arange(n)
    if round(share * n) == n:
        return
    silo = Silo(x, y, holdout=share)
    assert len(silo.held_y) == round(share * n)
    assert sorted([*silo.y.tolist(), *silo.held_y.tolist()]) == list(range(n))
    assert torch.equal(silo.x.squeeze(1), silo.y)
    assert torch.equal(silo.held_x.squeeze(1), silo.held_y)


@quick
@given(
    classes=st.integers(2, 6), each=st.integers(60, 90), share=st.floats(0.3, 0.7), together=st.sampled_from([0, 1, 2])
)
def test_samples_that_come_sorted_by_class_have_every_class_on_both_sides(classes, each, share, together):
    """Which needs a random draw, of samples as of groups."""
    y = torch.arange(classes).repeat_interleave(2 * each)
    groups = torch.arange(len(y)) // together if together else None
    silo = Silo(torch.zeros(len(y), 1), y, holdout=share, groups=groups)
    assert set(silo.y.tolist()) == set(silo.held_y.tolist()) == set(range(classes))


@quick
@given(n=st.integers(5, 60), share=st.floats(0.2, 0.7), seed=st.integers(0, 999))
def test_which_samples_are_held_out_depends_on_neither_values_nor_labels(n, share, seed):
    draws = torch.Generator().manual_seed(seed)
    place, x = torch.arange(n), torch.randn(n, 1, generator=draws)
    by_value = Silo(place.unsqueeze(1), torch.randint(3, (n,), generator=draws), holdout=share).held_x.squeeze(1)
    by_label = Silo(x, place, holdout=share).held_y
    assert torch.equal(by_value, by_label)


def test_a_class_that_is_only_held_out_is_a_class():
    held = silos()
    held[0].held_y[0] = 6
    assert FedAvg("linear", **SETTINGS).fit(held).model.spec.num_classes == 7


def best_row(history, stage):
    rows = [row for row in history if row.stage == stage]
    return max(rows, key=lambda row: (row.holdout_accuracy, -row.round)), rows


@pytest.mark.parametrize("patience", [1, 3, 100])
def test_patience_stops_training_and_returns_the_best_by_holdout(patience):
    settings = {"local_epochs": 1, "batch_size": 4, "lr": 0.5}
    fit = FedAvg("linear", rounds=12, patience=patience, **settings).fit(silos())
    best, rows = best_row(fit.history, "stage1")
    assert rows[-1].round == min(best.round + patience, 12)
    assert best.round < 12
    expected = FedAvg("linear", rounds=best.round, **settings).fit(silos())
    assert torch.equal(parameters_of(fit), parameters_of(expected))


@pytest.mark.parametrize("rounds", [1, 4])
def test_patience_does_not_return_a_model_that_diverged(rounds):
    """Not even if all held-out samples are of the class that a model without finite scores names."""
    held = silos(lambda silo: silo.held_y.zero_())
    settings = {"local_epochs": 3, "batch_size": 4, "lr": 1e30}
    fit = FedAvg("mlp", rounds=rounds, patience=3, **settings).fit(held)
    assert torch.isfinite(parameters_of(fit)).all()
    assert torch.equal(parameters_of(fit), parameters_of(FedAvg("mlp", rounds=0).fit(held)))


def test_patience_in_stage_two():
    def fit(rounds, **options):
        return tct("mlp", ScaffoldRegression(rounds=rounds, steps=3, lr=5e-4, **options), p=30).fit(silos())

    found = fit(40, patience=4)
    best, rows = best_row(found.history, "stage2")
    assert 0 < best.round < rows[-1].round == best.round + 4 < 40
    assert torch.equal(found.model.linear.w, fit(best.round).model.linear.w)


@pytest.mark.parametrize(
    "method",
    [FedAvg("mlp", patience=2, rounds=1), tct("mlp", ScaffoldRegression(patience=2, lr="auto"), p=30)],
    ids=["stage 1", "stage 2"],
)
def test_patience_needs_held_out_samples_and_says_so_before_training(method):
    journal, parts = Diary(), skewed_data()
    some_hold_out = [Silo(*parts[0], holdout=0.5), Silo(*parts[1])]
    with pytest.raises(FedtctError, match="patience needs held-out samples"):
        method.fit(some_hold_out, journal=journal)
    assert len(journal.history) == 0


@pytest.mark.parametrize("share", [-0.1, 1.0, 1.5, float("nan")])
def test_a_holdout_that_is_no_share_is_refused(share):
    with pytest.raises(FedtctError, match="holdout is a share"):
        Silo(*skewed_data((10,))[0], holdout=share)


def test_a_holdout_that_leaves_nothing_to_train_on_is_refused():
    with pytest.raises(FedtctError, match="leaves none of 2 samples"):
        Silo(*skewed_data((2,))[0], holdout=0.9)


def test_patience_counts_from_one_rating_to_another():
    """Rounds that are not rated are no rounds without a better score."""
    silos = [Silo(x, y, holdout=0.3) for x, y in skewed_data((60, 40))]
    history = FedAvg("mlp", rounds=12, evaluate_every=4, patience=2, lr=0.01).fit(silos).history
    assert len(history) > 4
    assert history[len(history) - 1].holdout_accuracy is not None
