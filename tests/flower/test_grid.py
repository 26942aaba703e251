"""The same algorithms over messages: the same models, whatever happens to silos."""

import time
from dataclasses import replace

import pytest
import torch
from flower_helpers import InlineGrid, local, parts
from flwr.app import Context, RecordDict
from flwr.app import Message as FlowerMessage
from flwr.common.serde import recorddict_to_proto
from safetensors.torch import load_file

import fedtct
from fedtct.deploy.client_app import client_app, reply
from fedtct.federation import flower
from fedtct.federation.exchange import Terms
from fedtct.federation.flower import FlowerFederation
from fedtct.federation.sizes import sent_bytes
from fedtct.federation.wire import pack, unpack
from fedtct.importing import import_function

TCT = fedtct.TCT(
    "mlp",
    stage1=fedtct.FedAvg(rounds=1, local_epochs=1),
    features=fedtct.TangentFeatures(p=300),
    stage2=fedtct.ScaffoldRegression(rounds=3, steps=20, lr="auto"),
)
PRIVATE = fedtct.FedAvg("mlp", rounds=2, local_epochs=1, num_classes=10, clip=0.5, noise=0.01)
METHODS = {
    "fedavg": fedtct.FedAvg("mlp", rounds=2, local_epochs=1),
    "fedprox": fedtct.FedProx("mlp", rounds=2, local_epochs=1),
    "scaffold": fedtct.Scaffold("mlp", rounds=3, local_epochs=1),
    "feddyn": fedtct.FedDyn("mlp", rounds=3, local_epochs=1),
    "fedadam": fedtct.FedAdam("mlp", rounds=2, local_epochs=1),
    "tct": TCT,
    "gradient descent": fedtct.TCT("mlp", TCT.stage1, TCT.features, fedtct.GradientDescent(rounds=2)),
    "ridge": fedtct.TCT("mlp", TCT.stage1, TCT.features, fedtct.Ridge(d=200, ridge="holdout")),
    "private": PRIVATE,  # by Flower's own mod there, by ours here
    "private ridge": fedtct.TCT("mlp", PRIVATE, TCT.features, fedtct.Ridge(d=200, noise=0.01)),
}


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr(flower, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(flower, "POLL_SECONDS", 0.01)


@pytest.fixture
def grid(tmp_path):
    return InlineGrid(tmp_path, parts())


def over(grid, notes=None, run="run", own_model="", keys=None, **terms):
    note = notes.append if notes is not None else lambda record: None
    terms = {"silos": len(grid.seats), "wait": 0.0, "round_timeout": 0.2} | terms
    return FlowerFederation(grid, run, Terms(**terms), note, own_model, keys=keys)


def assert_same(one, two, tolerance=1e-6):
    for name, tensor in one.model._tensors().items():
        torch.testing.assert_close(two.model._tensors()[name], tensor, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_gives_the_model_it_gives_in_this_process(name, tmp_path):
    data = parts()
    here = METHODS[name].fit(local(data, holdout=0.2))
    there = METHODS[name].fit(over(InlineGrid(tmp_path, data, holdout=0.2)))
    assert_same(here, there)
    assert [row.train_loss for row in here.history] == pytest.approx([row.train_loss for row in there.history])


def test_noise_follows_from_a_silos_secret_and_the_run(tmp_path):
    """A silo with a secret: nobody who knows the seed can take its noise away, nor one who knows another run's."""

    def model(grid, run="run"):
        return METHODS["private ridge"].fit(over(grid, run=run)).model._tensors()["w"]

    grid = InlineGrid(tmp_path, parts())
    public = model(grid)
    grid.seats = {node: replace(seat, secret="mine") for node, seat in grid.seats.items()}
    assert not torch.allclose(model(grid), public)
    assert torch.equal(model(grid), model(grid))
    assert not torch.allclose(model(grid), model(grid, run="another"))


@pytest.mark.parametrize("secret", ["mine", ""])
@pytest.mark.parametrize("question", ["train", "sums"])
def test_with_a_secret_the_same_question_gets_the_same_answer_in_whichever_seat(question, secret, grid):
    """A resumed run may deal seats anew; noise drawn anew, or added to training in another order, would tell more."""
    asked = {}
    grid.before = lambda message: asked.setdefault(message.content.config_records["config"]["fedtct.question"], message)
    METHODS["private ridge"].fit(over(grid))
    seat, context = replace(grid.seats[100], secret=secret), Context(1, 100, {}, RecordDict(), {})
    answers = []
    for number in (0, 1):
        asked[question].content.config_records["config"]["fedtct.seat"] = number
        answers.append(unpack(reply(asked[question], context, seat))[0])
    key = "parameters" if question == "train" else "s"
    assert torch.equal(answers[0][key], answers[1][key]) == bool(secret)


def test_a_private_silo_that_fails_is_named_with_its_reason(grid):
    seat, calls = grid.seats[101], []

    def later():
        calls.append(1)
        if len(calls) > 1:
            raise fedtct.FedtctError("the disk with the data is gone")
        return seat.load()

    grid.seats[101] = replace(seat, load=later)
    with pytest.raises(fedtct.FedtctError, match="s1: the disk with the data is gone"):
        PRIVATE.fit(over(grid, min_silos=4))


def test_bytes_are_those_of_the_messages(grid):
    notes = []
    fit = METHODS["fedavg"].fit(over(grid, notes))
    weights = fit.model._tensors()["parameters"].nbytes
    assert weights < fit.history[1].bytes_up < weights + 2000
    assert set(notes[0]["bytes_down"]) == set(notes[0]["bytes_up"]) == {"s0", "s1", "s2", "s3"}
    assert fit.history[1].bytes_up == pytest.approx(sum(notes[1]["bytes_up"].values()) / 4, abs=1)
    assert dict(zip(fit.history[1].silos, fit.history[1].silo_bytes_up, strict=True)) == notes[1]["bytes_up"]
    assert dict(zip(fit.history[1].silos, fit.history[1].silo_bytes_down, strict=True)) == notes[1]["bytes_down"]


def test_bytes_are_counted_as_flower_serialises_them():
    content = pack({"w": torch.zeros(301, 10), "mean": torch.zeros(300), "n": 7}, {"fedtct.silo": "s0"})
    assert sent_bytes(content) == pytest.approx(recorddict_to_proto(content).ByteSize(), abs=24)


def test_half_precision_halves_the_bytes_and_hardly_changes_the_model(grid, tmp_path):
    full = METHODS["fedavg"].fit(over(grid))
    half = METHODS["fedavg"].fit(over(grid, run="half", half=True))
    assert half.history[1].bytes_up < 0.51 * full.history[1].bytes_up
    assert_same(full, half, tolerance=2e-2)
    assert half.model._tensors()["parameters"].dtype == torch.float32


@pytest.mark.parametrize("name", ["scaffold", "feddyn"])
def test_where_silos_correct_their_gradients_weights_travel_in_full(name, grid):
    """Rounding errors would add up in the corrections, round by round."""
    full = METHODS[name].fit(over(grid, run="full"))
    half = METHODS[name].fit(over(grid, run="half", half=True))
    assert_same(full, half)
    assert half.history[1].bytes_up == full.history[1].bytes_up


@pytest.mark.parametrize("large", [7e4, -1e30, float("inf"), float("nan")])
def test_what_half_precision_cannot_hold_travels_in_full(large):
    message = {"parameters": torch.tensor([1.0, large]), "w": torch.tensor([1 / 3])}
    arrived, _ = unpack(pack(message, {}, half=True))
    torch.testing.assert_close(arrived["parameters"], message["parameters"], rtol=0, atol=0, equal_nan=True)
    assert float(arrived["w"]) == float(torch.tensor(1 / 3).half())


def test_half_precision_leaves_scales_and_statistics_alone(grid):
    full, half = TCT.fit(over(grid)), TCT.fit(over(grid, run="half", half=True))
    assert half.history[-1].train_accuracy == pytest.approx(full.history[-1].train_accuracy, abs=0.02)


def test_the_cache_is_removed_when_the_run_ends(grid, tmp_path):
    federation = over(grid)
    TCT.fit(federation)
    assert list(tmp_path.glob("cache0/run/*"))
    federation.close()
    assert not list(tmp_path.glob("cache*/run"))


def test_features_are_built_once_and_again_if_the_cache_is_damaged(grid, tmp_path):
    expected = TCT.fit(local(parts()))

    def harm(message):
        if message.content.config_records["config"]["fedtct.question"] == "regress" and not harmed:
            harmed.append(True)
            for file in tmp_path.glob("cache[01]/run/features.safetensors"):
                file.write_bytes(b"not a tensor" if "cache0" in str(file) else file.read_bytes()[:1000])

    harmed = []
    grid.before = harm
    assert_same(expected, TCT.fit(over(grid)))
    counts = [sum(asked == (node, "moments") for asked in grid.asked) for node in grid.seats]
    assert counts == [2, 2, 1, 1]


def test_a_silo_that_is_gone_is_left_out_weighted_rightly_and_recorded(grid):
    notes = []
    federation = over(grid, notes, min_silos=3)
    grid.before = lambda message: grid.gone.add(102) if len(grid.asked) > 4 else None  # after "describe"
    fit = METHODS["fedavg"].fit(federation)
    others = [part for i, part in enumerate(local(parts())) if i != 2]
    for index, silo in zip((0, 1, 3), others, strict=True):
        silo.name = f"s{index}"
    reference = fedtct.LocalFederation(others, "cpu")
    for index, silo in zip((0, 1, 3), others, strict=True):
        silo.index = index
    session = METHODS["fedavg"].open(over(InlineGrid(grid.seats[100].cache.parent / "x", parts())), "mlp", None, None)
    reference.use(session.spec)  # pixels are normalised with what all four said at the start
    weights = session.network.weights()._asdict()
    for number in range(2):
        replies = reference.ask("train", METHODS["fedavg"].question(weights, number))
        weights = {key: replies.average(key) for key in weights}
    torch.testing.assert_close(fit.model._tensors()["parameters"], weights["parameters"], rtol=1e-5, atol=1e-6)
    assert len(fit.history[0].silo_accuracies) == 3
    assert [note["missing"] for note in notes if note["question"] == "train"] == [{"s2": "no answer within 0.2 s"}] * 2


def test_below_min_silos_the_run_waits_and_then_stops(grid):
    grid.before = lambda message: grid.gone.add(101) if len(grid.asked) > 4 else None  # after "describe"
    start = time.monotonic()
    with pytest.raises(fedtct.FedtctError, match=r"3 silos answered 'train', at least 4 must; s1: no answer.*resume"):
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
    federation.warn = said.append
    assert_same(METHODS["fedavg"].fit(local(parts())), METHODS["fedavg"].fit(federation))
    assert said == ["3 of 4 silos have answered: s0, s2, s3; waiting for more, 5 s at most"]


@pytest.mark.parametrize(("what", "when"), [("leaves", 1), ("leaves", 2), ("forgets", 2)])
def test_scaffold_begins_anew_when_a_silo_leaves_or_forgets_so_that_corrections_sum_to_zero(grid, tmp_path, what, when):
    """Those who stay go on as if they had been alone from the round after."""
    method, notes = fedtct.Scaffold("mlp", rounds=1, local_epochs=1), []
    federation = over(grid, notes, min_silos=3)
    session = method.open(federation, "mlp", None, None)
    state = method.start(session.network.weights())
    for number in range(5):
        if number == when and what == "leaves":
            grid.offline.add(103)
        if number == when and what == "forgets":
            (tmp_path / "cache3" / "run" / f"memory-{when - 1}.safetensors").write_bytes(b"damaged")
        before = state
        state, replies = method.round(federation, state, number)
    assert federation._since == when + 1
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


@pytest.mark.parametrize("away", ["offline", "late"])
def test_feddyn_keeps_its_balance_when_silos_miss_rounds(away, grid, tmp_path):
    """h = Σ (n_k/n)·g_k over all silos: a round that a silo missed, or answered too late to count, changes neither."""
    method = fedtct.FedDyn("linear", rounds=1, local_epochs=1, alpha=0.1)
    federation = over(grid, min_silos=3)
    session = method.open(federation, "linear", None, None)
    state = method.start(session.network.weights())
    for number in range(5):
        getattr(grid, away).clear()
        if number in (1, 2):
            getattr(grid, away).add(103)
        state, replies = method.round(federation, state, number)
        assert len(replies.messages) == (3 if number in (1, 2) else 4)
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


def test_a_silo_that_fails_is_named_with_its_reason(grid):
    seat = grid.seats[101]

    def broken():
        raise fedtct.FedtctError("the disk with the data is not mounted")

    grid.seats[101] = replace(seat, load=broken)
    with pytest.raises(fedtct.FedtctError, match="s1: the disk with the data is not mounted"):
        METHODS["fedavg"].fit(over(grid))


STRANGE = RuntimeError("patient 4711")


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (STRANGE, "s1: RuntimeError; the silo's log says more"),
        (fedtct.FedtctError("its data cannot be read", STRANGE), "s1: its data cannot be read: RuntimeError; the silo"),
    ],
)
def test_what_a_strange_error_says_does_not_leave_the_silo(raised, told, grid, caplog):
    def broken():
        raise raised

    grid.seats[101] = replace(grid.seats[101], load=broken)
    with pytest.raises(fedtct.FedtctError, match=told) as error:
        METHODS["fedavg"].fit(over(grid))
    assert "4711" not in str(error.value)
    assert "4711" in caplog.text


def test_nor_does_it_if_a_silo_cannot_tell_who_it_is():
    """What an app raises Flower sends, text and all."""

    def seat_of(context):
        raise STRANGE

    question = FlowerMessage(RecordDict(), 1, "query")
    with pytest.raises(fedtct.FedtctError, match=r"^RuntimeError; the silo's log says more$"):
        client_app(seat_of)(question, Context(1, 1, {}, RecordDict(), {}))


def test_another_shape_is_refused_by_name(tmp_path):
    data = parts()
    data[2] = (data[2][0][..., :7], data[2][1])
    with pytest.raises(fedtct.FedtctError, match=r"s2 has samples of shape \(1, 8, 7\), s0 of \(1, 8, 8\)"):
        METHODS["fedavg"].fit(over(InlineGrid(tmp_path, data)))


def test_a_latecomer_with_another_shape_is_refused_and_the_run_goes_on(tmp_path):
    data, notes = parts(), []
    data[3] = (data[3][0][..., :7], data[3][1])
    grid = InlineGrid(tmp_path, data)
    grid.offline.add(103)

    def arrive(message):
        if len(grid.asked) > 4:
            grid.offline.discard(103)

    grid.before = arrive
    METHODS["fedavg"].fit(over(grid, notes, silos=3, min_silos=3))
    assert any("its samples have shape (1, 8, 7)" in note["missing"].get("s3", "") for note in notes)


def test_two_silos_of_one_name_are_refused(grid):
    seat = grid.seats[101]
    grid.seats[101] = replace(seat, name="s0")
    with pytest.raises(fedtct.FedtctError, match=r"s0 \(node 101\): another silo has this name"):
        METHODS["fedavg"].fit(over(grid))


def test_a_latecomer_with_a_name_that_is_taken_is_refused_and_the_run_goes_on(grid):
    grid.seats[104] = grid.seats[101]
    grid.offline.add(104)
    grid.before = lambda message: grid.offline.discard(104) if len(grid.asked) > 4 else None
    notes = []
    fit = METHODS["fedavg"].fit(over(grid, notes, silos=4, min_silos=4))
    assert_same(METHODS["fedavg"].fit(local(parts())), fit)
    assert any("another silo has this name" in str(note["missing"]) for note in notes)


def test_nobody_takes_the_name_of_another_silos_key_though_that_silo_is_away(grid):
    grid.offline.add(101)
    grid.seats[104] = grid.seats[101]
    grid.offline.add(104)
    grid.before = lambda message: grid.offline.discard(104) if len(grid.asked) > 3 else None
    keys, notes = {100: "s0", 101: "s1", 104: "s4"}, []
    federation = over(grid, notes, keys=keys, silos=3, min_silos=3)
    METHODS["fedavg"].fit(federation)
    assert list(federation.roster.seats) == ["s0", "s2", "s3"]
    assert any("calls itself 's1'" in note["missing"].get("s4", "") for note in notes)


def test_a_model_of_ones_own_is_made_on_every_machine_by_the_function_that_is_named(grid, tmp_path, monkeypatch):
    (tmp_path / "their_model.py").write_text(
        "from torch import nn\n"
        "def build(shape, outputs):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, outputs))\n"
    )
    monkeypatch.chdir(tmp_path)
    method = replace(TCT, model=import_function("their_model:build", tmp_path))
    assert_same(method.fit(local(parts())), method.fit(over(grid, own_model="their_model:build")))


def test_a_model_without_a_name_is_refused(grid):
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    with pytest.raises(fedtct.FedtctError, match="a model must have a name"):
        fedtct.FedAvg(module, rounds=1).fit(over(grid))


@pytest.mark.parametrize("terms", [{"min_silos": 5}, {"min_silos": 0}, {"round_timeout": 0}])
def test_terms_that_cannot_be_met_are_refused(terms):
    with pytest.raises(fedtct.FedtctError):
        Terms(**{"silos": 4, "min_silos": 4} | terms)
