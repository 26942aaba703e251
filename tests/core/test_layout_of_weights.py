"""Weights are a vector: a model whose layers come in another order must not take them."""

from dataclasses import replace

import pytest
import torch
from core_helpers import skewed_silos, tct
from torch import nn

from fedtct import Classifier, FedAvg, FedtctError, Ridge
from fedtct.history import Journal

TRAIN = FedAvg(rounds=1, local_epochs=1, batch_size=8)


class Layers(nn.Module):
    """The same function of the same layers, whatever the order they are defined in."""

    def __init__(self, *order):
        super().__init__()
        for name in order:
            self.add_module(name, nn.Linear(4, 4))
        self.norm, self.head = nn.BatchNorm1d(4), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.norm(self.second(torch.relu(self.first(x)))))


class Kept(Journal):
    """A journal of a run that goes on with what it began with."""

    kept = None

    def agreement(self):
        return self.kept

    def keep_agreement(self, agreement):
        self.kept = agreement


def methods(model):
    return {"network": replace(TRAIN, model=model), "tangent": tct(model, Ridge(d=20), stage1=TRAIN)}


MESSAGE = r"not the one that was trained: it has second.weight \(4, 4\) instead of first.weight \(4, 4\)"


@pytest.mark.parametrize("kind", ["network", "tangent"])
def test_a_saved_model_is_not_loaded_into_layers_of_another_order(kind, tmp_path):
    silos = skewed_silos()
    model = methods(Layers("first", "second"))[kind].fit(silos).model
    model.save(tmp_path)
    x = silos[0].x
    assert torch.equal(Classifier.load(tmp_path, model=Layers("first", "second")).scores(x), model.scores(x))
    with pytest.raises(FedtctError, match=MESSAGE):
        Classifier.load(tmp_path, model=Layers("second", "first"))
    with pytest.raises(FedtctError, match=MESSAGE):
        Classifier.from_bytes(model.to_bytes(), model=Layers("second", "first"))


@pytest.mark.parametrize("kind", ["network", "tangent"])
def test_a_run_does_not_go_on_with_layers_of_another_order(kind):
    journal = Kept()
    methods(Layers("first", "second"))[kind].fit(skewed_silos(), journal=journal)
    methods(Layers("first", "second"))[kind].fit(skewed_silos(), journal=journal)
    with pytest.raises(FedtctError, match=MESSAGE):
        methods(Layers("second", "first"))[kind].fit(skewed_silos(), journal=journal)
