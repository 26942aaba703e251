"""A saved model predicts the same bits, and a folder that is none is refused."""

import json
import warnings
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from core_helpers import tct
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from fedtct import (
    Classifier,
    FedAvg,
    FedtctError,
    NetworkClassifier,
    Ridge,
    ScaffoldRegression,
    Silo,
    TangentClassifier,
)

SHAPE, CLASSES = (1, 16, 16), 3
TRAIN = FedAvg(rounds=1, local_epochs=1, batch_size=8)


class Own(nn.Module):
    """Its head is not its last linear layer, so it has to be named."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, CLASSES)
        self.other = nn.Linear(4, 4)

    def forward(self, x):
        return self.head(self.other(torch.relu(self.norm(self.conv(x))).mean((2, 3))))


class Drawing(nn.Module):
    """Draws a permutation, a mask and phases that nobody learns, and projections that are not even buffers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("order", torch.randperm(256))
        self.register_buffer("mask", torch.rand(256) > 0.5, persistent=False)
        self.register_buffer("phases", torch.randn(256, dtype=torch.complex128))
        self.projections = torch.randn(256, 8)
        self.norm, self.head = nn.BatchNorm1d(8), nn.Linear(8, CLASSES)

    def forward(self, x):
        x = x.flatten(1)[:, self.order] * self.mask
        return self.head(self.norm((x * self.phases).real.float() @ self.projections))


def drawing(shape, outputs):
    return Drawing()


def images(kind: torch.dtype = torch.uint8, n: int = 30) -> torch.Tensor:
    draws = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (n, *SHAPE), generator=draws, dtype=torch.uint8)
    return x if kind == torch.uint8 else x.to(kind) / 255


def silos(kind: torch.dtype = torch.uint8) -> list[Silo]:
    x, y = images(kind), torch.arange(30) % CLASSES
    return [Silo(x[:20], y[:20]), Silo(x[20:], y[20:])]


def train_for(model):
    return replace(TRAIN, head="head") if isinstance(model, Own) else TRAIN


def network_model(model, kind=torch.uint8):
    return replace(train_for(model), model=model).fit(silos(kind)).model


def tangent_model(model, kind=torch.uint8, stage2=None, **features):
    stage2 = stage2 or ScaffoldRegression(rounds=2, steps=5, lr="auto")
    return tct(model, stage2, stage1=train_for(model), p=40, **features).fit(silos(kind)).model


MAKERS = {
    "registered network": lambda: network_model("simple-cnn"),
    "network on float data": lambda: network_model("mlp", torch.float32),
    "own network": lambda: network_model(Own()),
    "own network in float64": lambda: network_model(Own().double(), torch.float64),
    "registered tangent": lambda: tangent_model("mlp"),
    "own tangent": lambda: tangent_model(Own(), seed=5),
    "own tangent in float64": lambda: tangent_model(Own().double(), torch.float64),
    "ridge, not normalised": lambda: tangent_model("mlp", stage2=Ridge(d=20), normalize=False),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_saved_model_predicts_the_same_bits(name, tmp_path):
    model = MAKERS[name]()
    model.save(tmp_path / "deep" / "model")
    own = Own().to(model.spec.model.conv.weight.dtype) if name.startswith("own") else None
    for kind in (type(model), Classifier):
        loaded = kind.load(tmp_path / "deep" / "model", model=own)
        assert type(loaded) is type(model)
        x = images(model.spec.inputs.dtype, n=50)
        assert torch.equal(loaded.scores(x), model.scores(x))
        assert torch.equal(loaded.predict(x), model.scores(x).argmax(1))


@pytest.mark.parametrize(
    "around", [torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)], ids=["inference_mode", "autocast"]
)
@pytest.mark.parametrize("name", [name for name in MAKERS if "network" not in name])
def test_a_tangent_model_predicts_the_same_bits_in_any_mode_that_a_service_sets(around, name):
    model, own = MAKERS[name](), Own() if name.startswith("own") else None
    own = own and own.to(model.spec.model.conv.weight.dtype)
    data, x = model.to_bytes(), images(model.spec.inputs.dtype)
    with around(), warnings.catch_warnings():
        warnings.simplefilter("error")  # nor is it slower there
        found = [m.scores(x.clone()) for m in (Classifier.from_bytes(data, own), model)]
    assert all(torch.equal(scores, Classifier.from_bytes(data, own).scores(x)) for scores in found)


def test_nothing_in_a_saved_model_can_run(tmp_path):
    tangent_model("mlp").save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.safetensors"]


def test_tangent_model_is_linear_in_its_features():
    model, x = tangent_model("mlp"), images()
    z = (model.tangents(x) - model.linear.normaliser.mean) * model.linear.normaliser.scale
    expected = z @ model.linear.w[:-1] + model.linear.w[-1]
    assert torch.allclose(model.scores(x), expected, rtol=1e-4, atol=1e-5)


def test_a_model_that_is_nothing_but_its_head():
    x, y = torch.randn(30, 4, generator=torch.Generator().manual_seed(0)), torch.arange(30) % CLASSES
    model = tct(nn.Linear(4, CLASSES), Ridge(d=10), stage1=TRAIN).fit([Silo(x, y)]).model
    assert model.tangents.p == 5
    assert torch.allclose(model.tangents(x), torch.cat([x, torch.ones(30, 1)], 1))


@pytest.mark.parametrize("maker", [network_model, tangent_model])
def test_score_is_the_share_of_right_predictions(maker):
    model, x = maker("mlp"), images()
    y = model.predict(x)
    y[:12] = (y[:12] + 1) % CLASSES
    assert model.score(x, y) == 18 / 30
    assert model.score(x.numpy(), y.tolist()) == 18 / 30
    assert torch.allclose(torch.cat([model.scores(x[:7]), model.scores(x[7:])]), model.scores(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("maker", [network_model, tangent_model])
def test_samples_unlike_those_of_training_are_refused(maker):
    model = maker("mlp")
    with pytest.raises(FedtctError, match=r"shape \(1, 8, 8\), expected \(1, 16, 16\)"):
        model.predict(images()[:, :, ::2, ::2])
    with pytest.raises(FedtctError, match=r"expected torch\.uint8"):
        model.predict(images(torch.float32))
    assert model.predict(images()[:0]).shape == (0,)
    with pytest.raises(FedtctError, match="empty"):
        model.score(images()[:0], [])


def test_whole_numbers_are_numbers():
    x = torch.arange(40.0).reshape(10, 4)
    model = FedAvg("linear", rounds=0).fit([Silo(x, [0, 1] * 5)]).model
    rows = [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert torch.equal(model.scores(rows), model.scores(torch.tensor(rows).float()))


def test_a_folder_that_holds_no_model_is_refused(tmp_path):
    with pytest.raises(FedtctError, match="holds no saved model"):
        TangentClassifier.load(tmp_path)
    with pytest.raises(FedtctError, match="holds no saved model"):
        Classifier.load(tmp_path / "nowhere")
    network_model("mlp").save(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(FedtctError, match="holds no saved model"):
        NetworkClassifier.load(tmp_path)


def test_the_folder_of_a_run_is_refused_with_that_of_its_model(tmp_path):
    network_model("mlp").save(tmp_path / "model")
    with pytest.raises(FedtctError, match=f"holds no saved model: .* did you mean {tmp_path / 'model'}"):
        Classifier.load(tmp_path)


@pytest.mark.parametrize("name", ["kind", "head", "inputs", "num_classes", "features"])
@pytest.mark.parametrize(
    "change", [lambda record, name: record.pop(name), lambda record, name: record.update({name: {}})]
)
def test_a_model_of_another_version_is_refused(change, name, tmp_path):
    file = tmp_path / "model.safetensors"
    tangent_model("mlp").export(file)
    with safe_open(file, framework="pt") as saved:
        record = json.loads(saved.metadata()["fedtct"])
    change(record, name)
    save_file(load_file(file), file, metadata={"fedtct": json.dumps(record)})
    with pytest.raises(FedtctError, match=r"from another version of fedtct|is not a model"):
        Classifier.load(tmp_path)


@pytest.mark.parametrize("call", ["write_bytes", "replace"])
def test_at_every_moment_the_old_model_is_there_or_the_new(call, tmp_path, monkeypatch):
    old, new = network_model("mlp"), tangent_model("mlp")
    old.save(tmp_path)
    actual, after = getattr(Path, call), []

    def stopped(path, *rest, **more):
        if call == "write_bytes":
            actual(path, rest[0][: len(rest[0]) // 2])
        after.append(Classifier.load(tmp_path).scores(images()))
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, call, stopped)
    with pytest.raises(KeyboardInterrupt):
        new.save(tmp_path)
    monkeypatch.undo()
    there = Classifier.load(tmp_path).scores(images())
    assert torch.equal(there, after[0])
    assert torch.equal(there, old.scores(images()))


def test_bytes_that_are_no_model_are_refused():
    for data in (b"", b"junk", network_model("mlp").to_bytes()[:-9]):
        with pytest.raises(FedtctError, match="these bytes are not a model"):
            Classifier.from_bytes(data)


def test_a_model_of_another_kind_is_refused(tmp_path):
    network_model("mlp").save(tmp_path)
    with pytest.raises(FedtctError, match="holds a 'network' model, not a 'tangent' one"):
        TangentClassifier.load(tmp_path)


@pytest.mark.parametrize("maker", [network_model, tangent_model])
def test_a_model_made_from_an_own_module_needs_one(maker, tmp_path):
    maker(Own()).save(tmp_path)
    with pytest.raises(FedtctError, match=r"made from your own model \(Own\): pass that to load"):
        Classifier.load(tmp_path)


@pytest.mark.parametrize("maker", [network_model, tangent_model])
def test_another_module_than_the_saved_one_is_refused(maker, tmp_path):
    maker(Own()).save(tmp_path)
    another = nn.Sequential(OrderedDict(flat=nn.Flatten(), head=nn.Linear(256, CLASSES)))
    with pytest.raises(FedtctError, match="do not fit"):
        Classifier.load(tmp_path, model=another)


@pytest.mark.parametrize("maker", [network_model, tangent_model])
def test_what_a_function_draws_is_drawn_again_by_the_seed_of_the_run(maker, tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "TRAIN", replace(TRAIN, seed=3))
    model = maker(drawing)
    model.save(tmp_path)
    for _ in range(2):  # also if what was loaded is saved
        loaded = Classifier.load(tmp_path, model=drawing)
        assert torch.equal(loaded.scores(images()), model.scores(images()))
        loaded.save(tmp_path)


@pytest.mark.parametrize("maker", [network_model, tangent_model])
def test_buffers_that_are_no_weights_are_saved_and_take_the_place_of_a_modules_own(maker, tmp_path):
    model, other = maker(Drawing()), Drawing()
    other.projections = model.spec.model.projections
    model.save(tmp_path)
    before = other.order.clone()
    assert torch.equal(Classifier.load(tmp_path, model=other).scores(images()), model.scores(images()))
    assert torch.equal(other.order, before)
    assert {n for n in load_file(tmp_path / "model.safetensors") if "/" in n} == {
        "fixed/mask",
        "fixed/order",
        "fixed/phases",
    }


def test_other_buffers_than_the_saved_ones_are_refused(tmp_path):
    network_model(Drawing()).save(tmp_path)
    other = Drawing()
    other.order = other.order[:100]
    with pytest.raises(FedtctError, match="the saved buffer 'order' does not fit the model"):
        Classifier.load(tmp_path, model=other)


def test_buffers_in_starting_weights_are_those_of_all(tmp_path):
    first, other = Drawing(), Drawing()
    other.projections, other.mask = first.projections, first.mask  # what a state dict does not hold
    torch.save(first.state_dict(), tmp_path / "start.pt")
    train = replace(TRAIN, init_weights=tmp_path / "start.pt", rounds=0)
    models = [replace(train, model=module).fit(silos()).model for module in (first, other)]
    assert torch.equal(*(model.scores(images()) for model in models))


def test_a_folder_is_not_put_where_a_file_is(tmp_path):
    model = FedAvg("linear", rounds=0).fit([(torch.eye(2), [0, 1])]).model
    model.export(tmp_path / "model.safetensors")
    with pytest.raises(FedtctError, match="is a file, but save writes a folder: use export to write a file"):
        model.save(tmp_path / "model.safetensors")


@pytest.mark.parametrize("model", ["mlp", "resnet18-bn", Own(), Drawing()], ids=["mlp", "resnet", "own", "drawing"])
def test_a_plain_network_gives_the_same_scores(model):
    draws = torch.Generator().manual_seed(0)
    x, y = torch.randint(256, (12, *SHAPE), generator=draws).byte(), torch.arange(12) % CLASSES
    head = "head" if isinstance(model, Own) else None
    fitted = replace(TRAIN, model=model, head=head).fit([Silo(x, y)]).model
    module = fitted.to_module()
    assert torch.allclose(module(x), fitted.scores(x), atol=1e-4)
    assert torch.allclose(torch.export.export(module, (x,)).module()(x), fitted.scores(x), atol=1e-4)
    before = fitted.scores(x)
    for parameter in module.parameters():
        parameter.data.zero_()
    assert torch.equal(fitted.scores(x), before)
    assert len({p.untyped_storage().data_ptr() for p in module.parameters()}) == len(list(module.parameters()))


def test_tangents_are_no_plain_network():
    with pytest.raises(FedtctError, match="needs gradients to predict"):
        tct("mlp", Ridge(d=10), stage1=TRAIN).fit([Silo(torch.rand(6, 3), [0, 1, 2, 0, 1, 2])]).model.to_module()


def test_a_plain_network_gives_the_same_probabilities():
    x, y = torch.randn(40, 5), torch.arange(40) % CLASSES
    model = replace(TRAIN, model="mlp").fit([Silo(x, y, holdout=0.3)]).model
    assert model.temperature not in (None, 1.0)
    torch.testing.assert_close(model.to_module()(x).softmax(1).double(), model.predict_proba(x), rtol=1e-4, atol=1e-6)


def test_a_plain_network_gives_numbers_in_their_own_units():
    x = torch.randn(40, 5)
    model = replace(TRAIN, model="mlp").fit([Silo(x, 500 + 40 * x[:, 0].double())]).model
    torch.testing.assert_close(model.to_module()(x)[:, 0].double(), model.predict(x), rtol=1e-5, atol=1e-3)
    assert 400 < float(model.to_module()(x).mean()) < 600
