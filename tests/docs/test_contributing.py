"""The worked examples of CONTRIBUTING.md are short, and do what it says."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from doc_helpers import ROOT, blocks
from torch import nn

import fedtct
from fedtct.data.datasets import DATASETS
from fedtct.models.registry import MODELS
from fedtct.runs.config import RunConfig
from fedtct.runs.methods import KINDS, SOLVERS
from fedtct.runs.settings import METHODS, STAGE2, Method, Solver
from fedtct.tangent.rules import RULES

ALGORITHM, SECOND_STAGE, MODEL, RULE, DATASET = EXAMPLES = blocks(ROOT / "CONTRIBUTING.md", "python")
REGISTRIES: tuple[dict[Any, Any], ...] = (DATASETS, MODELS, RULES, METHODS, KINDS, STAGE2, SOLVERS)


@pytest.fixture(autouse=True)
def registries() -> Iterator[None]:
    """What an example registers is gone after its test."""
    before = [dict(registry) for registry in REGISTRIES]
    yield
    for registry, content in zip(REGISTRIES, before, strict=True):
        registry.clear()
        registry.update(content)


def read(example: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(example, "CONTRIBUTING.md", "exec"), names)
    return names


def silos(data: fedtct.Dataset, split: str) -> list[fedtct.Silo]:
    parts = fedtct.partition(data.train.y, silos=3, split=split, seed=0)
    return [fedtct.Silo(data.train.x[part], data.train.y[part]) for part in parts]


@pytest.mark.parametrize("example", EXAMPLES, ids=["algorithm", "stage2", "model", "rule", "dataset"])
def test_examples_are_short(example: str) -> None:
    assert len(example.splitlines()) <= 30


def test_the_algorithm_without_momentum_is_fedavg() -> None:
    kind, data = read(ALGORITHM)["FedAvgM"], fedtct.load_dataset("digits")
    shared = {"rounds": 3, "local_epochs": 1}
    mine = kind("linear", momentum=0.0, **shared).fit(silos(data, "classes:4")).history
    theirs = fedtct.FedAvg("linear", **shared).fit(silos(data, "classes:4")).history
    assert [row.train_loss for row in mine] == pytest.approx([row.train_loss for row in theirs], rel=1e-5)
    other = kind("linear", momentum=0.9, **shared).fit(silos(data, "classes:4")).history
    assert other[-1].train_loss != pytest.approx(mine[-1].train_loss, rel=1e-3)


def test_the_stage_2_without_momentum_is_gradient_descent_and_with_it_gets_further() -> None:
    kind, data = read(SECOND_STAGE)["HeavyBall"], fedtct.load_dataset("digits")

    def losses(stage2: fedtct.Stage2) -> list[float]:
        method = fedtct.TCT("mlp", fedtct.FedAvg(rounds=0), fedtct.TangentFeatures(p=300), stage2)
        history = method.fit(silos(data, "classes:4")).history
        return [row.train_loss or 0.0 for row in history if row.stage == "stage2"]

    theirs = losses(fedtct.GradientDescent(rounds=30))
    assert losses(kind(rounds=30, momentum=0.0)) == pytest.approx(theirs, rel=1e-5)
    assert 0 < losses(kind(rounds=30, momentum=0.9))[-1] < 0.95 * theirs[-1]


def test_what_is_in_the_tables_is_built_by_name_with_the_settings_that_it_reads() -> None:
    METHODS["fedavgm"], KINDS["fedavgm"] = Method("FedAvgM"), read(ALGORITHM)["FedAvgM"]
    STAGE2["heavy-ball"], SOLVERS["heavy-ball"] = Solver(("stage2_lr",), rounds=30), read(SECOND_STAGE)["HeavyBall"]
    config = RunConfig.of(method="fedavgm", lr=0.2)
    assert (config.method_name, config.build()) == ("FedAvgM", KINDS["fedavgm"]("mlp", lr=0.2))
    tct = RunConfig.of(stage2="heavy-ball", stage2_lr=0.5)
    assert tct.rounds == (100, 30)
    assert tct.build() == fedtct.TCT(
        "mlp", fedtct.FedAvg("mlp", rounds=100), stage2=SOLVERS["heavy-ball"](rounds=30, lr=0.5)
    )
    assert tct.unread()["steps"] == "stage 2 by scaffold or fedavg"


def test_the_model_is_there_by_name_and_learns() -> None:
    read(MODEL)
    data = fedtct.load_dataset("digits")
    history = fedtct.FedAvg("depthwise-cnn", rounds=2, local_epochs=1).fit(silos(data, "iid")).history
    assert history[-1].train_loss < 0.9 * history[0].train_loss


@pytest.mark.parametrize("slopes", [1, 6])
def test_the_rule_agrees_with_torch_func(slopes: int) -> None:
    read(RULE)
    model = nn.Sequential(nn.Conv2d(2, 6, 3), nn.PReLU(slopes), nn.Flatten(), nn.Linear(96, 2)).double()
    x = torch.randn(5, 2, 6, 6, dtype=torch.float64)
    coordinates = torch.arange(sum(p.numel() for p in model.parameters()))
    by_rule = fedtct.tangent_features(model, x, coordinates, method="layers")
    torch.testing.assert_close(by_rule, fedtct.tangent_features(model, x, coordinates, method="func"))


def test_the_dataset_is_there_by_name_and_can_be_learnt() -> None:
    read(DATASET)
    data = fedtct.load_dataset("wine")
    fit = fedtct.FedAvg("mlp", rounds=3).fit(silos(data, "iid"))
    assert fit.model.score(*data.test) > 0.9
