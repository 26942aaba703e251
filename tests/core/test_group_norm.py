"""GroupNorm by channels is GroupNorm: values and gradients, in whichever way it is compiled."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedtct.models import build_module
from fedtct.training.group_norm import by_channels, normalize_by_channels


def values_and_gradients(forward, layer, x, direction):
    x = x.clone(memory_format=torch.preserve_format).requires_grad_()
    y = forward(x)
    return y, *torch.autograd.grad((y * direction).sum(), [x, *layer.parameters()])


@given(
    groups=st.integers(1, 3),
    size=st.integers(1, 4),
    sides=st.tuples(st.integers(1, 5), st.integers(2, 5)),
    affine=st.booleans(),
    centre=st.sampled_from([0.0, 100.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_it_is_torchs_in_float64(groups, size, sides, affine, centre, seed):
    torch.manual_seed(seed)
    layer = nn.GroupNorm(groups, groups * size, affine=affine, dtype=torch.float64)
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    x, direction = (torch.randn(3, groups * size, *sides, dtype=torch.float64) for _ in range(2))
    x = (x + centre).contiguous(memory_format=torch.channels_last)
    found = values_and_gradients(lambda x: by_channels(x, layer), layer, x, direction)
    # The centre plays no part in what comes out, but torch's own way loses digits to it.
    for value, expected in zip(found, values_and_gradients(layer, layer, x - centre, direction), strict=True):
        torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-9)


def test_half_precision_comes_out_as_it_went_in_with_moments_in_float32():
    layer, x = nn.GroupNorm(2, 8), (torch.randn(3, 8, 5, 5) + 30).bfloat16()
    found = by_channels(x, layer)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, layer(x.float()).bfloat16())


@pytest.fixture
def compiler():
    """How often a module was compiled, and what of."""
    torch._dynamo.reset()
    graphs = []

    def backend(graph, example_inputs):
        graphs.append(str(graph.code))
        return graph

    yield torch.compile(lambda module, x: module(x).sum(), dynamic=False, backend=backend), graphs
    torch._dynamo.reset()


def test_silos_share_what_is_compiled_and_groups_are_taken_by_channels(compiler):
    compiled, graphs = compiler
    x = torch.randn(4, 3, 8, 8, dtype=torch.float64)
    for seed in range(10):  # torch gives up after eight
        plain = build_module("resnet18-gn", (3, 8, 8), 3, seed=seed).double()
        ours = copy.deepcopy(plain)
        normalize_by_channels(ours)
        assert ours.state_dict().keys() == plain.state_dict().keys()
        torch.testing.assert_close(compiled(ours, x), plain(x).sum())
        assert torch.equal(ours(x), plain(x))
    assert len(graphs) == 1
    assert "var_mean" in graphs[0]
    assert "group_norm" not in graphs[0]


def test_what_is_no_image_is_left_to_torch(compiler):
    compiled, graphs = compiler
    ours = nn.Sequential(nn.GroupNorm(2, 6), nn.Flatten())
    normalize_by_channels(ours)
    x = torch.randn(4, 6)
    assert torch.equal(compiled(ours, x), nn.GroupNorm(2, 6)(x).sum())
    assert "group_norm" in graphs[0]
