"""Patience: who is to hold out how much, a method that nobody rates, and runs that go on."""

import math
from dataclasses import replace

import pytest
import torch
from core_helpers import parameters_of, quick, skewed_silos
from hypothesis import given
from hypothesis import strategies as st

from fedtct import FedAvg, FedtctError, Silo
from fedtct.early_stopping import EarlyStopping
from fedtct.history import Checkpoint, Journal, Row

PATIENT = FedAvg("linear", rounds=3, local_epochs=1, patience=2)


def with_too_few(sizes, holdout):
    return [
        Silo(torch.randn(n, 4), torch.arange(n) % 3, holdout=holdout, name=f"s{place}") for place, n in enumerate(sizes)
    ]


@pytest.mark.filterwarnings("ignore")
@quick
@given(sizes=st.lists(st.integers(2, 40), min_size=1, max_size=4), holdout=st.sampled_from([0.0, 0.01, 0.1]))
def test_patience_says_who_holds_nothing_out_and_what_helps(sizes, holdout):
    sizes = [12, *sizes]
    none_held = {f"s{place}": n for place, n in enumerate(sizes) if round(holdout * n) == 0}
    if not none_held:
        return
    with pytest.raises(FedtctError, match="patience needs held-out samples to judge by") as error:
        PATIENT.fit(with_too_few(sizes, holdout))
    told = str(error.value)
    assert (
        f"hold none of their samples out: {', '.join(f'{name} (of {n})' for name, n in none_held.items())}. Give"
        in told
    )
    advice = float(told.partition("holdout=")[2].partition(",")[0])
    assert len(PATIENT.fit(with_too_few(sizes, advice)).history) > 1


def test_a_silo_with_a_single_sample_cannot_hold_one_out():
    with pytest.raises(FedtctError, match=r"s1 \(of 1\)\. Give every silo holdout=0\.1, say, and leave out those with"):
        PATIENT.fit(with_too_few((20, 1), 0.1))


class Unrated(FedAvg):
    """A method that does not ask silos how good its models are."""

    def question(self, state, number, **options):
        return super().question(state, number, **options) | {"evaluate": False}


def test_a_method_that_never_asks_for_ratings_has_no_patience():
    with pytest.raises(FedtctError, match="patience judges by what silos say about models, and they were not asked"):
        Unrated("linear", rounds=2, patience=1).fit(skewed_silos(holdout=0.3))
    assert len(Unrated("linear", rounds=2).fit(skewed_silos(holdout=0.3)).history) == 3


@quick
@given(
    ratings=st.lists(st.sampled_from([0.1, 0.2, 0.3, None, "diverged"]), min_size=1, max_size=12),
    patience=st.integers(1, 4),
)
def test_the_best_is_the_first_of_the_highest_ratings(ratings, patience):
    """Where nobody rates held-out samples, as if that model were none; before the first rating nothing stops."""
    stopping = EarlyStopping(patience, {})
    for number, rating in enumerate(ratings):
        held = {} if rating is None else {"holdout_accuracy": 0.9 if rating == "diverged" else rating}
        loss = math.nan if rating == "diverged" else 1.0
        row = Row("stage1", number, train_accuracy=0.5, train_loss=loss, **held)
        stopping.judge(Checkpoint(number, {"after": number}), row)
        known = [(r, -place) for place, r in enumerate(ratings[: number + 1]) if isinstance(r, float)]
        expected = -max(known)[1] if known else None
        assert stopping.best.get("round") == stopping.best.get("state", {}).get("after") == expected
        assert stopping.due(number) == (bool(known) and number - expected >= patience)


def test_without_patience_nothing_is_kept_and_nothing_stops():
    stopping = EarlyStopping(None, {})
    stopping.judge(Checkpoint(0, {}), Row("stage1", 0, train_accuracy=0.5, train_loss=1.0, holdout_accuracy=0.5))
    assert not stopping.best
    assert not stopping.due(100)


class Interrupted(Journal):
    """A journal whose run goes on from a checkpoint of its second round."""

    def __init__(self, earlier=None):
        super().__init__()
        self.earlier, self.kept = earlier, None

    def save(self, stage, checkpoint):
        if checkpoint.round == 2 and not checkpoint.finished:
            self.kept = checkpoint

    def restore(self, stage):
        return self.earlier


def test_a_run_goes_on_with_the_best_it_had():
    method, journal = replace(PATIENT, rounds=6, lr=0.01), Interrupted()
    whole = method.fit(skewed_silos(holdout=0.4), journal=journal)
    resumed = method.fit(skewed_silos(holdout=0.4), journal=Interrupted(journal.kept))
    assert torch.equal(parameters_of(resumed), parameters_of(whole))
    assert len(resumed.history) == len(whole.history) - 2


def test_a_journal_that_goes_on_leaves_the_history_of_the_fit_before_as_it_was():
    journal = Journal()
    first = FedAvg("linear", rounds=1).fit(skewed_silos(), journal=journal)
    before = list(first.history)
    second = FedAvg("linear", rounds=2).fit(skewed_silos(), journal=journal)
    assert list(first.history) == before
    assert list(second.history)[: len(before)] == before
    assert [row.round for row in second.history] == [row.round for row in journal.history] == [0, 1, 0, 1, 2]
