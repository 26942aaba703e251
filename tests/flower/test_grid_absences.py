"""Silos that are gone, late or back again: the others go on, and the model stays right."""

import time
from dataclasses import replace

import pytest
import torch
from flower_helpers import METHODS, TCT, InlineGrid, assert_same, local, over, parts
from safetensors.torch import load_file

import fedtct
from fedtct.seated_silo import SeatedSilo

pytestmark = pytest.mark.usefixtures("no_pauses")


def test_a_silo_that_is_gone_is_left_out_weighted_rightly_and_recorded(grid):
    notes = []
    federation = over(grid, notes, min_silos=3)
    grid.before = lambda message: grid.gone.add(102) if len(grid.asked) > 4 else None  # after "describe"
    fit = METHODS["fedavg"].fit(federation)
    others = [part for i, part in enumerate(local(parts())) if i != 2]
    for index, silo in zip((0, 1, 3), others, strict=True):
        silo.name = f"s{index}"
    places = zip(others, (0, 1, 3), strict=True)
    reference = fedtct.LocalFederation([SeatedSilo(*place, torch.device("cpu")) for place in places], "cpu")
    session = METHODS["fedavg"].open(over(InlineGrid(grid.setups[100].cache.parent / "x", parts())))
    reference.use(session.spec)  # pixels are normalised with what all four said at the start
    weights = session.network.weights()._asdict()
    for number in range(2):
        replies = reference.ask("train", METHODS["fedavg"].question(weights, number))
        weights = {key: replies.average(key) for key in weights}
    torch.testing.assert_close(fit.model._tensors()["parameters"], weights["parameters"], rtol=1e-5, atol=1e-6)
    assert len(fit.history[0].silo_accuracies) == 3
    assert [note["missing"] for note in notes if note["question"] == "train"] == [{"s2": "no answer within 0.2 s"}] * 2


@pytest.mark.parametrize("rounds", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_silo_whose_rows_come_in_another_order_builds_its_features_anew(grid, rounds):
    """As after an export that sorts them: features of one row must not meet what is to be learnt of another."""
    said, setup = [], grid.setups[101]
    x, y = parts()[1]

    def sort(message):
        if grid.asked[-1] == (101, "regress") and grid.asked.count((101, "regress")) == rounds:
            grid.setups[101] = replace(setup, load=lambda: fedtct.Silo(x.flip(0), y.flip(0)), say=said.append)

    grid.before = sort
    method = replace(TCT, stage2=replace(TCT.stage2, rounds=150))
    found = method.fit(over(grid)).model.linear.w
    assert any("data" in text for text in said)
    expected = method.fit(local(parts())).model.linear.w
    assert float((found - expected).norm() / expected.norm()) < 0.02


def test_below_min_silos_the_run_waits_and_then_stops(grid):
    grid.before = lambda message: grid.gone.add(101) if len(grid.asked) > 4 else None  # after "describe"
    start = time.monotonic()
    with pytest.raises(
        fedtct.FedtctError, match=r"3 silos answered 'train', but at least 4 must; s1: no answer.*resume"
    ):
        METHODS["fedavg"].fit(over(grid, min_silos=4, wait=0.3))
    assert time.monotonic() - start >= 0.3


def test_a_silo_that_never_was_there_is_no_reason_to_resume_what_was_not_begun(grid):
    grid.offline.add(101)
    with pytest.raises(fedtct.FedtctError, match=r"3 silos answered 'describe'.*Start the run again") as error:
        METHODS["fedavg"].fit(over(grid, min_silos=4, wait=0.0))
    assert "saved" not in str(error.value)


def test_a_silo_that_comes_in_time_is_waited_for(grid):
    grid.offline.add(101)

    def arrive(message):
        grid.offline.discard(101)

    grid.before = arrive
    federation, said = over(grid, wait=5.0), []
    federation.post.warn = said.append
    assert_same(METHODS["fedavg"].fit(local(parts())), METHODS["fedavg"].fit(federation))
    assert said == ["3 of 4 silos have answered: s0, s2, s3; waiting for more, 5 s at most"]


@pytest.mark.parametrize(("what", "when"), [("leaves", 1), ("leaves", 2), ("forgets", 2)])
def test_scaffold_begins_anew_when_a_silo_leaves_or_forgets_so_that_corrections_sum_to_zero(grid, tmp_path, what, when):
    """Those who stay go on as if they had been alone from the round after."""
    method, notes = fedtct.Scaffold("mlp", rounds=1, local_epochs=1), []
    federation = over(grid, notes, min_silos=3)
    session = method.open(federation)
    state = method.start(session.network.weights())
    for number in range(5):
        if number == when and what == "leaves":
            grid.offline.add(103)
        if number == when and what == "forgets":
            (tmp_path / "cache3" / "run" / f"memory-{when - 1}.safetensors").write_bytes(b"damaged")
        before = state
        state, replies = method.round(federation, state, number)
    assert federation.standing.since == when + 1
    assert [note["forgot"] for note in notes if note["forgot"]] == ([["s3"]] if what == "forgets" else [])
    # In the last round corrections of those who are there cancel: the mean of their memories' h is zero.
    own = []
    for node in grid.get_node_ids():
        (newest,) = sorted(tmp_path.glob(f"cache{node - 100}/run/memory-4.safetensors"))
        own.append(load_file(newest)["stage1/own"])
    shares, steps = replies.weights(), replies.values("steps")
    h = [
        o - (before["parameters"] - local) / (m * method.lr)
        for o, local, m in zip(own, replies.values("parameters"), steps, strict=True)
    ]
    total = sum(share * term for share, term in zip(shares, h, strict=True))
    assert float(total.abs().max()) < 1e-4 * float(h[0].abs().max())


@pytest.mark.parametrize(("away", "missed"), [("offline", (1, 2)), ("late", (1, 2)), ("offline", (0, 1))])
def test_feddyn_keeps_its_balance_when_silos_miss_rounds(away, missed, grid, tmp_path):
    """h = Σ (n_k/n)·g_k over all silos: a round that a silo missed, or answered too late to count, changes neither.

    One that was not there at the start has a g of zero when it comes, and a share in n.
    """
    method = fedtct.FedDyn("linear", num_classes=10, rounds=1, local_epochs=1, alpha=0.1)
    federation = over(grid, silos=3)
    if 0 in missed:
        grid.offline.add(103)
    session = method.open(federation)
    state = method.start(session.network.weights())
    for number in range(5):
        getattr(grid, away).clear()
        if number in missed:
            getattr(grid, away).add(103)
        state, replies = method.round(federation, state, number)
        assert len(replies.messages) == (3 if number in missed else 4)
    sizes = [len(y) for _, y in parts()]
    g = [load_file(tmp_path / f"cache{k}/run/memory-4.safetensors")["stage1/g"] for k in range(4)]
    torch.testing.assert_close(
        state["h"], sum(n / sum(sizes) * own for n, own in zip(sizes, g, strict=True)), rtol=1e-4, atol=1e-6
    )


def test_feddyn_stops_when_a_silo_has_forgotten_its_part_of_the_sum(grid, tmp_path):
    method = fedtct.FedDyn("linear", rounds=3, local_epochs=1)

    def forget(message):
        for file in tmp_path.glob("cache1/run/memory-1.safetensors"):
            file.unlink()

    grid.before = forget
    with pytest.raises(fedtct.FedtctError, match="s1 has lost its part of FedDyn's sum"):
        method.fit(over(grid))


def lost(tmp_path):
    for file in tmp_path.glob("cache1/run/frozen.safetensors"):
        file.unlink()


def damaged(tmp_path):
    for file in tmp_path.glob("cache1/run/frozen.safetensors"):
        file.write_bytes(b"damaged")


@pytest.mark.parametrize("harm", [lost, damaged])
def test_a_silo_that_lost_what_is_not_trained_is_told_again(harm, grid, tmp_path):
    method = METHODS["last layer"]
    grid.before = lambda message: harm(tmp_path) if [q for _, q in grid.asked].count("train") == 5 else None
    assert_same(method.fit(local(parts())), method.fit(over(grid)))
    assert grid.asked.count((101, "freeze")) == 2
    assert grid.asked.count((100, "freeze")) == 1


def test_a_silo_that_comes_late_is_told_what_is_not_trained(grid):
    grid.offline.add(103)
    grid.before = lambda message: grid.offline.discard(103) if (100, "train") in grid.asked else None
    fit = replace(METHODS["last layer"], num_classes=10).fit(over(grid, silos=3))
    assert [len(row.silos) for row in fit.history[1:]] == [3, 4, 4]
    assert grid.asked.count((103, "freeze")) == 1


def test_where_there_is_nothing_to_remember_nothing_is_forgotten(grid):
    notes = []
    TCT.fit(over(grid, notes))
    assert not any(note["forgot"] for note in notes)


def test_a_latecomer_for_whom_the_step_size_is_too_large_is_left_out_with_the_reason(tmp_path):
    data, notes = parts(), []
    data[3] = (data[3][0] // 16, data[3][1] % 2)  # nearly one sample many times over: a Hessian with a large eigenvalue
    data[3] = (data[3][0][:1].expand(60, -1, -1, -1), data[3][1][:1].expand(60))
    grid = InlineGrid(tmp_path, data)
    grid.offline.add(103)
    grid.before = lambda message: grid.offline.discard(103) if (100, "regress") in grid.asked else None
    fit = TCT.fit(over(grid, notes, silos=3, min_silos=3))
    reasons = [note["missing"].get("s3", "") for note in notes if note["question"] == "regress"]
    assert any("it was not there when the step size was chosen" in reason for reason in reasons)
    assert fit.history[-1].train_loss < fit.history[-4].train_loss


def test_with_grace_a_round_does_not_wait_for_the_last(grid):
    grid.before = lambda message: grid.late.add(102) if len(grid.asked) > 4 else None
    start = time.monotonic()
    fit = METHODS["fedavg"].fit(over(grid, min_silos=3, round_timeout=100.0, grace=0.1))
    assert time.monotonic() - start < 50
    assert fit.history[1].silos == ("s0", "s1", "s3")


@pytest.mark.parametrize("stays_away", [False, True])
def test_conjugate_gradients_end_at_the_optimum_of_those_who_are_there(grid, stays_away):
    """Gone for three rounds, or for good."""
    stage2 = fedtct.ConjugateGradient(rounds=60, evaluate_every=1000)
    method = fedtct.TCT("mlp", TCT.stage1, fedtct.TangentFeatures(p=10), stage2)

    def leave(message):
        asked = [question for _, question in grid.asked].count("regress")
        away = asked >= 20 and (stays_away or asked < 29)
        (grid.offline.add if away else grid.offline.discard)(102)

    grid.before = leave
    fit = method.fit(over(grid, min_silos=3))
    assert {len(row.silos) for row in fit.history if row.stage == "stage2" and row.round} == {3, 4}
    model = fit.model
    there = [part for number, part in enumerate(parts()) if not stays_away or number != 2]
    z, y = (torch.cat(columns) for columns in zip(*(seen(model, *part) for part in there), strict=True))
    assert torch.allclose(model.linear.w.double(), torch.linalg.pinv(z, rcond=1e-6) @ y, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(("stays", "grows"), [(0, False), (3, True)])
def test_gradient_descent_says_so_if_its_steps_are_too_long_for_those_who_are_left(grid, stays, grows, recwarn):
    """They are safe for all silos together: one that is unlike the others may be left alone."""
    method = fedtct.TCT("mlp", TCT.stage1, TCT.features, fedtct.GradientDescent(rounds=20))

    def leave(message):
        if (100, "regress") in grid.asked:
            grid.offline |= set(grid.setups) - {100 + stays}

    grid.before = leave
    rows = [row for row in method.fit(over(grid, min_silos=1)).history if row.stage == "stage2"]
    assert (rows[-1].train_loss > rows[0].train_loss) == grows
    told = f"stage 2 may diverge while only s{stays} replies: its step size"
    assert any(told in str(warning.message) for warning in recwarn) == grows


def seen(model, x, y):
    """What stage 2 makes of samples, in float64: normalised features and targets."""
    x, y = model.spec.encode(x, y, "x")
    return model.linear.normaliser(model.tangents(x)).double(), model.spec.task.targets(y, 10).double()


def test_a_silo_that_comes_back_to_stage_2_is_right(grid, tmp_path):
    """Gone for a round of a convex problem and back, it ends where everybody was going."""
    stage2 = fedtct.ScaffoldRegression(rounds=100, steps=200, lr="auto", evaluate_every=1000)
    method = fedtct.TCT("mlp", TCT.stage1, fedtct.TangentFeatures(p=60), stage2)
    expected = method.fit(local(parts()))

    def leave(message):
        asked = [question for _, question in grid.asked]
        (grid.offline.add if 8 <= asked.count("regress") < 15 else grid.offline.discard)(102)

    grid.before = leave
    fit = method.fit(over(grid, min_silos=3))
    assert fit.history[-1].train_loss == pytest.approx(expected.history[-1].train_loss, rel=2e-3)
    assert sum(question == "regress" for _, question in grid.asked) < 100 * 4
