"""The history: a row a round, about the model after that round, with what the round cost."""

import pytest
import torch
import torch.nn.functional as F
from core_helpers import parameters_of, pooled, skewed_data, tct, tiny_net

from fedtct import Centralized, FedAvg, FedDyn, LocalFederation, Ridge, Scaffold, ScaffoldRegression, Silo
from fedtct.tasks import NUMBERED

targets = NUMBERED.targets

SETTINGS = {"local_epochs": 1, "batch_size": 8}
CLASSES, SMALL = 3, 400  # bytes that a round's settings and scores take at most
PARTS = skewed_data()
TEST = pooled(skewed_data((30,), seed=9))


def silos(holdout=0.0):
    return [Silo(*part, holdout=holdout) for part in PARTS]


def cross_entropy(model, x, y):
    return float(F.cross_entropy(model.scores(x).double(), y))


def squared(model, x, y):
    return float((model.scores(x) - targets(y, CLASSES)).square().sum(1).double().mean())


def assert_describes(row, model, loss):
    """What the row says is what an evaluation of the model says."""
    x, y = pooled(PARTS)
    assert row.train_accuracy == pytest.approx(model.score(x, y), abs=1e-12)
    assert row.train_loss == pytest.approx(loss(model, x, y), rel=1e-5)
    assert row.test_accuracy == pytest.approx(model.score(*TEST), abs=1e-12)
    assert row.test_loss == pytest.approx(loss(model, *TEST), rel=1e-5)
    assert row.silo_accuracies == pytest.approx([model.score(*part) for part in PARTS], abs=1e-12)
    assert row.worst_silo_accuracy == min(row.silo_accuracies)
    assert row.holdout_accuracy is None


@pytest.mark.parametrize("method", [FedAvg, Scaffold, FedDyn])
def test_rows_describe_the_model_after_so_many_rounds(method):
    history = method("mlp", rounds=3, **SETTINGS).fit(silos(), TEST).history
    assert [(row.stage, row.round) for row in history] == [("stage1", number) for number in range(4)]
    for row in history:
        assert_describes(row, method("mlp", rounds=row.round, **SETTINGS).fit(silos()).model, cross_entropy)
    assert len({row.train_loss for row in history}) == 4


def test_rows_of_stage_two_describe_the_linear_model():
    def fit(rounds, test=None):
        return tct("mlp", ScaffoldRegression(rounds=rounds, steps=5, lr=1e-3), p=30).fit(silos(), test)

    history = fit(3, TEST).history
    stages = [(row.stage, row.round) for row in history]
    assert stages == [("stage1", 0), ("convexify", 1), ("convexify", 2), *(("stage2", number) for number in range(4))]
    for row in history[-3:]:
        assert_describes(row, fit(row.round).model, squared)


def test_the_row_of_ridge_describes_its_model():
    fit = tct("mlp", Ridge(d=30)).fit(silos(), TEST)
    assert [(row.stage, row.round) for row in fit.history] == [("stage1", 0), ("stage2", 1)]
    assert_describes(fit.history[-1], fit.model, squared)


def test_held_out_accuracies_are_on_what_silos_hold_out():
    held = silos(holdout=0.4)
    for fit in (
        FedAvg("mlp", rounds=2, **SETTINGS).fit(held),
        tct("mlp", ScaffoldRegression(rounds=2, lr="auto"), p=30).fit(held),
        tct("mlp", Ridge(d=30)).fit(held),
    ):
        row, model = fit.history[-1], fit.model
        accuracies = [model.score(silo.held_x, silo.held_y) for silo in held]
        assert row.silo_accuracies == pytest.approx(accuracies, abs=1e-12)
        assert row.worst_silo_accuracy == min(row.silo_accuracies)
        everything = torch.cat([s.held_x for s in held]), torch.cat([s.held_y for s in held])
        assert row.holdout_accuracy == pytest.approx(model.score(*everything), abs=1e-12)
        train = torch.cat([s.x for s in held]), torch.cat([s.y for s in held])
        assert row.train_accuracy == pytest.approx(model.score(*train), abs=1e-12)


def test_a_silo_that_holds_nothing_out_does_not_have_the_others_rated_on_what_they_learn():
    first, *others = silos(holdout=0.4)
    small = Silo(*PARTS[-1])
    for method in (FedAvg("mlp", rounds=1, **SETTINGS), tct("mlp", Ridge(d=30))):
        fit = method.fit([first, *others[:-1], small])
        own = [(silo.held_x, silo.held_y) for silo in (first, *others[:-1])] + [(small.x, small.y)]
        assert fit.history[-1].silo_accuracies == pytest.approx([fit.model.score(*part) for part in own], abs=1e-12)


def test_rows_between_evaluations_have_costs_but_no_scores():
    history = FedAvg("mlp", rounds=5, evaluate_every=2, **SETTINGS).fit(silos(), TEST).history
    assert [row.train_accuracy is not None for row in history] == [True, False, True, False, True, True]
    assert [row.test_accuracy is not None for row in history] == [True, False, True, False, True, True]
    assert all(row.bytes_up > 0 and row.seconds > 0 for row in history[1:])
    every = FedAvg("mlp", rounds=5, **SETTINGS).fit(silos(), TEST).history
    assert [row.train_loss for row in history][::2] == [row.train_loss for row in every][::2]
    stage2 = ScaffoldRegression(rounds=5, evaluate_every=3, lr="auto")
    rows = tct("mlp", stage2, p=30).fit(silos(), TEST).history[3:]
    assert [row.train_accuracy is not None for row in rows] == [True, False, False, True, False, True]


def assert_travels(row, *, down, up):
    assert down <= row.bytes_down <= down + SMALL
    assert up <= row.bytes_up <= up + SMALL


@pytest.mark.parametrize("method", [FedAvg, Scaffold])
def test_one_model_goes_down_and_one_comes_up_every_round(method):
    """Parameters and running statistics; SCAFFOLD sends no more than FedAvg."""
    model = tiny_net(norm=True)
    numbers = sum(p.numel() for p in model.parameters()) + 12
    history = method(model, rounds=3, **SETTINGS).fit(silos()).history
    assert history[0].bytes_down == history[0].bytes_up == 0
    for row in history[1:]:
        assert_travels(row, down=8 * numbers, up=8 * numbers)
    assert history.total_bytes == sum(row.bytes_up + row.bytes_down for row in history)


def test_feddyn_sends_more_only_where_it_is_rated():
    """The average is rated, and silos go on from another point: it costs bytes, and changes nothing else."""
    model = tiny_net(norm=True)
    parameters = sum(p.numel() for p in model.parameters())
    fits = [FedDyn(model, rounds=3, evaluate_every=every, **SETTINGS).fit(silos()) for every in (1, 2)]
    for fit, sent in zip(fits, ((2, 2, 2), (2, 1, 2)), strict=True):
        for row, times in zip(fit.history[1:], sent, strict=True):
            assert_travels(row, down=8 * (times * parameters + 12), up=8 * (parameters + 12))
    assert torch.equal(*map(parameters_of, fits))


class Counting(LocalFederation):
    """Adds up what a silo sends and receives in rounds."""

    travelled = 0

    def ask(self, question, message):
        replies = super().ask(question, message)
        if question in ("train", "regress", "moments", "normalise"):
            self.travelled += replies.cost.bytes_down + replies.cost.bytes_up
        return replies


@pytest.mark.filterwarnings("ignore:stage1 diverged")
@pytest.mark.parametrize(
    "method",
    [
        FedAvg("mlp", rounds=12, patience=1, lr=0.5, **SETTINGS),
        FedAvg("mlp", rounds=3, patience=100, **SETTINGS),
        FedAvg("mlp", rounds=12, lr=1e30, **SETTINGS),
        tct("mlp", ScaffoldRegression(rounds=40, steps=3, lr=5e-4, patience=4), p=30),
    ],
    ids=["patience ends", "patience lasts", "divergence", "stage 2"],
)
def test_every_byte_of_a_round_is_counted_even_if_its_model_is_thrown_away(method):
    """A round that is asked for only to rate the model before it has been paid for, too."""
    federation = Counting(silos(holdout=0.4))
    history = method.fit(federation).history
    assert history.total_bytes == federation.travelled > 0
    every = [sum(ways) for ways in zip(*(row.silo_bytes_down for row in history if row.silos), strict=True)]
    assert sum(every) / len(every) == sum(row.bytes_down for row in history)


def test_what_travels_in_tct():
    parameters, p, d = (4 + 1) * 200 + 201 * 200 + 201 * CLASSES, 700, 60
    iterative = tct("mlp", ScaffoldRegression(rounds=2, lr="auto"), p=p).fit(silos()).history
    moments, normaliser, start, *rounds = iterative[1:]
    assert_travels(moments, down=4 * parameters, up=2 * 8 * p)  # mean and deviations in float64
    assert_travels(normaliser, down=2 * 4 * p, up=0)
    assert start.bytes_down == start.bytes_up == 0
    for row in rounds:
        assert_travels(row, down=4 * (p + 1) * CLASSES, up=4 * (p + 1) * CLASSES)
    sums = tct("mlp", Ridge(d=d)).fit(silos()).history[-1]
    assert_travels(sums, down=4 * parameters, up=8 * ((d + 1) * (d + 2) // 2 + (d + 1) * CLASSES))


def test_data_in_one_place_sends_nothing_and_has_no_worst_silo():
    history = Centralized("mlp", rounds=2, **SETTINGS).fit(silos()).history
    assert history.total_bytes == 0
    assert history[-1].train_accuracy is not None
    assert history[-1].worst_silo_accuracy is None


def test_a_table_has_a_line_for_every_row():
    history = FedAvg("mlp", rounds=2, **SETTINGS).fit(silos(), TEST).history
    table = history.to_pandas()
    assert list(table["round"]) == [0, 1, 2]
    assert list(table["test_accuracy"]) == [row.test_accuracy for row in history]
    assert history[1:].to_pandas().equals(table[1:].reset_index(drop=True))


@pytest.mark.parametrize("score", [NUMBERED.score, NUMBERED.squared_score])
@pytest.mark.parametrize(("value", "right"), [(torch.nan, 4), (torch.inf, 4), (-torch.inf, 5)])
def test_a_sample_whose_highest_score_is_not_finite_is_not_right(score, value, right):
    scores, y = torch.eye(3).repeat(2, 1), torch.arange(3).repeat(2)
    assert score(scores, y).correct == 6
    scores[0, 0] = scores[4, 2] = value  # −∞ rules a class out: of the first sample the right one, of the fifth not
    assert score(scores, y).correct == right
    assert score(torch.full((3, 3), value), y[:3]).correct == 0
