"""A seed decides every bit of a model, and nothing else does."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from core_helpers import UNEQUAL, parameters_of, skewed_data, tct
from torch import nn

from fedtct import (
    TCT,
    Centralized,
    FedAdam,
    FedAvg,
    FedDyn,
    FedProx,
    LocalFederation,
    Ridge,
    Scaffold,
    ScaffoldRegression,
    Silo,
    TangentFeatures,
)
from fedtct.hardware.precision import full_precision
from fedtct.seeds import derive

SETTINGS = {"rounds": 2, "local_epochs": 2, "batch_size": 8}
DROPOUT = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 3))

METHODS = {
    "FedAvg": lambda seed: FedAvg("mlp", seed=seed, **SETTINGS),
    "FedProx": lambda seed: FedProx("mlp", seed=seed, **SETTINGS),
    "Scaffold": lambda seed: Scaffold("mlp", seed=seed, **SETTINGS),
    "FedDyn": lambda seed: FedDyn("mlp", seed=seed, **SETTINGS),
    "FedAdam": lambda seed: FedAdam("mlp", seed=seed, **SETTINGS),
    "Centralized": lambda seed: Centralized("mlp", seed=seed, **SETTINGS),
    "dropout": lambda seed: FedAvg(DROPOUT, seed=seed, **SETTINGS),
    "TCT": lambda seed: tct("mlp", ScaffoldRegression(rounds=2, lr="auto"), p=50, stage1=FedAvg(seed=seed, **SETTINGS)),
    "Ridge": lambda seed: tct("mlp", Ridge(d=50), stage1=FedAvg(seed=seed, **SETTINGS)),
}


def silos():
    return [Silo(*part) for part in skewed_data()]


def saved(fit, folder):
    fit.model.save(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", METHODS)
def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(name, tmp_path):
    torch.manual_seed(1)
    first = saved(METHODS[name](0).fit(silos()), tmp_path / "first")
    torch.manual_seed(2)
    again = saved(METHODS[name](0).fit(silos()), tmp_path / "again")
    other = saved(METHODS[name](1).fit(silos()), tmp_path / "other")
    assert first == again
    assert first["model.safetensors"] != other["model.safetensors"]


@pytest.mark.parametrize("name", ["dropout", "TCT", "Ridge"])
def test_torchs_own_generator_is_left_alone(name):
    before = torch.get_rng_state()
    METHODS[name](0).fit(silos())
    assert torch.equal(torch.get_rng_state(), before)


@pytest.fixture
def unusual_torch():
    """As some notebooks leave it."""
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)


@pytest.mark.parametrize("stage2", [Ridge(d=50), ScaffoldRegression(rounds=2, lr="auto")])
@pytest.mark.parametrize("normalize", [True, False])
def test_torchs_settings_do_not_matter(stage2, normalize, unusual_torch):
    method = TCT("mlp", FedAvg(**SETTINGS), TangentFeatures(p=50, normalize=normalize), stage2)
    assert method.fit(silos()).history[-1].train_accuracy > 0.6


@pytest.mark.parametrize("stage2", [Ridge(d=50), ScaffoldRegression(rounds=2, lr="auto")])
def test_what_a_program_allows_for_its_own_products_changes_nothing(stage2, monkeypatch):
    """Settings of torch from 2.9 on; read by their older names, they are an error."""

    def weights():
        fit = TCT("mlp", FedAvg(rounds=0), TangentFeatures(p=300), stage2).fit(silos(), test=skewed_data()[0])
        return fit.model.linear.w

    expected = weights()
    monkeypatch.setattr(torch.backends.mkldnn.matmul, "fp32_precision", "bf16")
    monkeypatch.setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32")
    assert torch.equal(weights(), expected)
    assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"


@pytest.mark.parametrize("method", [FedAvg, FedDyn, Scaffold])
def test_a_federation_used_before_gives_the_same_as_a_fresh_one(method):
    federation = LocalFederation(silos())
    first = method("mlp", **SETTINGS).fit(federation)
    again = method("mlp", **SETTINGS).fit(federation)
    assert torch.equal(parameters_of(first), parameters_of(again))


def test_features_have_a_seed_of_their_own():
    models = [tct("mlp", Ridge(d=50), seed=seed).fit(silos()).model for seed in (0, 0, 1)]
    coordinates = [model.tangents.coordinates for model in models]
    heads = [model.tangents.network.module[-1].weight for model in models]
    assert torch.equal(coordinates[0], coordinates[1])
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(coordinates[0], coordinates[2])
    assert not torch.equal(heads[0], heads[2])


def test_silos_draw_batches_of_their_own_every_round():
    keys = [("train", number, silo) for number in range(50) for silo in range(len(UNEQUAL))]
    assert len({derive(0, *key) for key in keys}) == len(keys)
    assert derive(0, *keys[0]) != derive(1, *keys[0])
    assert derive(0, "head") != derive(0, "coordinates")


def test_draws_are_the_same_on_every_machine():
    assert derive(0, "train", 3, 1) == 740213882658434227


@pytest.mark.parametrize("p", [10, 10**6])
def test_coordinates_are_distinct_and_at_most_all(p):
    model = tct("linear", Ridge(d=p), p=p).fit(silos()).model
    assert model.tangents.coordinates.tolist() == list(range(5))


@pytest.mark.parametrize(("p", "d"), [(7, 100), (100, 7)])
def test_ridge_takes_d_of_the_p_coordinates(p, d):
    assert tct("mlp", Ridge(d=d), p=p).fit(silos()).model.tangents.p == 7


def test_whether_gradients_are_on_around_a_fit_does_not_matter():
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))

    def fit():
        return tct(model, Ridge(d=10), stage1=FedAvg(**SETTINGS)).fit(silos()).model.linear.w

    with torch.no_grad():
        found = fit()
    assert torch.equal(found, fit())


def test_fits_in_threads_are_those_of_one_after_another():
    def slowly(shape, outputs):
        layers = []
        for width in (shape[0], 5):
            layers.append(nn.Linear(width, 5))
            time.sleep(0.02)
        return nn.Sequential(*layers, nn.Dropout(0.5), nn.Linear(5, outputs))

    def fit(seed):
        return parameters_of(FedAvg(slowly, seed=seed, **SETTINGS).fit(silos()))

    with ThreadPoolExecutor(3) as threads:
        together = list(threads.map(fit, range(3)))
    assert all(torch.equal(found, fit(seed)) for seed, found in enumerate(together))


WITHOUT_RULES = nn.Sequential(nn.Linear(4, 6), nn.PReLU(), nn.Linear(6, 3))  # a slope for all channels has none


@pytest.mark.filterwarnings("ignore:tangent features")
@pytest.mark.parametrize("model", ["mlp", WITHOUT_RULES], ids=["by layers", "torch.func"])
def test_a_model_answers_in_threads_as_it_does_alone(model):
    fitted = tct(model, Ridge(d=50), stage1=FedAvg(**SETTINGS)).fit(silos()).model
    x = torch.randn(600, 4, generator=torch.Generator().manual_seed(0))
    alone = fitted.scores(x)
    with ThreadPoolExecutor(4) as threads:
        assert all(torch.equal(scores, alone) for scores in threads.map(fitted.scores, [x] * 20))


def test_threads_leave_the_settings_of_the_program_as_they_were():
    def compute(seconds):
        with full_precision():
            time.sleep(seconds)

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(compute, [0.05, 0.1]))
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)
