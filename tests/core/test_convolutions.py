"""The GPU's convolution, in Triton's interpreter: as exact as float32, forwards and backwards."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedtct import tangent_features
from fedtct.tangent import convolutions, layers
from fedtct.tangent.convolutions import CHANNELS, Convolution, kernel_suits

FLOAT32 = 1e-6


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    assert found.shape == exact.shape
    return float((found - exact).detach().norm() / exact.detach().norm())


@settings(max_examples=4)  # the interpreter takes a second for each
@given(
    samples=st.integers(1, 2),
    size=st.tuples(st.integers(3, 6), st.integers(3, 9)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padded=st.booleans(),
    magnitude=st.sampled_from([1e-12, 1.0, 1e6]),
)
def test_it_is_a_convolution_and_its_gradient(samples, size, kernel, padded, magnitude):
    torch.manual_seed(0)
    padding = tuple(side - 1 for side in kernel) if padded else (0, 0)
    x = magnitude * torch.randn(samples, CHANNELS, *size)
    weight, x = torch.randn(CHANNELS, CHANNELS, *kernel), x.requires_grad_()
    exact_x = x.detach().double().requires_grad_()
    out, exact = Convolution.apply(x, weight, padding), F.conv2d(exact_x, weight.double(), padding=padding)
    assert error(out, exact) < FLOAT32
    g = torch.randn_like(out)
    (found,) = torch.autograd.grad(out, x, g)
    (expected,) = torch.autograd.grad(exact, exact_x, g.double())
    assert error(found, expected) < FLOAT32


@pytest.mark.parametrize("magnitude", [0.0, 1e6, 1e30])
def test_a_sample_is_the_same_to_the_last_bit_beside_any_other(magnitude):
    torch.manual_seed(0)
    x, weight = torch.randn(3, CHANNELS, 3, 4), torch.randn(CHANNELS, CHANNELS, 3, 3)
    alone = Convolution.apply(x, weight, (1, 1))
    beside = Convolution.apply(x * torch.tensor([1.0, magnitude, 1.0]).view(3, 1, 1, 1), weight, (1, 1))
    assert torch.equal(beside[[0, 2]], alone[[0, 2]])


@pytest.mark.parametrize("magnitude", [0.0, 1e-30, 1.0, 1e30])
def test_two_halves_hold_a_number_to_22_bits(magnitude):
    from fedtct.tangent.convolutions_triton import split_images

    x = magnitude * torch.randn(2, 5, 3, 4, generator=torch.Generator().manual_seed(0))
    high, low, largest = split_images(x)
    assert torch.equal(largest, x.abs().amax((1, 2, 3)))
    together = (high.double() + low.double()).permute(0, 3, 1, 2)
    scale = (together.abs().amax((1, 2, 3)) / largest).view(2, 1, 1, 1) if magnitude else 1.0
    assert torch.all((together - scale * x.double()).abs() <= 2**-22 * scale * x.abs() + 2**-24)


class Deep(nn.Module):
    """Convolutions that the kernel covers, with and without a bias, and one that it does not."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(2, CHANNELS, 3, padding=1)
        self.second = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.third = nn.Conv2d(CHANNELS, CHANNELS, 1, bias=False)
        self.head = nn.Linear(CHANNELS, 3)

    def forward(self, x):
        for layer in (self.first, self.second, self.third):
            x = torch.tanh(layer(x))
        return self.head(x.mean((2, 3)))


def test_tangent_features_take_it_for_the_layers_that_it_suits(monkeypatch):
    torch.manual_seed(0)
    module, x = Deep(), torch.randn(1, 2, 3, 4)
    coordinates = torch.randperm(sum(p.numel() for p in module.parameters()))[:500]
    exact = tangent_features(module.double(), x.double(), coordinates)
    module.float()
    calls = []
    apply = Convolution.apply
    monkeypatch.setattr(Convolution, "apply", lambda *args: calls.append(args[1]) or apply(*args))
    monkeypatch.setattr(layers, "fast_convolutions", lambda device: convolutions._FastConvolutions())
    assert error(tangent_features(module, x, coordinates, method="layers"), exact) < FLOAT32
    assert [id(weight) for weight in calls] == [id(module.second.weight), id(module.third.weight)]


@pytest.mark.parametrize(
    ("change", "suits"),
    [
        ({}, True),
        ({"stride": 2}, False),
        ({"dilation": 2}, False),
        ({"groups": 2}, False),
        ({"padding": "same"}, False),
        ({"padding": 3}, False),
        ({"in_channels": CHANNELS // 2}, False),
        ({"dtype": torch.float64}, False),
    ],
    ids=str,
)
def test_what_it_covers(change, suits):
    layer = nn.Conv2d(**{"in_channels": CHANNELS, "out_channels": CHANNELS, "kernel_size": 3, "padding": 1} | change)
    x = torch.zeros(1, layer.in_channels, 5, 5, dtype=layer.weight.dtype)
    rest = (layer.bias, layer.stride, layer.padding, layer.dilation, layer.groups)
    assert kernel_suits(x, layer.weight.detach(), *rest) is suits
    assert kernel_suits(x, layer.weight, *rest) is False  # its weight's gradient would be asked for
