"""Whatever a server's messages ask for, a silo runs no other code, and one with a budget tells nothing unpaid."""

import base64
import json
import math
import shutil
import zlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from flower_helpers import METHODS, InlineGrid, arrays, config, over, parts
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, RecordDict
from flwr.app import Message as FlowerMessage

import fedtct
from fedtct import FedtctError, privacy
from fedtct.deploy.client_app import UNTOLD, client_app
from fedtct.deploy.privacy_budget import SPENT, Budget
from fedtct.federation.flower import post
from fedtct.federation.flower.wire import ERROR, fixed_buffers, unpack
from fedtct.seated_silo import SeatedSilo

pytestmark = pytest.mark.usefixtures("no_pauses")
NODE, NOISE, CLIP = 100, 3.0, 0.5
ABOUT = "this silo answers only with differential privacy, and only about arrays with labels from 0"
FEDAVG = fedtct.FedAvg("mlp", rounds=1, local_epochs=1, num_classes=10, clip=CLIP, noise=NOISE)
PRIVATE = fedtct.TCT("mlp", FEDAVG, fedtct.TangentFeatures(p=300), fedtct.Ridge(d=50, noise=NOISE))


class Recording(InlineGrid):
    """Keeps what one silo was asked, so that it can be asked again with changes."""

    def __init__(self, folder, budget=False):
        super().__init__(folder, parts())
        self.questions = {}
        if budget:
            self.setups[NODE] = replace(self.setups[NODE], budget=Budget(50.0, 1e-5, folder), secret="secret")

    def push_messages(self, messages):
        messages = list(messages)
        for message in messages:
            if message.metadata.dst_node_id == NODE:
                self.questions[config(message.content)["fedtct.question"]] = message
        return super().push_messages(messages)

    def ask_again(self, question, network=None, as_array=None, **changes):
        """The reply, and what it says went wrong; some settings may come as arrays."""
        asked = self.questions[question]
        content = RecordDict(dict(asked.content))
        settings = config(content).copy()
        settings.update(changes)
        if as_array:
            content["arrays"] = ArrayRecord(dict(arrays(content)) | {k: Array(v) for k, v in as_array.items()})
            settings = ConfigRecord({name: value for name, value in settings.items() if name not in as_array})
        if network is not None:
            record = json.loads(settings["fedtct.network"])
            network(record)
            settings["fedtct.network"] = json.dumps(record)
        content["config"] = settings
        again = FlowerMessage(content, reply_to=asked)
        again.metadata.__dict__.update(asked.metadata.__dict__)
        reply = client_app(lambda context: self.setups[NODE])(again, Context(1, NODE, {}, RecordDict(), {}))
        message, own = unpack(reply.content)
        return message, own.get(ERROR)

    @property
    def spent(self):
        return self.setups[NODE].budget.spent()


@pytest.fixture(scope="module")
def answered(tmp_path_factory):
    """The folder of silos that have answered a private run, and what one of them was asked."""
    folder = tmp_path_factory.mktemp("answered")
    grid = Recording(folder, budget=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(post, "POLL_SECONDS", 0.01)
        PRIVATE.fit(over(grid))
    return folder, grid.questions


@pytest.fixture
def careful(answered, tmp_path):
    """A silo with a budget that has answered a private run."""
    folder, questions = answered
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    grid = Recording(tmp_path, budget=True)
    grid.questions.update(questions)
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
@pytest.mark.parametrize(("change", "told"), [(numbers, ABOUT), (two_classes, UNTOLD), (named, ABOUT)])
def test_what_cannot_be_answered_is_told_in_the_same_words(careful, question, change, told):
    """Labels that a message does not allow, or targets that nothing bounds, would be told by another error."""
    before = careful.spent
    assert careful.ask_again(question, change) == ({}, told)
    assert careful.spent == before


@pytest.mark.parametrize("classes", range(2, 11))
def test_whether_it_answers_tells_nothing_of_its_labels(careful, classes):
    """A question that costs nothing, about networks of any number of classes."""
    load = careful.setups[NODE].load

    def with_labels(*labels):
        silo = load()
        silo.y = torch.tensor(labels).repeat(len(silo))[: len(silo)]
        return silo

    told = []
    for labels in ((0, 1), (2, 3), (2, 9)):
        careful.setups[NODE] = replace(careful.setups[NODE], load=lambda labels=labels: with_labels(*labels))
        answer = careful.ask_again(
            "train", lambda record: record.update(num_classes=classes), **{"fedtct.question": "freeze"}
        )
        told.append(answer)
    assert told == [({}, None)] * 3


@pytest.mark.parametrize(
    ("question", "changes"),
    [
        ("train", {"as_array": {"clip": np.array(128, np.uint8)}}),  # twice which is nothing, in bytes
        ("train", {"as_array": {"clip": np.array([128], np.uint8), "noise": np.array(3.0)}}),
        ("sums", {"as_array": {"noise": np.array([3], np.int8)}}),
        *(
            (question, {name: value})
            for question, names in {"train": ("noise", "clip"), "sums": ("noise",)}.items()
            for name in names
            for value in (math.inf, math.nan, 1e150, 1e-200, -1.0, 0.0, True, "much")
        ),
    ],
)
def test_noise_is_a_plain_number(careful, question, changes):
    before = careful.spent
    answer, error = careful.ask_again(question, **changes)
    assert answer == {}
    assert f"'{question}' came without" in error
    assert careful.spent == before
    with pytest.raises(FedtctError, match="noise and clip must be plain numbers"):  # nor where the run alone insists
        SeatedSilo(careful.setups[NODE].load(), 0, torch.device("cpu"))._release(
            question, {"noise": 3.0} | changes | changes.get("as_array", {}), {}
        )


def test_an_account_that_is_damaged_is_not_taken_for_a_new_one(careful):
    file = careful.setups[NODE].budget.folder / SPENT
    file.write_text(json.dumps({"run": {"release": None}}))
    with pytest.raises(FedtctError, match=r"privacy-spent\.json is damaged"):
        _ = careful.spent


def test_a_silo_with_a_budget_does_not_say_that_its_data_changed(careful):
    replies, setup = [], careful.setups[NODE]
    for data in ("one", "other"):
        careful.setups[NODE] = replace(setup, fingerprint=lambda data=data: data)
        told, wrong = careful.ask_again("describe")
        assert wrong is None
        replies.append({name: str(value) for name, value in told.items()})
    assert replies[0] == replies[1]


def test_a_name_of_a_run_is_short(careful):
    before = careful.spent
    assert careful.ask_again("sums", **{"fedtct.run": "a" * 10**6}) == ({}, UNTOLD)
    assert careful.spent == before


def test_a_few_bytes_do_not_become_very_many():
    bomb = base64.b64encode(zlib.compress(bytes(2**28 + 1), 1)).decode()
    with pytest.raises(FedtctError, match="take more than 256 MiB"):
        fixed_buffers({"fixed": bomb})


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
    assert "and others are not used here" in error or "does not name a function" in error
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
    load = grid.setups[NODE].load
    grid.setups[NODE] = replace(grid.setups[NODE], load=lambda: _torn(load()))
    with pytest.raises(FedtctError, match="only its own log says why"):
        FEDAVG.fit(over(grid, min_silos=4))


def _torn(silo):
    """It has fewer samples than labels, which no training can work with."""
    silo.x = silo.x[:1]
    return silo


def test_labels_that_there_is_no_class_for_are_told_in_the_silos_own_log_alone(tmp_path):
    grid, said = Recording(tmp_path, budget=True), []
    load = grid.setups[NODE].load
    grid.setups[NODE] = replace(grid.setups[NODE], load=lambda: _far_labels(load()), say=said.append)
    FEDAVG.fit(over(grid, min_silos=4))
    assert any("labels are beyond the run's 10 classes, and count as the last" in line for line in said)


def _far_labels(silo):
    silo.y = silo.y + 20
    return silo
