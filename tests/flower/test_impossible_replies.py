"""Replies of the right form that no data leads to: they are refused by their silo's name, and honest ones never are."""

import math

import pytest
import torch
from flower_helpers import METHODS, SILOS, TCT, Tampered, arrays, config, over, parts
from hypothesis import given, settings
from hypothesis import strategies as st

import fedtct
from fedtct.federation.flower.checks import flaw
from fedtct.federation.flower.roster import Roster
from fedtct.federation.flower.wire import as_array
from fedtct.questions import QUESTIONS, RATING
from fedtct.tangent import Moments, Normaliser, feature_count
from fedtct.tasks import sorted_names

pytestmark = pytest.mark.usefixtures("no_pauses")

REPLIES = {question: known.reply for question, known in QUESTIONS.items() if known.reply}
COUNTED = sorted(REPLIES.keys() - {"describe", "calibrate"})  # questions whose replies are of all that a silo trains on


class Recorder(fedtct.LocalFederation):
    """Keeps the first exchange of every question, with what the server knows by then."""

    def __init__(self, silos):
        super().__init__(silos)
        self.exchanges = {}

    def use(self, spec):
        super().use(spec)
        self.spec = spec

    def deliver(self, question, message):
        replies = super().deliver(question, message)
        self.exchanges.setdefault(question, (message, replies))
        return replies

    def flaw(self, question, change=None, place=0):
        """What is found in a reply, honest but for what is changed in it."""
        asked, replies = self.exchanges[question]
        reply, silo = replies[place] | (change or {}), self.silos[place]
        features = min(asked["p"], feature_count(self.spec)) if "p" in asked else 0
        told = {"samples": len(silo), "held_out": len(silo.held_y)}
        return flaw(question, asked, reply, self.spec.num_classes, features, **told)


@pytest.fixture(scope="module")
def recorder():
    found = Recorder([fedtct.Silo(x, y, holdout=0.2) for x, y in parts()])
    for method in ("fedavg", "ridge", "tct"):
        METHODS[method].fit(found)
    assert found.exchanges.keys() == REPLIES.keys()
    return found


@pytest.mark.parametrize("question", REPLIES)
def test_no_honest_reply_is_refused(question, recorder):
    assert [recorder.flaw(question, place=place) for place in range(SILOS)] == [""] * SILOS


@pytest.mark.parametrize("n", [0, -1, 10**18, 1, 2.0, True, "many", None])
@pytest.mark.parametrize("question", COUNTED)
def test_a_silo_has_as_many_samples_as_it_told(question, n, recorder):
    assert recorder.flaw(question, {"n": n}).startswith(f"it says that it has {n!r} samples")


@pytest.mark.parametrize("question", COUNTED)
def test_where_it_is_not_known_how_many_it_told_it_has_some(question):
    asked = {"w": torch.zeros(1), "train": True, "mean": torch.zeros(0), "limit": torch.ones(1)}
    assert flaw(question, asked, dict.fromkeys(REPLIES[question], 0), 1, 1) == "it says that it has 0 samples"


@pytest.mark.parametrize("question", ["train", "regress", "evaluate", "rate", "assess"])
def test_whoever_was_asked_for_scores_tells_them_all(question, recorder):
    asked, (reply, *_) = recorder.exchanges[question]
    for name in RATING:
        rest = {key: value for key, value in reply.items() if key != name}
        assert flaw(question, asked, rest, 10, 0) == f"its reply lacks '{name}'"
    if question in ("train", "regress"):
        unrated = {key: value for key, value in reply.items() if key in REPLIES[question]}
        assert not flaw(question, asked | {"evaluate": False}, unrated, 10, 0)


NONSENSE = [None, True, -1, 0, 2.5, 1e200, -1e200, math.nan, math.inf, "", "many", b"", [], ["a"], [1, 2]]
NONSENSE += [torch.zeros(1, dtype=kind) for kind in (torch.uint16, torch.uint64, torch.float16, torch.complex64)]
NONSENSE += [torch.tensor(values) for values in (0, [], [0.5], [-1], [2**62, 2**62], [[1, 2]], [True], [1j] * 9)]


@pytest.mark.parametrize("question", REPLIES)
def test_whatever_is_in_a_reply_it_is_refused_or_taken(question, recorder):
    """Looking at it does not end the run, either."""
    for name, honest in (dict.fromkeys(RATING) | recorder.exchanges[question][1][0]).items():
        kinds = (torch.uint16, torch.uint32, torch.float16)
        others = [honest * 1j, honest > 0, -honest, *map(honest.to, kinds)] if isinstance(honest, torch.Tensor) else []
        for value in NONSENSE + others:
            assert isinstance(recorder.flaw(question, {name: value}), str)


CHANGES = [
    ("moments", "m2", lambda m2: m2 - m2.max(), "its 'm2' is negative"),
    ("normalise", "largest_eigenvalue", lambda _: -1.0, "its 'largest_eigenvalue' is -1.0, but it must be from 1"),
    ("normalise", "largest_eigenvalue", lambda _: 0.0, "its 'largest_eigenvalue' is 0.0, but it must be from 1"),
    ("normalise", "largest_eigenvalue", lambda _: 1e20, "its 'largest_eigenvalue' is 1e+20, but it must be from 1"),
    ("normalise", "largest_eigenvalue", lambda _: math.nan, "its 'largest_eigenvalue' is nan, not a number"),
    ("sums", "yy", lambda yy: -yy, "its 'yy' is negative"),
    ("sums", "s", lambda s: 2 * s, "its 's' does not match its number of samples"),
    ("calibrate", "n", lambda _: -1, "it says that it has -1 samples"),
    ("calibrate", "n", lambda n: n + 10**9, "it says that it judged by 10000000"),
    ("calibrate", "losses", lambda losses: -losses, "its 'losses' is negative"),
    ("calibrate", "losses", lambda losses: losses / 0, "its 'losses' is not finite"),
    *(
        (question, which + name, change, f"its '{which}{reason}")
        for question in ("train", "evaluate", "regress", "rate", "assess")
        for which in ("", "held_")
        for name, change, reason in [
            ("correct", lambda correct: correct + 10**6, "correct' is more than its"),
            ("correct", lambda correct: correct - 10**6, "correct' is negative"),
            ("loss", lambda loss: -loss - 1, "loss' is negative"),
        ]
    ),
    *(
        (question, name, lambda samples: samples + 10**6, f"its '{name}' does not match its number of samples")
        for question in ("train", "evaluate", "regress", "rate", "assess")
        for name in ("samples", "held_samples")
    ),
]


@pytest.mark.parametrize(("question", "name", "change", "reason"), CHANGES)
def test_what_no_data_leads_to_is_refused(question, name, change, reason, recorder):
    value = recorder.exchanges[question][1][0][name]
    assert recorder.flaw(question, {name: change(value)}).startswith(reason)


@settings(max_examples=30, deadline=None)
@given(
    known=st.integers(2, 30),
    newcomers=st.integers(1, 30),
    features=st.integers(1, 40),
    far=st.floats(1e-3, 1e3),
    seed=st.integers(0, 99),
)
def test_the_largest_eigenvalue_of_any_features_can_be(known, newcomers, features, far, seed):
    """Of a silo that the normaliser does not know, too, whose features are all cut off."""
    draws = torch.Generator().manual_seed(seed)
    normaliser = Normaliser.of(Moments.of([torch.randn(known, features, generator=draws)]))
    z = normaliser(far * torch.randn(newcomers, features, generator=draws) + far)
    found = float(torch.linalg.matrix_norm(z, 2)) ** 2 / newcomers
    reply = {"n": newcomers, "largest_eigenvalue": found}
    assert not flaw("normalise", normaliser._asdict(), reply, 2, 0, samples=newcomers)
    every = Normaliser.identity(features)._asdict()  # which cuts nothing off
    assert not flaw("normalise", every, reply | {"largest_eigenvalue": 1e30}, 2, 0, samples=newcomers)


def set_m2(content):
    m2 = torch.from_numpy(arrays(content)["m2"].numpy())
    arrays(content)["m2"] = as_array(m2 - 10**6, fp16=False)


def double(name):
    def change(content):
        arrays(content)[name] = as_array(torch.from_numpy(arrays(content)[name].numpy()).double(), fp16=False)

    return change


def unsigned(content):
    arrays(content)["correct"] = as_array(
        torch.from_numpy(arrays(content)["correct"].numpy()).to(torch.uint16), fp16=False
    )


def without_scores(content):
    for name in [name for name in config(content) if name.removeprefix("held_") in ("samples", "correct", "loss")]:
        del config(content)[name]


PATIENT = fedtct.FedAvg("mlp", rounds=2, local_epochs=1, patience=5)
PATIENT_STAGE2 = fedtct.TCT("mlp", TCT.stage1, TCT.features, fedtct.ScaffoldRegression(rounds=2, steps=5, patience=5))
UNRATED = fedtct.FedAvg("mlp", rounds=2, local_epochs=1, evaluate_every=2)
RUNS = {
    "squares below zero": (METHODS["tct"], "moments", set_m2),
    "no eigenvalue": (METHODS["tct"], "normalise", lambda content: config(content).update(largest_eigenvalue=0.0)),
    "too large an eigenvalue": (
        METHODS["tct"],
        "normalise",
        lambda content: config(content).update(largest_eigenvalue=1e200),
    ),
    "no samples": (METHODS["fedavg"], "train", lambda content: config(content).update(n=0)),
    "far too many samples": (UNRATED, "train", lambda content: config(content).update(n=10**18)),
    "a model in double precision": (METHODS["tct"], "regress", double("w")),
    "weights in double precision": (METHODS["fedavg"], "train", double("parameters")),
    "counts without a sign": (METHODS["ridge"], "assess", unsigned),
    "no scores of networks": (PATIENT, "train", without_scores),
    "no scores of linear models": (PATIENT_STAGE2, "regress", without_scores),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_silo_is_left_out_and_the_others_go_on(name, tmp_path):
    method, question, change = RUNS[name]
    grid, notes = Tampered(tmp_path, 100, question, change, holdout=0.2), []
    method.fit(over(grid, notes, min_silos=3))
    missing = [set(note["missing"]) for note in notes if note["question"] == question]
    assert missing
    assert all(names == {"s0"} for names in missing)


def test_a_silo_that_tells_of_more_samples_than_there_can_be_fills_no_memory(tmp_path):
    grid, notes = Tampered(tmp_path, 100, "describe", lambda content: config(content).update(n=2**63 - 1)), []
    METHODS["fedavg"].fit(over(grid, notes, min_silos=3))
    assert all(set(note["missing"]) == {"s0"} for note in notes if note["question"] == "train")


def test_numbers_of_thousands_of_digits_are_names_as_any_other():
    names = {"1" * 5000, "2", "10"}
    assert sorted_names(names) == tuple(sorted(names))
    assert sorted_names({"2", "10"}) == ("2", "10")
    roster = Roster()
    roster.seat({"a" + "1" * 5000, "a2", "a10"}, {})
    assert roster.seats["a2"] < roster.seats["a10"]


def test_a_round_of_no_samples_at_all_is_no_round(tmp_path):
    grid = Tampered(tmp_path, 100, "train", lambda content: config(content).update(n=0), silos=1)
    with pytest.raises(fedtct.FedtctError, match=r"0 silos answered 'train'.*s0: it says that it has 0 samples"):
        METHODS["fedavg"].fit(over(grid))
