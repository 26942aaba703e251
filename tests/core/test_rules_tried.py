"""Rules for layers are tried on some samples before they are used, so that none goes wrong silently."""

import pytest
import torch
from torch import nn

from fedtct import tangent_features
from fedtct.models import build_module
from fedtct.tangent import gradients
from fedtct.tangent.gradients import why_not_by_layers


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
    with pytest.warns(UserWarning, match="general way"):
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
