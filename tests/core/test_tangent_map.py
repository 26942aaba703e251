"""A tangent map takes a while to make: silos of one process share it, and nothing else does."""

import torch
from torch import nn

from fedtct.models import InputSpec, NetworkSpec
from fedtct.tangent import TangentFeatures, shared_map

SPEC = NetworkSpec("mlp", InputSpec((6,), torch.float32), 3)
CPU = torch.device("cpu")


def test_the_same_question_gets_the_same_map():
    recipe = TangentFeatures(20).recipe(SPEC.build("cpu").weights())
    assert shared_map(SPEC, recipe, CPU) is shared_map(SPEC, recipe, CPU)


def test_another_recipe_gets_another_map():
    weights = SPEC.build("cpu").weights()
    first, second = (TangentFeatures(20, seed=seed).recipe(weights) for seed in (0, 1))
    assert shared_map(SPEC, first, CPU) is not shared_map(SPEC, second, CPU)


def test_weights_that_were_written_to_are_others():
    recipe = TangentFeatures(20).recipe(SPEC.build("cpu").weights())
    x = torch.randn(4, 6)
    before = shared_map(SPEC, recipe, CPU)(x)
    recipe.parameters.mul_(2)
    after = shared_map(SPEC, recipe, CPU)(x)
    assert not torch.equal(before, after)
    assert torch.equal(after, shared_map(SPEC, recipe._replace(parameters=recipe.parameters.clone()), CPU)(x))


def test_a_head_without_a_bias_gets_none():
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3, bias=False))
    spec = NetworkSpec(model, SPEC.inputs, 3)
    tangents = shared_map(spec, TangentFeatures().recipe(spec.build().weights()), CPU)
    assert tangents.p == 6 * 4 + 4 + 4
