"""Whatever a server's messages ask for, a silo runs no other code, and one with a budget tells nothing unpaid."""

import json
from dataclasses import replace

import pytest
import torch
from flower_helpers import METHODS, InlineGrid, config, over, parts
from flwr.app import Context, RecordDict
from flwr.app import Message as FlowerMessage

import fedtct
from fedtct import FedtctError, privacy
from fedtct.deploy.client_app import UNTOLD, client_app
from fedtct.deploy.privacy_budget import Budget
from fedtct.federation.wire import ERROR, unpack

pytestmark = pytest.mark.usefixtures("no_pauses")
NODE, NOISE, CLIP = 100, 3.0, 0.5
FEDAVG = fedtct.FedAvg("mlp", rounds=1, local_epochs=1, num_classes=10, clip=CLIP, noise=NOISE)
PRIVATE = fedtct.TCT("mlp", FEDAVG, fedtct.TangentFeatures(p=300), fedtct.Ridge(d=50, noise=NOISE))


class Recording(InlineGrid):
    """Keeps what one silo was asked, so that it can be asked again with changes."""

    def __init__(self, folder, budget=False):
        super().__init__(folder, parts())
        self.questions = {}
        if budget:
            self.seats[NODE] = replace(self.seats[NODE], budget=Budget(50.0, 1e-5, folder), secret="secret")

    def push_messages(self, messages):
        messages = list(messages)
        for message in messages:
            if message.metadata.dst_node_id == NODE:
                self.questions[config(message.content)["fedtct.question"]] = message
        return super().push_messages(messages)

    def ask_again(self, question, network=None, **changes):
        """The reply, and what it says went wrong."""
        asked = self.questions[question]
        content = RecordDict(dict(asked.content))
        settings = config(content).copy()
        settings.update(changes)
        if network is not None:
            record = json.loads(settings["fedtct.network"])
            network(record)
            settings["fedtct.network"] = json.dumps(record)
        content["config"] = settings
        again = FlowerMessage(content, reply_to=asked)
        again.metadata.__dict__.update(asked.metadata.__dict__)
        reply = client_app(lambda context: self.seats[NODE])(again, Context(1, NODE, {}, RecordDict(), {}))
        message, own = unpack(reply.content)
        return message, own.get(ERROR)

    @property
    def spent(self):
        return self.seats[NODE].budget.spent()


@pytest.fixture
def careful(tmp_path):
    """A silo with a budget that has answered a private run."""
    grid = Recording(tmp_path, budget=True)
    PRIVATE.fit(over(grid))
    return grid


@pytest.mark.parametrize("question", ["train", "sums"])
def test_what_is_asked_again_gets_the_same_answer_for_nothing(careful, question):
    before = careful.spent
    (one, _), (two, _) = (careful.ask_again(question) for _ in range(2))
    name = "parameters" if question == "train" else "t"
    assert torch.equal(one[name], two[name])
    assert careful.spent == before


@pytest.mark.parametrize("question", ["train", "sums"])
def test_another_network_is_another_release(careful, question):
    """With the same noise, the difference of both answers would tell of the samples without any."""
    before, name = careful.spent, "parameters" if question == "train" else "t"
    plain, _ = careful.ask_again(question)
    other, error = careful.ask_again(question, lambda record: record["inputs"].update(mean=[0.3]))
    assert error is None
    assert careful.spent > before
    deviation = float((plain[name] - other[name]).std())
    sensitivity = privacy.update_sensitivity(CLIP) if question == "train" else privacy.sums_sensitivity(10)
    assert deviation == pytest.approx(2**0.5 * NOISE * sensitivity, rel=0.2)


def numbers(record):
    record["task"] = {"kind": "regression", "mean": 0.0, "std": 1e-6}
    record["num_classes"] = 1


def two_classes(record):
    record["num_classes"] = 2


def named(record):
    record["task"] = {"kind": "classification", "names": ["0", "1"]}


@pytest.mark.parametrize("question", ["train", "sums"])
@pytest.mark.parametrize("change", [numbers, two_classes, named])
def test_what_cannot_be_answered_is_told_in_the_same_words(careful, question, change):
    """Labels that a message does not allow, or targets that nothing bounds, would be told by another error."""
    before = careful.spent
    assert careful.ask_again(question, change) == ({}, UNTOLD)
    assert careful.spent == before


def test_noise_hides_no_more_of_a_silo_than_its_gradients_alone(careful):
    """What SCAFFOLD remembers depends on the samples, and is in its update."""
    answer, error = careful.ask_again("train", correction="scaffold")
    assert answer == {}
    assert "'train' came without" in error


@pytest.mark.parametrize(
    ("own_model", "shape"),
    [
        ("subprocess:call", ["touch", "called"]),
        ("os:system", ["touch called"]),
        ("torch.hub:load", ["somewhere/evil", "model"]),
        ("json", [3]),
        ("json:tool:main", [3]),
    ],
)
def test_a_message_can_call_no_function_but_the_apps(tmp_path, monkeypatch, own_model, shape):
    monkeypatch.chdir(tmp_path)
    grid = Recording(tmp_path)
    METHODS["fedavg"].fit(over(grid))

    def hostile(record):
        record["own_model"] = own_model
        record["inputs"]["shape"] = shape

    answer, error = grid.ask_again("train", hostile)
    assert answer == {}
    assert "and others are not used here" in error or "names no function" in error
    assert not (tmp_path / "called").exists()


def test_a_function_of_the_app_is_called_with_numbers_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hostile_app.py").write_text("from subprocess import call as build\n")
    grid = Recording(tmp_path)
    METHODS["fedavg"].fit(over(grid))

    def hostile(record):
        record["own_model"] = "hostile_app:build"
        record["inputs"]["shape"] = ["touch", "called"]

    answer, error = grid.ask_again("train", hostile)
    assert answer == {}
    assert "ValueError" in error
    assert not (tmp_path / "called").exists()


def test_a_private_run_that_goes_wrong_says_where_to_look(tmp_path):
    grid = Recording(tmp_path, budget=True)
    load = grid.seats[NODE].load
    grid.seats[NODE] = replace(grid.seats[NODE], load=lambda: _far_labels(load()))
    with pytest.raises(FedtctError, match="only its own log says why"):
        FEDAVG.fit(over(grid, min_silos=4))


def _far_labels(silo):
    silo.y = silo.y + 20
    return silo
