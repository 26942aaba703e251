"""What silos reply is not believed blindly: a wrong reply is that silo's failure, and the others go on."""

import math
import time

import pytest
import torch
from flower_helpers import METHODS, InlineGrid, Tampered, arrays, config, local, parts

import fedtct
from fedtct.federation.flower.checks import flaw
from fedtct.federation.flower.exchange import Terms
from fedtct.federation.flower.federation import FlowerFederation
from fedtct.federation.flower.wire import VERSION, as_array

pytestmark = pytest.mark.usefixtures("no_pauses")
FEDAVG = fedtct.FedAvg("mlp", rounds=2, local_epochs=1, num_classes=10)


CHANGES = {
    "another name": (lambda content: config(content).update({"fedtct.silo": "s0"}), "it calls itself 's0'"),
    "no name": (lambda content: config(content).pop("fedtct.silo"), "its reply cannot be read (KeyError)"),
    "no array": (
        lambda content: config(content).update({"parameters": b"no array"}),
        "its reply cannot be read (ValueError)",
    ),
    "no arrays": (lambda content: arrays(content).clear(), "its reply lacks 'parameters'"),
    "too little": (lambda content: arrays(content).pop("parameters"), "its reply lacks 'parameters'"),
    "another shape": (
        lambda content: arrays(content).update({"parameters": as_array(torch.zeros(3), fp16=False)}),
        "its 'parameters' has shape (3,), not",
    ),
    "no such number of samples": (lambda content: config(content).update({"n": -5}), "it says that it has -5 samples"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_reply_that_is_wrong_is_left_out_and_says_why(name, tmp_path):
    change, reason = CHANGES[name]
    notes, warnings = [], []
    grid = Tampered(tmp_path, 101, "train", change)
    fit = FEDAVG.fit(FlowerFederation(grid, "run", Terms(4, 3), notes.append, warn=warnings.append))
    failures = [note["missing"] for note in notes if note["question"] == "train"]
    assert [set(missing) for missing in failures] == [{"s1"}] * 2
    assert reason in failures[0]["s1"]
    assert f"s1 did not answer 'train': {failures[0]['s1']}" in warnings
    assert fit.history[1].silos == ("s0", "s2", "s3")


def test_another_version_of_fedtct_is_refused_in_words(tmp_path):
    grid = Tampered(tmp_path, 102, "describe", lambda content: config(content).update({VERSION: "0.0.1"}))
    with pytest.raises(fedtct.FedtctError, match=r"s2: it runs fedtct 0\.0\.1, the server .*: they must be the same"):
        FEDAVG.fit(FlowerFederation(grid, "run", Terms(4, 4)))


def test_what_a_silo_states_stops_the_run_at_once_if_too_few_are_left(tmp_path):
    """It would state it again: nobody waits for it."""
    grid, warnings, notes = InlineGrid(tmp_path, parts()), [], []
    setup = grid.setups[101]

    def gone():
        if grid.asked[-1][1] == "train":
            raise fedtct.FedtctError("the disk with the data is gone")
        return local(parts())[1]

    grid.setups[101] = flower_setup(setup, gone)
    federation = FlowerFederation(
        grid, "run", Terms(4, 4, round_timeout=100.0, wait=100.0), notes.append, warn=warnings.append
    )
    start = time.monotonic()
    with pytest.raises(
        fedtct.FedtctError, match="3 silos answered 'train', but at least 4 must; s1: the disk with the"
    ):
        FEDAVG.fit(federation)
    assert time.monotonic() - start < 50
    assert grid.asked.count((101, "train")) == 1
    assert warnings == ["s1 did not answer 'train': the disk with the data is gone"]
    assert notes[-1]["missing"] == {"s1": "the disk with the data is gone"}


def flower_setup(setup, load):
    return type(setup)(setup.name, load, setup.cache, setup.cache_bytes, setup.device)


START = {"parameters": torch.zeros(3), "buffers": torch.zeros(0)}
TOLD = {"n": 4, "held": 0, "shape": torch.tensor([2]), "kind": "float32", "answers": "labels"}

SCORES = {"samples": 4, "correct": 2, "loss": 1.0}
RATED = {"n": 4} | SCORES | {f"held_{name}": value for name, value in SCORES.items()}
ASSESSED = {"n": 4} | {name: torch.tensor([4, 4]) for name in list(RATED)[1:]}
ASKED = {"w": torch.zeros(2, 3, 2), "train": True}
NORMALISER = {"mean": torch.zeros(2), "scale": torch.ones(2), "limit": torch.tensor([3.0])}
COUNTED = torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("question", "asked", "reply", "reason"),
    [
        ("moments", {}, {"n": 1, "mean": torch.zeros(2), "m2": torch.zeros(3)}, "its 'm2' has shape (3,), not (2,)"),
        ("moments", {}, {"n": 1, "mean": torch.zeros(3), "m2": torch.zeros(3)}, "its 'mean' has shape (3,), not (2,)"),
        (
            "moments",
            {},
            {"n": 1, "mean": "much", "m2": torch.zeros(2)},
            "its 'mean' is not an array of float32, float64",
        ),
        ("moments", {}, {"n": 1, "mean": torch.zeros(2) / 0, "m2": torch.zeros(2)}, "its 'mean' is not finite"),
        ("sums", {}, {"n": 1, "s": COUNTED, "t": torch.zeros(3, 2), "yy": 0.0}, ""),
        ("sums", {}, {"n": 1, "s": torch.zeros(5), "t": torch.zeros(3, 2), "yy": 0.0}, "its 's' has shape (5,)"),
        ("sums", {}, {"n": 1, "s": torch.zeros(3), "t": torch.zeros(2, 2), "yy": 0.0}, "its 's' has shape (3,)"),
        ("regress", {"w": torch.zeros(3, 2)}, {"n": 1, "w": torch.zeros(2, 2)}, "its 'w' has shape (2, 2)"),
        ("calibrate", {"temperatures": torch.ones(4)}, {"n": 0, "losses": torch.ones(4)}, ""),
        ("rate", {}, {"n": 4, "samples": 4, "correct": 2}, "its reply lacks 'loss'"),
        ("rate", {}, {"n": 4} | SCORES, "its reply lacks 'held_samples'"),
        ("rate", {}, RATED | {"loss": math.nan}, ""),
        ("rate", {}, RATED | {"correct": "two"}, "its 'correct' is 'two', not a number"),
        ("rate", {}, RATED | {"held_loss": "x"}, "its 'held_loss' is 'x', not a number"),
        ("rate", {}, RATED | {"held_samples": 0, "held_correct": 0, "held_loss": math.nan}, ""),
        ("assess", ASKED, ASSESSED, ""),
        ("assess", ASKED | {"train": False}, ASSESSED, "its 'samples' does not match its number of samples"),
        ("assess", {"w": torch.zeros(1, 3, 2)}, ASSESSED, "its 'samples' has shape (2,), not (1,)"),
        ("assess", ASKED, ASSESSED | {"held_spread": 1.0}, "its 'held_spread' is not an array"),
        ("assess", ASKED, {"n": 4} | SCORES, "its reply lacks 'held_samples'"),
        ("normalise", NORMALISER, {"n": 4, "largest_eigenvalue": 1.0}, ""),
        ("normalise", NORMALISER, {"n": 4, "largest_eigenvalue": 19.0}, ""),
        (
            "normalise",
            NORMALISER,
            {"n": 4, "largest_eigenvalue": 20.0},
            "its 'largest_eigenvalue' is 20.0, but it must be",
        ),
        (
            "normalise",
            NORMALISER,
            {"n": 4, "largest_eigenvalue": math.inf},
            "its 'largest_eigenvalue' is inf, not a number",
        ),
        ("train", START, {"n": 4, "steps": 2} | START, ""),
        ("train", START, {"n": 4, "steps": 0} | START, "it says that it took 0 steps"),
        ("train", START, {"n": 4, "steps": 2.5} | START, "it says that it took 2.5 steps"),
        ("describe", {}, TOLD, "its reply lacks 'labels'"),
        ("describe", {}, TOLD | {"labels": torch.arange(2)}, ""),
        ("describe", {"private": True}, TOLD, ""),
        (
            "describe",
            {},
            TOLD | {"answers": "numbers", "answer_mean": "x", "answer_m2": 1.0},
            "its 'answer_mean' is 'x'",
        ),
        ("forget", {}, {}, ""),
    ],
)
def test_every_reply_is_looked_at(question, asked, reply, reason):
    found = flaw(question, asked, reply, outputs=2, features=2)
    assert found.startswith(reason) if reason else not found


@pytest.mark.parametrize(
    ("method", "question", "names"),
    [("ridge", "sums", ("s", "t")), ("ridge", "assess", ("held_loss",)), ("tct", "moments", ("mean", "m2"))],
)
def test_a_reply_of_another_size_fails_its_silo_and_not_the_run(method, question, names, tmp_path):
    """A silo that runs another model, say."""
    grid = Tampered(tmp_path, 101, question, lambda content: shorten(content, names))
    notes = []
    METHODS[method].fit(FlowerFederation(holding_out(grid), "run", Terms(4, 3, wait=0.0), notes.append))
    missing = [note["missing"] for note in notes if note["question"] == question]
    assert all("has shape" in found["s1"] for found in missing)


def shorten(content, names):
    for name in names:
        half = arrays(content)[name].numpy()[:1]
        arrays(content)[name] = as_array(torch.from_numpy(half.repeat(2, axis=0)), fp16=False)


def holding_out(grid):
    for node, setup in grid.setups.items():
        grid.setups[node] = flower_setup(setup, lambda load=setup.load: fedtct.Silo(load().x, load().y, holdout=0.2))
    return grid
