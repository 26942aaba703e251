"""Rules for layers are tried on some samples before they are used, so that none goes wrong silently."""

import subprocess
from unittest.mock import Mock

import pandas as pd
import pytest
import torch
from core_helpers import tct
from torch import nn

from fedtct import Classifier, FedtctError, Ridge, Silo, tangent_features
from fedtct.models import build_module
from fedtct.tangent import gradients
from fedtct.tangent.gradients import SampledGradients, why_not_by_layers


class Windows(nn.Module):
    """Folds windows of an image into the batch: a layer sees other rows than samples."""

    def __init__(self):
        super().__init__()
        self.each, self.head = nn.Linear(4, 3), nn.Linear(12, 2)

    def forward(self, x):
        return self.head(self.each(x.reshape(-1, 4)).tanh().reshape(len(x), -1))


def test_a_layer_that_sees_other_rows_than_samples_goes_the_general_way():
    model, x, every = Windows(), torch.randn(5, 16), torch.arange(41)
    assert "12 rows for 3 samples" in str(why_not_by_layers(model, x[:3], every))
    with pytest.warns(UserWarning, match="by torch.func, which is slower: Linear sees 16 rows for 4 samples"):
        features = tangent_features(model, x, every)
    torch.testing.assert_close(features, tangent_features(model, x, every, method="func"))


@pytest.mark.parametrize(("wrong_in", "by_layers"), [([torch.float32], True), ([torch.float32, torch.float64], False)])
def test_rounding_may_flip_a_relu_but_a_rule_must_not_miss_anything(wrong_in, by_layers, monkeypatch):
    rules = gradients.by_layers

    def slightly_wrong(model, x, result, pieces):
        rules(model, x, result, pieces)
        if result.dtype in wrong_in:
            result[1] *= 1.01

    monkeypatch.setattr(gradients, "by_layers", slightly_wrong)
    module, x = build_module("mlp", (12,), 3), torch.randn(4, 12, generator=torch.Generator().manual_seed(0))
    every = torch.arange(sum(p.numel() for p in module.parameters()))
    assert (why_not_by_layers(module, x, every) is None) == by_layers


def test_whatever_a_compiler_of_kernels_says_costs_no_run_but_memory_is_not_its_fault(monkeypatch):
    def fail(error):
        monkeypatch.setattr(gradients, "by_layers", Mock(side_effect=error))

    module, x, every = nn.Linear(3, 2), torch.randn(2, 3), torch.arange(3)
    fail(subprocess.CalledProcessError(1, "gcc"))
    assert "rules for its layers do not apply (Command 'gcc'" in str(why_not_by_layers(module, x, every))
    fail(torch.OutOfMemoryError("CUDA out of memory"))
    with pytest.raises(torch.OutOfMemoryError):
        why_not_by_layers(module, x, every)


@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
def test_samples_that_are_not_finite_decide_nothing(bad, recwarn):
    x, every = torch.randn(9, 12, generator=torch.Generator().manual_seed(0)), torch.arange(300)
    expected = tangent_features(build_module("mlp", (12,), 3), x, every)
    x[:5] = bad
    gradients_of = SampledGradients(build_module("mlp", (12,), 3), every)
    gradients_of.prepare(x[:0])
    gradients_of.prepare(x[:4])
    assert gradients_of(x[:4]).shape == (4, 300)
    assert gradients_of.method == "auto"
    torch.testing.assert_close(gradients_of(x)[5:], expected[5:])
    assert gradients_of.method == "layers"
    assert not recwarn.list


def test_a_model_is_as_fast_after_samples_that_it_refuses():
    x, y = torch.randn(20, 4, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 3
    table = pd.DataFrame(x.numpy(), columns=list("abcd"))
    model = Classifier.from_bytes(tct("mlp", Ridge(d=20)).fit([Silo(table, y)]).model.to_bytes())
    far = table.astype(float)
    far.iloc[0, 0] = 1e60
    with pytest.raises(FedtctError, match="no finite scores for 1 of 20"):
        model.predict(far)
    assert model.tangents.gradients.method == "layers"
