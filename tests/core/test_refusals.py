"""Bad input is refused with a FedtctError that says what is wrong, before any training."""

import contextlib

import numpy as np
import pandas as pd
import pytest
import torch
from core_helpers import assert_refused, skewed_data, tct, tiny_net
from torch import nn

from fedtct import (
    TCT,
    Centralized,
    FedAdam,
    FedAvg,
    FedDyn,
    FedProx,
    FedtctError,
    LocalFederation,
    Ridge,
    ScaffoldRegression,
    Silo,
    TangentFeatures,
)
from fedtct.errors import LARGEST_NUMBER, LARGEST_WHOLE
from fedtct.hardware.devices import pick_device

X, Y = skewed_data((20,))[0]


class Answers(nn.Linear):
    """As models of other libraries, it gives a dict."""

    def __init__(self):
        super().__init__(4, 3)

    def forward(self, x):
        return {"logits": super().forward(x)}


def with_value(value):
    x = X.clone()
    x[3, 1] = value
    return x


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X, Y - 1, "some labels are below 0: .*; the least is -1"),
        (X, Y.unsqueeze(1), "y must be a vector of labels, numbers or names"),
        (X, 3, "y must be a vector of labels, numbers or names"),
        (X, Y / Y, "targets are NaN, infinite or huge"),
        (X, X[:, 0].double() * 1e300, "20 of 20 targets are NaN, infinite or huge"),
        (np.ma.masked_less(X.numpy(), 0.5), Y, "some values are masked"),
        (X, np.ma.masked_equal(Y.numpy(), 1), "some values are masked"),
        (X[:2], ["cat", None], "1 of 2 labels are missing or not texts"),
        (X[:2], [["cat"], ["dog"]], "y must be a vector of labels, numbers or names"),
        (X, "diagnosis", "y must be a vector of labels, numbers or names"),
        (X[:, :0], Y, r"x has shape \(20, 0\) for 20 labels"),
        ([["a", "b"]], [0], "must be arrays of numbers; give a table with texts as a pandas.DataFrame"),
        (X, None, "y is missing"),
        (X[:0], Y[:0], "is empty"),
        (X[:0], [], "is empty"),
        (X, Y[:-1], r"x has shape \(20, 4\) for 19 labels"),
        (X[:, 0], Y, r"x has shape \(20,\) for 20 labels"),
        (
            with_value(float("nan")),
            Y,
            r"1 of 20 samples hold NaN or infinite values: .* or train on tables \(pandas.DataFrame\)",
        ),
        (with_value(-float("inf")), Y, "1 of 20 samples hold NaN or infinite values"),
        (with_value(float("nan")).numpy(), Y.numpy(), "1 of 20 samples hold NaN or infinite values"),
        (with_value(1.0).double() * 1e300, Y, "samples hold NaN or infinite values"),  # infinite in float32
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_silo_refuses_what_cannot_be_learnt_from(x, y, message):
    with pytest.raises(FedtctError, match=f"north: .*{message}|north {message}"):
        Silo(x, y, name="north")


@pytest.mark.parametrize("y", [Y.tolist(), Y.to(torch.uint8), Y.to(torch.int32), Y.numpy().astype(np.uint16)])
def test_any_integers_serve_as_labels(y):
    assert torch.equal(Silo(X, y).y, Y)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (Silo(X[:, :3], Y), r"samples have shape \(4,\) in silo 0 and \(3,\) in silo 1"),
        (Silo(X.byte(), Y), "samples are of kind float32 in silo 0 and pixels in silo 1"),
        (Silo(X.long(), Y), "samples are of kind float32 in silo 0 and int64 in silo 1"),
    ],
    ids=["another shape", "pixels", "integers"],
)
def test_silos_must_be_alike(second, message):
    assert_refused(message, [Silo(X, Y), second])


def test_a_single_class_cannot_be_learnt():
    assert_refused("a single class, 0", [Silo(X, 0 * Y)])


def test_no_silos():
    with pytest.raises(FedtctError, match="there are no silos"):
        FedAvg("linear").fit([])


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ((X, Y + 1), "the test data has labels outside 0 … 2: the silos have 3 classes"),
        ((X, Y - 1), "the test data: some labels are below 0"),
        ((X[:, :2], Y), r"the test data: samples have shape \(2,\), expected \(4,\)"),
        ((X.byte(), Y), "the test data: samples are torch.uint8, expected torch.float32"),
        ((X[:0], Y[:0]), "the test data is empty"),
        ((with_value(float("nan")), Y), "the test data: 1 of 20 samples hold NaN"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_test_data_unlike_the_silos(test, message):
    assert_refused(message, [Silo(X, Y)], test=test)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head": "fc"}, "head 'fc' is not an nn.Linear of the model. It has: 1"),
        ({"head": "0"}, "head '0' is not an nn.Linear of the model"),
    ],
)
def test_unknown_head(options, message):
    with pytest.raises(FedtctError, match=message):
        FedAvg("linear", rounds=1, **options).fit([Silo(X, Y)])


@pytest.mark.parametrize("name", ["gpu", "meta"])
def test_unknown_device(name):
    with pytest.raises(FedtctError, match=rf"unknown device '{name}'\. Use 'auto', 'cpu' or 'cuda'"):
        LocalFederation([Silo(X, Y)], device=name)


def test_torch_told_to_make_all_tensors_elsewhere():
    silo = Silo(X, Y)
    with (
        torch.device("meta"),
        pytest.raises(FedtctError, match=r"torch's default device is 'meta'.*set_default_device"),
    ):
        LocalFederation([silo])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there():
    with pytest.raises(FedtctError, match=r"there is none here\. Use 'auto' or 'cpu'"):
        LocalFederation([Silo(X, Y)], device="cuda")
    assert pick_device("auto") == torch.device("cpu")


def test_stage_one_that_diverged_is_not_convexified():
    diverging = FedAvg(rounds=3, local_epochs=2, lr=1e30)
    with (
        pytest.warns(UserWarning, match="stage1 diverged by round 1"),
        pytest.raises(FedtctError, match="stage 1 diverged: its weights are not finite"),
    ):
        tct("mlp", Ridge(d=5), stage1=diverging).fit([Silo(X, Y)])


@pytest.mark.parametrize("options", [{"rounds": 1}, {"rounds": 3, "evaluate_every": 5}])
def test_a_stage_that_diverged_by_its_end_says_so_and_its_model_is_right_about_nothing(options):
    with pytest.warns(UserWarning, match=f"stage1 diverged by round {options['rounds']}"):
        fit = FedAvg("mlp", local_epochs=2, lr=1e30, **options).fit([Silo(X, Y)], test=(X, Y))
    assert fit.history[-1].test_accuracy == fit.history[-1].train_accuracy == fit.model.score(X, Y) == 0


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("stage2", [Ridge(), ScaffoldRegression(lr="auto")])
def test_weights_that_are_finite_but_their_features_are_not(stage2, normalize):
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    with torch.no_grad():
        model[0].weight.fill_(1e38)
    with pytest.raises(FedtctError, match="features are not finite: stage 1 diverged"):
        tct(model, stage2, stage1=FedAvg(rounds=0), normalize=normalize).fit([Silo(X, Y)])


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_running_statistics_that_diverged_are_not_convexified(value):
    model = tiny_net(norm=True)
    model[1].running_var[0] = value
    with pytest.raises(FedtctError, match="stage 1 diverged: its weights are not finite"):
        tct(model, Ridge()).fit([Silo(X, Y)])


def test_training_where_torch_keeps_no_gradients_is_refused():
    with torch.inference_mode(), pytest.raises(FedtctError, match=r"within torch\.inference_mode: call fit outside"):
        FedAvg("mlp", rounds=1).fit([Silo(X, Y)])


def test_a_silo_with_a_single_sample_and_batchnorm_is_refused_by_name_before_any_work():
    silos = [Silo(x, y, name=f"clinic {n}") for n, (x, y) in enumerate(skewed_data((20, 1, 5)))]
    model = tiny_net(norm=True).float()
    with pytest.raises(
        FedtctError, match=r"clinic 1 would train on a single sample at a time, .*: leave that silo out"
    ):
        FedAvg(model, rounds=1).fit(silos)
    with pytest.raises(FedtctError, match=r"clinic 0 would train on a single sample .*: use a larger batch_size"):
        FedAvg(model, rounds=1, batch_size=1).fit(silos)
    with pytest.raises(FedtctError, match="Centralized would train on a single sample"):
        Centralized(model, rounds=1, batch_size=1).fit(silos)
    assert len(FedAvg(tiny_net().float(), rounds=1, local_epochs=1).fit(silos).history) == 2


def test_only_images_are_augmented_and_that_is_said_before_any_work():
    with pytest.raises(FedtctError, match="augment='crop-flip' needs images"):
        FedAvg("mlp", augment="crop-flip").open(skewed_data())


def test_a_silo_has_one_place():
    (x, y), *_ = skewed_data()
    silo = Silo(x, y)
    with pytest.raises(FedtctError, match="one Silo is given twice"):
        FedAvg("mlp").fit([silo, silo])


def test_silos_are_called_by_their_names():
    sizes = {"oslo": 4, "berlin": 5, "rome": 4, "paris": 5}
    silos = [Silo(torch.zeros(4, size), torch.arange(4) % 2, name=name) for name, size in sizes.items()]
    with pytest.raises(FedtctError, match=r"samples have shape \(4,\) in oslo, rome and \(5,\) in berlin, paris: they"):
        FedAvg("mlp").fit(silos)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TCT("mlp", stage1="fedavg"), "stage1 must be a Stage1"),
        (lambda: TCT("mlp", stage2="ridge"), r"stage2 must be a Stage2, such as Ridge\(\)"),
        (lambda: TCT("mlp", FedAvg("linear")), "TCT has one model"),
        (lambda: FedAvg("mlp").fit(Silo(X, Y)), "silos must be a list, not a single Silo"),
        (lambda: FedAvg(Answers()).fit([Silo(X, Y)]), r"gives dict for one sample, not \(1, 3\)"),
        (lambda: FedAvg("mlp", rounds=2.5), "rounds must be a whole number, it is 2.5"),
        (lambda: FedAvg("mlp", rounds=True), "rounds must be a whole number, it is True"),
        (lambda: FedAvg("mlp", lr=True), "lr must be a finite number, it is True"),
        (lambda: FedAvg("mlp", batch_size="32"), "batch_size must be a whole number, it is '32'"),
        (lambda: TangentFeatures(p=1e5), "p must be a whole number, it is 100000.0"),
        (lambda: ScaffoldRegression(steps=7.5), "steps must be a whole number, it is 7.5"),
        (lambda: ScaffoldRegression(patience=0), "patience must be at least 1, it is 0"),
        (lambda: ScaffoldRegression(lr="fast"), "stage 2's lr, if not 'auto', must be a finite number, it is 'fast'"),
        (lambda: Ridge(ridge="loo"), "ridge must be a positive number, 'gcv' or 'holdout', it is 'loo'"),
        (lambda: FedAvg("mlp", noise=float("nan")), "noise must be a finite number, it is nan"),
        (lambda: FedAvg("mlp", weight_decay=float("inf")), "weight_decay must be a finite number, it is inf"),
        (lambda: Silo(X, Y, holdout="0.2"), "holdout is a share"),
        (
            lambda: FedAvg("mlp").fit([Silo(X, Y)], test="patients.csv"),
            r"test must be a pair \(x, y\) or a torch Dataset",
        ),
        (lambda: FedAvg(nn.LazyLinear(3)).fit([Silo(X, Y)]), "lazy layers"),
        (lambda: FedAvg("mlp").fit([Silo((10 * X).long(), Y)]), "quantities must be floats"),
        (lambda: FedAvg("linear", augment="mixup"), "unknown augment 'mixup'. Known: none, crop-flip"),
        (lambda: FedAvg("linear", trainable="head"), "unknown trainable 'head'. Known: all, last-layer"),
        (lambda: FedAvg("linear", seed=-1), "seed must not be negative"),
        (lambda: TangentFeatures(p=0), "p must be at least 1, it is 0"),
        (lambda: TangentFeatures(seed=-1), "seed must not be negative"),
        (lambda: TCT("linear", stage1=Centralized()), "stage 1 must be federated"),
        (lambda: LocalFederation([Silo(X, Y)], precision="fp8"), "unknown precision 'fp8'"),
        (
            lambda: LocalFederation([Silo(X, Y)]).deliver("surrender", {}),
            "asked 'surrender', which it does not know",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_exist_or_is_of_the_wrong_kind(make, message):
    with pytest.raises(FedtctError, match=message):
        make()


LARGE = [
    *(FedAvg("mlp", rounds=2, **{name: LARGEST_NUMBER}) for name in ("lr", "weight_decay")),
    *(FedAvg("mlp", rounds=2, **{name: LARGEST_WHOLE}) for name in ("batch_size", "evaluate_every", "seed")),
    FedAvg("mlp", rounds=2, clip=LARGEST_NUMBER, noise=LARGEST_NUMBER, num_classes=3),
    FedProx("mlp", rounds=2, mu=LARGEST_NUMBER),
    FedDyn("mlp", rounds=2, alpha=LARGEST_NUMBER),
    *(FedAdam("mlp", rounds=2, **{name: LARGEST_NUMBER}) for name in ("server_lr", "tau")),
    tct("linear", Ridge(d=LARGEST_WHOLE, ridge=LARGEST_NUMBER), p=LARGEST_WHOLE, seed=LARGEST_WHOLE),
    tct("mlp", ScaffoldRegression(rounds=1, steps=LARGEST_WHOLE, lr="auto")),
    tct("mlp", ScaffoldRegression(rounds=1, lr=LARGEST_NUMBER)),
]


@pytest.mark.filterwarnings("ignore:.*diverge")
@pytest.mark.parametrize("method", LARGE, ids=lambda method: type(method).__name__)
def test_the_largest_numbers_that_are_taken_lead_to_a_model_or_to_an_error_in_words(method):
    with contextlib.suppress(FedtctError):
        method.fit([Silo(X[::2], Y[::2]), Silo(X[1::2], Y[1::2])])


@pytest.mark.parametrize(
    "make",
    [
        lambda: FedAvg("mlp", seed=2**63),
        lambda: TangentFeatures(seed=10**400),
        lambda: FedAvg("mlp", lr=1e300),
        lambda: FedAvg("mlp", lr=10**400),
        lambda: FedProx("mlp", mu=1e39),
        lambda: ScaffoldRegression(steps=2**63),
    ],
)
def test_larger_numbers_are_refused(make):
    with pytest.raises(FedtctError, match=r"must be (below 2\*\*63|at most 3.4e\+38)"):
        make()


@pytest.mark.parametrize("method", [FedAvg("linear", rounds=1), Centralized("linear", rounds=1)])
@pytest.mark.parametrize(
    ("other", "message"),
    [
        ((X[:, :2], Y), r"samples have shape .* and \(2,\) in silo 1"),
        ((X.long(), Y), "and int64 in silo 1"),
        ((X, Y.double()), "and numbers in silo 1"),
        ((X, ["no", "yes"] * 10), "and names in silo 1"),
        ((pd.DataFrame(X.numpy()), Y), "and table in silo 1"),
    ],
)
def test_silos_of_another_kind_are_named_also_where_all_data_is_in_one_place(method, other, message):
    with pytest.raises(FedtctError, match=message):
        method.fit([(X, Y), other])


def test_tables_of_other_columns_are_refused_also_where_all_data_is_in_one_place():
    tables = [pd.DataFrame({"age": [1.0, 2.0], name: [3.0, 4.0]}) for name in ("size", "weight")]
    for method in (FedAvg("linear", rounds=1), Centralized("linear", rounds=1)):
        with pytest.raises(FedtctError, match="'size' is in silo 0 and not in silo 1; 'weight' is in silo 1"):
            method.fit([(table, [0, 1]) for table in tables])


@pytest.mark.filterwarnings("ignore:stage1 diverged", "ignore:features are large")
def test_where_training_diverged_is_told():
    spoilt = X.clone()
    spoilt[3] = 1e6
    silos = [Silo(x, Y, name=name) for name, x in {"north": X, "west": spoilt, "south": X}.items()]
    with pytest.warns(UserWarning, match="training diverged only in west: check the samples there"):
        FedAvg("mlp", rounds=2, local_epochs=5).fit(silos)
