"""Patience: who is to hold out how much, a method that nobody rates, and runs that go on."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from core_helpers import parameters_of, quick, skewed_silos
from hypothesis import assume, given
from hypothesis import strategies as st

from fedtct import FedAvg, FedtctError, LocalFederation, Silo
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
    with pytest.raises(FedtctError, match="patience needs held-out samples, but some silos") as error:
        PATIENT.fit(with_too_few(sizes, holdout))
    told = str(error.value)
    assert (
        f"hold out none of their samples: {', '.join(f'{name} (of {n})' for name, n in none_held.items())}. Give"
        in told
    )
    advice = float(told.partition("holdout=")[2].partition(",")[0])
    assert len(PATIENT.fit(with_too_few(sizes, advice)).history) > 1


@pytest.mark.parametrize(
    ("sizes", "advice"),
    [
        ((20, 1), r"s1 \(of 1\)\. Leave out those with a single sample$"),
        (
            (4, 1),
            r"s0 \(of 4\), s1 \(of 1\)\. Give every silo holdout=0\.25, for example, and leave out those with a single",
        ),
    ],
)
def test_a_silo_with_a_single_sample_cannot_hold_one_out_whatever_the_share(sizes, advice):
    with pytest.raises(FedtctError, match=advice):
        PATIENT.fit(with_too_few(sizes, 0.1))


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
        rated = [place for place, r in enumerate(ratings[: number + 1]) if isinstance(r, float)]
        assert stopping.due == (bool(known) and rated[-1] - expected >= patience)


@quick
@given(
    rounds=st.lists(st.tuples(st.sampled_from(["ab", "a"]), st.sampled_from([0.1, 0.2, 0.3])), min_size=1, max_size=14),
    patience=st.integers(1, 4),
)
def test_rounds_that_other_silos_rated_are_no_better_and_no_worse(rounds, patience):
    """A silo that is late for no longer than patience lasts changes neither what is best nor when to stop."""
    there = [number for number, (raters, _) in enumerate(rounds) if raters == "ab"]
    gaps = [after - before for before, after in itertools.pairwise(there)]
    assume(there and there[0] == 0 and max(gaps, default=1) <= patience and len(rounds) - there[-1] <= patience)
    stopping, alone = EarlyStopping(patience, {}), EarlyStopping(patience, {})
    for number, (raters, rating) in enumerate(rounds):
        row = Row("stage1", number, train_accuracy=0.5, train_loss=1.0, holdout_accuracy=rating, rated_by=tuple(raters))
        stopping.judge(Checkpoint(number, {"after": number}), row)
        if raters == "ab":
            alone.judge(Checkpoint(number, {"after": number}), row)
        assert stopping.best == alone.best
        assert stopping.due == alone.due


def test_silos_that_are_drawn_anew_are_not_compared():
    with pytest.raises(FedtctError, match="with per_round different silos rate each round"):
        PATIENT.fit(LocalFederation(with_too_few([20, 20], 0.2), per_round=1))


def test_when_a_silo_stays_away_the_others_are_compared():
    stopping = EarlyStopping(2, {})
    for number, (raters, rating) in enumerate(
        [("ab", 0.9), ("a", 0.3), ("a", 0.5), ("a", 0.4), ("a", 0.2), ("a", 0.3)]
    ):
        row = Row("stage1", number, train_accuracy=0.5, train_loss=1.0, holdout_accuracy=rating, rated_by=tuple(raters))
        stopping.judge(Checkpoint(number, {}), row)
        assert stopping.best["round"] == (0 if number < 3 else 3)
        assert stopping.due == (number == 5)


def test_without_patience_nothing_is_kept_and_nothing_stops():
    stopping = EarlyStopping(None, {})
    stopping.judge(Checkpoint(0, {}), Row("stage1", 0, train_accuracy=0.5, train_loss=1.0, holdout_accuracy=0.5))
    assert not stopping.best
    assert not stopping.due


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
