"""The same algorithms over messages: the same models, and every byte counted."""

from dataclasses import replace

import pytest
import torch
from flower_helpers import METHODS, TCT, InlineGrid, assert_same, local, over, parts
from flwr.app import Context, RecordDict
from flwr.common.serde import recorddict_to_proto

from fedtct.deploy.client_app import reply
from fedtct.federation.flower.wire import pack, sent_bytes, unpack
from fedtct.importing import import_function
from fedtct.models import build_own

pytestmark = pytest.mark.usefixtures("no_pauses")


@pytest.mark.parametrize("name", METHODS)
def test_every_method_gives_the_model_it_gives_in_this_process(name, tmp_path):
    data = parts()
    here = METHODS[name].fit(local(data, holdout=0.2))
    there = METHODS[name].fit(over(InlineGrid(tmp_path, data, holdout=0.2)))
    assert_same(here, there)
    assert [row.train_loss for row in here.history] == pytest.approx([row.train_loss for row in there.history])


def test_silos_with_numbers_sit_in_their_order(tmp_path):
    """What a silo draws follows from its seat: the tenth is not between the first and the second."""
    data, method = parts(silos=11), replace(METHODS["fedavg"], batch_size=8)
    assert_same(method.fit(local(data)), method.fit(over(InlineGrid(tmp_path, data))))


def test_noise_follows_from_a_silos_secret_and_the_run(tmp_path):
    """A silo with a secret: nobody who knows the seed can take its noise away, nor one who knows another run's."""

    def model(grid, run="run"):
        return METHODS["private ridge"].fit(over(grid, run=run)).model._tensors()["w"]

    grid = InlineGrid(tmp_path, parts())
    public = model(grid)
    grid.setups = {node: replace(setup, secret="mine") for node, setup in grid.setups.items()}
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
    setup, context = replace(grid.setups[100], secret=secret), Context(1, 100, {}, RecordDict(), {})
    answers = []
    for number in (0, 1):
        asked[question].content.config_records["config"]["fedtct.seat"] = number
        answers.append(unpack(reply(asked[question], context, setup))[0])
    key = "parameters" if question == "train" else "s"
    assert torch.equal(answers[0][key], answers[1][key]) == bool(secret)


def test_bytes_are_those_of_the_messages(grid):
    notes = []
    fit = METHODS["fedavg"].fit(over(grid, notes))
    weights = fit.model._tensors()["parameters"].nbytes
    assert weights < fit.history[1].bytes_up < weights + 2000
    assert set(notes[0]["bytes_down"]) == set(notes[0]["bytes_up"]) == {"s0", "s1", "s2", "s3"}
    assert fit.history[1].bytes_up == pytest.approx(sum(notes[1]["bytes_up"].values()) / 4, abs=1)
    assert dict(zip(fit.history[1].silos, fit.history[1].silo_bytes_up, strict=True)) == notes[1]["bytes_up"]
    assert dict(zip(fit.history[1].silos, fit.history[1].silo_bytes_down, strict=True)) == notes[1]["bytes_down"]


def test_what_is_not_trained_is_sent_once(grid):
    notes = []
    fit = METHODS["last layer"].fit(over(grid, notes))
    head = fit.model.network.module.get_submodule(fit.model.network.head)
    trained, every = (sum(p.nbytes for p in m.parameters()) for m in (head, fit.model.network.module))
    assert trained < 0.1 * every
    for row in fit.history[2:]:
        assert trained < row.bytes_up < trained + 2000
        assert trained < row.bytes_down < trained + 2000
    assert every < fit.history[1].bytes_down < every + 4000
    asked = [note for note in notes if note["question"] in ("freeze", "train")]
    assert [note["question"] for note in asked] == ["freeze", "train", "train", "train"]
    for way in ("down", "up"):
        sent = sum(sum(note[f"bytes_{way}"].values()) for note in asked)
        assert sum(sum(getattr(row, f"silo_bytes_{way}")) for row in fit.history) == sent


def test_bytes_are_counted_as_flower_serialises_them():
    content = pack({"w": torch.zeros(301, 10), "mean": torch.zeros(300), "n": 7}, {"fedtct.silo": "s0"})
    assert sent_bytes(content) == pytest.approx(recorddict_to_proto(content).ByteSize(), abs=24)


def test_half_precision_halves_the_bytes_and_hardly_changes_the_model(grid, tmp_path):
    full = METHODS["fedavg"].fit(over(grid))
    half = METHODS["fedavg"].fit(over(grid, run="half", fp16=True))
    assert half.history[1].bytes_up < 0.51 * full.history[1].bytes_up
    assert_same(full, half, tolerance=2e-2)
    assert half.model._tensors()["parameters"].dtype == torch.float32


@pytest.mark.parametrize("name", ["scaffold", "feddyn", "conjugate gradients"])
def test_where_steps_are_corrected_weights_travel_in_full(name, grid):
    """Rounding errors would add up, round by round."""
    method = METHODS[name]
    if name == "conjugate gradients":
        method = replace(method, stage1=replace(method.stage1, rounds=0))
    full = method.fit(over(grid, run="full"))
    half = method.fit(over(grid, run="half", fp16=True))
    assert_same(full, half)
    assert half.history[-1].bytes_up == full.history[-1].bytes_up


@pytest.mark.parametrize("large", [7e4, -1e30, float("inf"), float("nan")])
def test_what_half_precision_cannot_hold_travels_in_full(large):
    message = {"parameters": torch.tensor([1.0, large]), "w": torch.tensor([1 / 3])}
    arrived, _ = unpack(pack(message, {}, fp16=True))
    torch.testing.assert_close(arrived["parameters"], message["parameters"], rtol=0, atol=0, equal_nan=True)
    assert float(arrived["w"]) == float(torch.tensor(1 / 3).half())


def test_half_precision_leaves_scales_and_statistics_alone(grid):
    full, half = TCT.fit(over(grid)), TCT.fit(over(grid, run="half", fp16=True))
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
    counts = [sum(asked == (node, "moments") for asked in grid.asked) for node in grid.setups]
    assert counts == [2, 2, 1, 1]


def test_a_model_of_ones_own_is_made_on_every_machine_by_the_function_that_is_named(grid, tmp_path, monkeypatch):
    (tmp_path / "their_model.py").write_text(
        "from torch import nn\n"
        "def build(shape, outputs):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, outputs))\n"
    )
    monkeypatch.chdir(tmp_path)
    method = replace(TCT, model=import_function("their_model:build", tmp_path))
    assert_same(method.fit(local(parts())), method.fit(over(grid, own_model="their_model:build")))


def test_what_a_model_of_ones_own_draws_is_the_same_on_every_machine(grid, tmp_path, monkeypatch):
    (tmp_path / "drawing_model.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "class Drawing(nn.Module):\n"
        "    def __init__(self, outputs):\n"
        "        super().__init__()\n"
        "        self.register_buffer('order', torch.randperm(64))\n"
        "        self.signs, self.head = torch.randn(64).sign(), nn.Linear(64, outputs)\n"
        "    def forward(self, x):\n"
        "        return self.head(x.flatten(1)[:, self.order] * self.signs)\n"
        "def build(shape, outputs):\n"
        "    return Drawing(outputs)\n"
    )
    monkeypatch.chdir(tmp_path)
    build = import_function("drawing_model:build", tmp_path)
    method = replace(TCT, model=build, stage1=replace(TCT.stage1, seed=3))
    assert_same(method.fit(local(parts())), method.fit(over(grid, own_model="drawing_model:build")))


def test_buffers_that_are_no_weights_reach_the_silos_from_the_servers_file(grid, tmp_path, monkeypatch):
    """But for BatchNorm's counter, which every training begins with as it was, here and there."""
    (tmp_path / "ordered_model.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "class Ordered(nn.Module):\n"
        "    def __init__(self, outputs):\n"
        "        super().__init__()\n"
        "        self.register_buffer('order', torch.randperm(64))\n"
        "        self.register_buffer('mask', torch.rand(64) > 0.2)\n"
        "        self.register_buffer('phases', torch.polar(torch.ones(64), torch.rand(64)))\n"
        "        self.norm, self.head = nn.BatchNorm1d(64, momentum=None), nn.Linear(64, outputs)\n"
        "    def forward(self, x):\n"
        "        return self.head(self.norm((x.flatten(1)[:, self.order] * self.mask * self.phases).real))\n"
        "def build(shape, outputs):\n"
        "    return Ordered(outputs)\n"
    )
    monkeypatch.chdir(tmp_path)
    build = import_function("ordered_model:build", tmp_path)
    trained = build_own(build, (1, 8, 8), 10, seed=99)
    trained.norm.num_batches_tracked += 7
    torch.save(trained.state_dict(), tmp_path / "trained.pt")
    method = replace(TCT, model=build, stage1=replace(TCT.stage1, init_weights=tmp_path / "trained.pt"))
    here, there = method.fit(local(parts())), method.fit(over(grid, own_model="ordered_model:build"))
    assert torch.equal(there.model.network.fixed()["order"], trained.order)
    assert_same(here, there, tolerance=0)
