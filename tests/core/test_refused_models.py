"""Models that cannot be trained, or do not fit the data, are refused in words before any training."""

import contextlib
import threading
import warnings

import pytest
import torch
from core_helpers import assert_refused, skewed_data, tct, tiny_net
from torch import nn
from torch.nn.utils import prune

from fedtct import (
    TCT,
    Centralized,
    FedAvg,
    FedtctError,
    LocalFederation,
    Ridge,
    Silo,
)

X, Y = skewed_data((20,))[0]
IMAGES = torch.zeros(20, 1, 8, 8, dtype=torch.uint8)


class WithoutLinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4, 3))

    def forward(self, x):
        return x @ self.weight


class Sequences(nn.Module):
    """Gives a row of logits a token, not a sample."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(1, 3)

    def forward(self, x):
        return self.head(x.unsqueeze(2))


class OfComplexNumbers(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4, 4, dtype=torch.cfloat))
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head((x.cfloat() @ self.weight).abs())


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (None, "no model was given"),
        (nn.Linear(4, 3, device="meta"), "on the meta device, where weights have no values: make it on the CPU"),
        (nn.Sequential(nn.BatchNorm1d(4, affine=False, device="meta"), nn.Linear(4, 3)), "on the meta device"),
        (OfComplexNumbers(), "the model has complex parameters or buffers: make them all real"),
        ("resnet-18", "unknown model 'resnet-18'. Known models: .*resnet18-bn"),
        ("my_net:build", "'my_net:build' is for commands: in Python use the function itself as model, or an nn.Mod"),
        (nn.Linear(4, 2), "has label 2, but there are 2 classes"),
        (nn.Linear(4, 1), "head, is 1: labels need one output for each class"),
        (nn.Linear(5, 3), r"cannot take torch.float32 samples of shape \(4,\)"),
        (WithoutLinear(), "has no nn.Linear to serve as its head"),
        (Sequences(), r"gives \(1, 4, 3\) for one sample, not \(1, 3\)"),
        ("simple-cnn", r"takes images \(channels, height, width\), but the data has shape \(4,\)"),
        ("resnet18-bn", r"takes images \(channels, height, width\), but the data has shape \(4,\)"),
    ],
    ids=lambda value: str(value).splitlines()[0][:30],
)
def test_models_that_do_not_fit_the_data(model, message):
    assert_refused(message, [Silo(X, Y)], model)


def test_grey_images_without_a_channel_are_refused_with_the_remedy():
    silo = Silo(torch.zeros(6, 28, 28), [0, 1] * 3)
    assert_refused(r"the data has shape \(28, 28\)\. Grey images need a channel: x\[:, None\]", [silo], "simple-cnn")


class WithoutGradient(nn.Linear):
    @torch.no_grad()
    def forward(self, x):
        return super().forward(x)


class Locked(nn.Linear):
    def __init__(self):
        super().__init__(4, 3)
        self.lock = threading.Lock()


class TwoHeads(nn.Linear):
    """As networks with auxiliary heads, it gives two outputs in training."""

    def forward(self, x):
        logits = super().forward(x)
        return (logits, logits) if self.training else logits


def pruned():
    return prune.l1_unstructured(nn.Linear(4, 3), "weight", 0.5)


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tiny_net().requires_grad_(False), "nothing to train: trainable is 'all', and all of that is frozen"),
        (lambda: WithoutGradient(4, 3), r"has no gradient: its forward must not use torch\.no_grad"),
        (Locked, "the model cannot be copied: TypeError: cannot pickle"),
        (lambda: TwoHeads(4, 3), r"in training mode the model gives tuple for two samples, not \(2, 3\)"),
        (lambda: nn.utils.weight_norm(nn.Linear(4, 3)), r"cannot be copied: .*with torch\.nn\.utils\.parametrizations"),
        (pruned, r"cannot be copied: .*prune\.remove"),
    ],
    ids=["frozen", "no gradient", "locked", "two heads", "weight_norm", "pruned"],
)
def test_models_that_cannot_be_trained(make, message):
    assert_refused(message, [Silo(X, Y)], make())


class OfTokens(nn.Module):
    """Knows the tokens from ``first`` on."""

    def __init__(self, head, first=0):
        super().__init__()
        self.embedding, self.head, self.first = nn.Embedding(9, 4), head, first

    def forward(self, x):
        return self.head(self.embedding(x - self.first).mean(1))


TOKENS = torch.arange(60).view(20, 3) % 8 + 1


@pytest.mark.parametrize(
    ("head", "message"), [(WithoutGradient, "has no gradient"), (TwoHeads, "gives tuple for two samples")]
)
def test_models_of_tokens_that_cannot_be_trained(head, message):
    assert_refused(message, [Silo(TOKENS, Y)], OfTokens(head(4, 3)))


@pytest.mark.parametrize("samples", [20, 1])
def test_a_model_that_does_not_know_made_up_tokens_is_taken_for_what_silos_say(samples):
    silos = [Silo(TOKENS, Y), Silo(TOKENS[:samples], Y[:samples])]
    fit = tct(OfTokens(nn.Linear(4, 3), first=1), Ridge(d=5), stage1=FedAvg(rounds=1)).fit(silos)
    assert fit.model.scores(TOKENS).shape == (20, 3)


def test_where_nothing_is_trained_a_frozen_model_will_do():
    frozen = tiny_net().requires_grad_(False)
    assert tct(frozen, Ridge(d=5)).fit([Silo(X, Y)]).model.scores(X).shape == (20, 3)
    frozen[0].requires_grad_(True)
    with pytest.raises(FedtctError, match="trainable is 'last-layer'"):
        FedAvg(frozen, trainable="last-layer").fit([Silo(X, Y)])


def test_a_trial_leaves_no_trace():
    """Neither in running statistics nor in torch's generator."""
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(), nn.Linear(6, 3))
    torch.manual_seed(0)
    session = FedAvg(model).open([Silo(X, Y)])
    assert torch.equal(torch.rand(1), torch.manual_seed(0) and torch.rand(1))
    assert torch.equal(session.network.weights().buffers, torch.cat([model[1].running_mean, model[1].running_var]))


class WritesInto(nn.Linear):
    """Puts what it computes where its own precision is expected."""

    def forward(self, x):
        out = torch.zeros(len(x), self.out_features)
        out[torch.arange(len(x))] = super().forward(x)
        return out


def test_a_model_that_cannot_compute_in_half_precision():
    for precision, refused in (("bf16", True), ("fp32", False)):
        federation = LocalFederation([Silo(X, Y)], "cpu", precision=precision)
        match = r"the model cannot compute in bfloat16: use precision='fp32': RuntimeError"
        with pytest.raises(FedtctError, match=match) if refused else contextlib.nullcontext():
            FedAvg(WritesInto(4, 3), rounds=1).fit(federation)


def test_a_model_in_parallel_has_no_tangent_features():
    model = nn.DataParallel(tiny_net())
    federation, asked = LocalFederation([Silo(X, Y)]), []
    federation.on_reply = lambda question, *_: asked.append(question)
    with pytest.raises(FedtctError, match=r"give the model inside it, model\.module"):
        tct(model, Ridge(d=5), stage1=FedAvg(rounds=1)).fit(federation)
    assert asked == ["describe"]


def test_labels_beyond_the_models_head():
    y = Y.clone()
    y[0] = 7
    assert_refused("silo 1 has label 7, but there are 3 classes", [Silo(X, Y), Silo(X, y)], nn.Linear(4, 3))


def test_classes_that_no_silo_holds_are_classes_all_the_same():
    told = (
        "the model has 10 outputs, but no silo has labels 3, 4, 5, 6, 7, 8, 9: give it fewer outputs, or num_classes=10"
    )
    for known in (None, 10):
        with warnings.catch_warnings(record=True) as caught:
            fit = FedAvg(nn.Linear(4, 10), rounds=1, num_classes=known).fit([Silo(X, Y)], (X, Y + 7))
        assert fit.model.scores(X).shape == (20, 10)
        assert [str(warning.message).startswith(told) for warning in caught] == [True] * (known is None)
    assert FedAvg("linear", num_classes=5, rounds=1).fit([Silo(X, Y)]).model.scores(X).shape == (20, 5)
    with pytest.raises(FedtctError, match="silo 0 has label 2, but there are 2 classes"):
        FedAvg("linear", num_classes=2, rounds=1).fit([Silo(X, Y)])


@pytest.mark.parametrize("model", [nn.Linear(4, 5), lambda shape, outputs: nn.Linear(4, 5)])
def test_a_model_with_another_number_of_outputs_than_was_asked_for(model):
    with pytest.raises(FedtctError, match=r"head '' has 5 outputs"):
        FedAvg(model, num_classes=3, rounds=1).fit([Silo(X, Y)])


@pytest.mark.parametrize(
    ("y", "told"),
    [
        (Y.double(), "num_classes is 7, but silos hold real numbers, .*: leave num_classes out; .*as whole numbers"),
        ([f"class {label}" for label in Y], "num_classes is 7, but silos use class names, .*: leave num_classes out"),
    ],
    ids=["numbers", "names"],
)
@pytest.mark.filterwarnings("ignore:y holds a few different whole numbers")
def test_a_number_of_classes_that_the_data_contradicts(y, told):
    for method in (FedAvg, Centralized):
        with pytest.raises(FedtctError, match=told):
            method("linear", num_classes=7, rounds=1).fit([Silo(X, y)])


def test_a_number_of_classes_that_the_data_agrees_with():
    names = [f"class {label}" for label in Y]
    assert FedAvg("linear", num_classes=3, rounds=1).fit([Silo(X, names)]).model.scores(X).shape == (20, 3)
    assert FedAvg("linear", num_classes=1, rounds=1).fit([Silo(X, X[:, 0])]).history[-1].regression


class HeadFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.classifier, self.body = nn.Linear(8, 3), nn.Linear(4, 8)

    def forward(self, x):
        return self.classifier(torch.relu(self.body(x)))


@pytest.mark.parametrize(
    ("model", "y", "options"),
    [
        (HeadFirst(), Y, {}),
        (HeadFirst(), Y, {"num_classes": 3}),
        (HeadFirst(), [f"class {label}" for label in Y], {}),
        (lambda shape, outputs: HeadFirst(), Y, {}),
    ],
    ids=["labels", "num_classes", "names", "function"],
)
def test_a_head_that_is_not_defined_last_must_be_named(model, y, options):
    advice = r"head 'body'.*if its head is another layer, define that last, or name it in stage 1, FedAvg\(head="
    with pytest.raises(FedtctError, match=advice):
        FedAvg(model, rounds=1, **options).fit([Silo(X, y)])
    FedAvg(model, rounds=1, head="classifier", **options).fit([Silo(X, y)])


class SecondHeadUnused(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head, self.unused = nn.Linear(4, 8), nn.Linear(8, 3), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


class SumOfHeads(nn.Module):
    """A layer across what another sees, as wide-and-deep models have it."""

    def __init__(self):
        super().__init__()
        self.wide, self.body, self.head = nn.Linear(4, 3), nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.wide(x) + self.head(torch.relu(self.body(x)))


def test_outputs_that_two_layers_make_have_no_single_logit():
    asked = []
    federation = LocalFederation([Silo(X, Y)])
    federation.on_reply = lambda question, *_: asked.append(question)
    with pytest.raises(FedtctError, match=r"head 'head' the model still gives 3 outputs.*let one nn\.Linear make all"):
        TCT(SumOfHeads(), FedAvg(rounds=1), stage2=Ridge(d=10)).fit(federation)
    assert asked == ["describe"]
    FedAvg(SumOfHeads(), rounds=1).fit([Silo(X, Y)])


class Wrapping(SecondHeadUnused):
    """Has layers besides its head, which are not to blame."""

    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, x):
        return self.make(super().forward(x))


@pytest.mark.parametrize("make", [lambda z: {"logits": z}, lambda z: (z, z)], ids=["dict", "tuple"])
def test_a_model_that_returns_more_than_logits_is_told_to_return_them_alone(make):
    with pytest.raises(FedtctError, match=r"for one sample, not \(1, 3\): return only the logits$"):
        FedAvg(Wrapping(make), rounds=1).fit([Silo(X, Y)])


def test_a_last_layer_that_nothing_goes_through_is_no_head():
    advice = r"head 'unused' the model fails: .*define that last, or name it in stage 1, FedAvg\(head="
    with pytest.raises(FedtctError, match=advice):
        TCT(SecondHeadUnused(), FedAvg(rounds=1)).fit(skewed_data())
    TCT(SecondHeadUnused(), FedAvg(rounds=1, head="head"), stage2=Ridge(d=10)).fit(skewed_data())


class TwoPrecisions(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8).double(), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.body(x.double()).float())


class PreciseBuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(4), nn.Linear(4, 3)
        self.register_buffer("scale", torch.ones(4, dtype=torch.float64))

    def forward(self, x):
        return self.head((self.norm(x).double() * self.scale).float())


@pytest.mark.parametrize("model", [TwoPrecisions(), PreciseBuffer()])
def test_a_model_of_two_precisions(model):
    assert_refused(
        r"parameters and buffers of torch\.float32 and torch\.float64: convert them all with float", [Silo(X, Y)], model
    )


def test_images_too_small_for_simple_cnn():
    assert_refused("at least 16×16 pixels, these are 8×8", [Silo(IMAGES, Y)], "simple-cnn")


def test_integers_that_are_not_pixels_do_not_fit_a_float_model():
    assert_refused(r"cannot take torch.int64 samples", [Silo(X.long(), Y)])


@pytest.mark.parametrize("last", [nn.Softmax(1), nn.LogSoftmax(1)])
def test_a_model_that_does_not_end_with_its_head_has_no_tangent_features(last):
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3), last)
    with pytest.raises(FedtctError, match=r"single logit as its head '2' the model is constant.*must end with it"):
        TCT(model, FedAvg(rounds=1)).fit(skewed_data())


def test_a_model_that_fails_with_a_single_logit():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    with pytest.raises(FedtctError, match="single logit as its head '0' the model fails"):
        TCT(model, FedAvg(rounds=1)).fit(skewed_data())
