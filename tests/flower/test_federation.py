"""The same algorithms over messages: the same models, whatever happens to silos."""

import pytest
import torch
from flower_helpers import InlineGrid, local, parts

import fedtct
from fedtct.federation.flower import FlowerFederation, Terms

TCT_PARTS = {"features": fedtct.TangentFeatures(p=300)}
METHODS = {
    "fedavg": fedtct.FedAvg("mlp", rounds=2, local_epochs=1),
    "fedprox": fedtct.FedProx("mlp", rounds=2, local_epochs=1),
    "scaffold": fedtct.Scaffold("mlp", rounds=3, local_epochs=1),
    "feddyn": fedtct.FedDyn("mlp", rounds=3, local_epochs=1),
    "fedadam": fedtct.FedAdam("mlp", rounds=2, local_epochs=1),
    "tct": fedtct.TCT(
        "mlp",
        stage1=fedtct.FedAvg(rounds=1, local_epochs=1),
        features=fedtct.TangentFeatures(p=300),
        stage2=fedtct.ScaffoldRegression(rounds=3, steps=20, lr="auto"),
    ),
    "ridge": fedtct.TCT(
        "mlp",
        stage1=fedtct.FedAvg(rounds=1, local_epochs=1),
        features=fedtct.TangentFeatures(p=300),
        stage2=fedtct.Ridge(d=200, ridge="holdout"),
    ),
}


def tensors(fit: fedtct.Fit) -> dict[str, torch.Tensor]:
    return fit.model._tensors()


def assert_same(one: fedtct.Fit, two: fedtct.Fit, tolerance: float = 1e-6) -> None:
    for name, tensor in tensors(one).items():
        torch.testing.assert_close(tensors(two)[name], tensor, rtol=tolerance, atol=tolerance)


def over(grid: InlineGrid, **terms) -> FlowerFederation:
    return FlowerFederation(grid, "run", Terms(**{"silos": len(grid.seats), "wait": 0.0} | terms))


@pytest.mark.parametrize("name", METHODS)
def test_every_method_gives_the_model_it_gives_in_this_process(name, tmp_path):
    data = parts()
    here = METHODS[name].fit(local(data, holdout=0.2))
    there = METHODS[name].fit(over(InlineGrid(tmp_path, data, holdout=0.2)))
    assert_same(here, there)
    assert [row.train_loss for row in here.history] == pytest.approx([row.train_loss for row in there.history])
