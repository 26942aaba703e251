"""Per-sample gradients of one layer's parameters at sampled entries, a rule for each kind of layer.

A rule gets the layer, the input it saw, the gradient with respect to its output, which of its parameters is meant
("weight" or "bias") and the sampled entries of that parameter's flattened form. It returns one row a sample, or the
dot products that make it up. Only the sampled entries are computed: at p = 100,000 of ResNet-18's 11 million
parameters, the rest would be 99 % waste.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from fedtct.tangent.dots import Dots

Rule = Callable[[Any, Tensor, Tensor, str, Tensor], Tensor | Dots]  # the layer is of the rule's own kind


def linear(layer: nn.Linear, x: Tensor, g: Tensor, name: str, entries: Tensor) -> Tensor | Dots:
    """d/dW[o, i] = Σ g[o]·x[i] over the positions that share the layer."""
    if name == "bias":
        return g.flatten(1, -2).sum(1)[:, entries] if g.ndim > 2 else g[:, entries]
    row, column = entries // layer.in_features, entries % layer.in_features
    if x.ndim == 2:
        return Dots(g, x, row, column, 1)
    g, x = g.flatten(1, -2).transpose(1, 2), x.flatten(1, -2).transpose(1, 2)
    positions = g.shape[2]
    return Dots(g, x, row * positions, column * positions, positions)


def conv1d(layer: nn.Conv1d, x: Tensor, g: Tensor, name: str, entries: Tensor) -> Tensor | Dots:
    """A convolution of images one pixel high."""
    return _convolution(layer, x.unsqueeze(2), g.unsqueeze(2), name, entries)


def conv2d(layer: nn.Conv2d, x: Tensor, g: Tensor, name: str, entries: Tensor) -> Tensor | Dots:
    """d/dW[o, c, i, j] = Σ over pixels of g[o]·x[c] shifted by (i, j)."""
    return _convolution(layer, x, g, name, entries)


def _convolution(layer: nn.Conv1d | nn.Conv2d, x: Tensor, g: Tensor, name: str, entries: Tensor) -> Tensor | Dots:
    """A sampled entry is one contiguous dot product.

    The padded input is cut into stride × stride phases, within each of which the kernel moves a pixel at a time; then
    g, given as many columns as a phase has, lines up with a stretch of the phase.
    """
    if name == "bias":
        return g.sum((2, 3))[:, entries]
    outputs, channels = layer.weight.shape[:2]
    (rows, columns), (dr, dc), (sr, sc) = (_pair(v) for v in (layer.kernel_size, layer.dilation, layer.stride))
    height, width = g.shape[2:]
    phase_height, phase_width = height + (rows - 1) * dr // sr, width + (columns - 1) * dc // sc
    phases = _phases(F.pad(x, _padding(layer)), (sr, sc), phase_height, phase_width)
    g = F.pad(g, (0, phase_width - width))

    j, i = entries % columns * dc, entries // columns % rows * dr
    channel, output = entries // (columns * rows) % channels, entries // (columns * rows * channels)
    channel = channel + output // (outputs // layer.groups) * channels
    phase = (channel * sr + i % sr) * sc + j % sc
    x_at = (phase * phase_height + i // sr) * phase_width + j // sc
    length = (height - 1) * phase_width + width
    return Dots(g, phases, output * height * phase_width, x_at, length)


def batch_norm(layer: nn.BatchNorm2d, x: Tensor, g: Tensor, name: str, entries: Tensor) -> Tensor:
    """In evaluation mode: the scale sees the normalised input, the shift the gradient alone."""
    g = g[:, entries]
    if name == "weight":
        assert layer.running_mean is not None
        assert layer.running_var is not None
        shape = (1, -1) + (1,) * (x.ndim - 2)
        std = (layer.running_var[entries] + layer.eps).sqrt().view(shape)
        g = g * (x[:, entries] - layer.running_mean[entries].view(shape)) / std
    return g.flatten(2).sum(2) if g.ndim > 2 else g


def group_norm(layer: nn.GroupNorm, x: Tensor, g: Tensor, name: str, entries: Tensor) -> Tensor:
    """As BatchNorm, with the statistics of the sample itself."""
    if name == "weight":
        g = g * F.group_norm(x, layer.num_groups, eps=layer.eps)
    return g[:, entries].flatten(2).sum(2) if g.ndim > 2 else g[:, entries]


def layer_norm(layer: nn.LayerNorm, x: Tensor, g: Tensor, name: str, entries: Tensor) -> Tensor:
    """As GroupNorm, over the last dimensions."""
    if name == "weight":
        g = g * F.layer_norm(x, layer.normalized_shape, eps=layer.eps)
    return g.reshape(len(g), -1, prod(layer.normalized_shape)).sum(1)[:, entries]


RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: linear,
    nn.Conv1d: conv1d,
    nn.Conv2d: conv2d,
    nn.BatchNorm1d: batch_norm,
    nn.BatchNorm2d: batch_norm,
    nn.GroupNorm: group_norm,
    nn.LayerNorm: layer_norm,
}


def rule_for(layer: nn.Module) -> Rule | None:
    """The rule of a layer, if its settings are ones the rule covers."""
    if isinstance(layer, nn.Conv1d | nn.Conv2d) and layer.padding_mode != "zeros":
        return None
    if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d) and not layer.track_running_stats:
        return None
    return RULES.get(type(layer))


def _pair(values: tuple[int, ...]) -> tuple[int, int]:
    return (values[0], values[1]) if len(values) == 2 else (1, values[0])


def _padding(layer: nn.Conv1d | nn.Conv2d) -> list[int]:
    """The amounts F.pad wants: last dimension first."""
    if layer.padding == "valid":
        return [0, 0, 0, 0]
    if layer.padding == "same":
        amounts = []
        for size, dilation in zip(reversed(_pair(layer.kernel_size)), reversed(_pair(layer.dilation)), strict=True):
            total = dilation * (size - 1)
            amounts += [total // 2, total - total // 2]
        return amounts
    assert isinstance(layer.padding, tuple)
    rows, columns = layer.padding if len(layer.padding) == 2 else (0, layer.padding[0])
    return [columns, columns, rows, rows]


def _phases(x: Tensor, stride: tuple[int, int], height: int, width: int) -> Tensor:
    """(n, c, rows, columns) as (n, c, phase row, phase column, height, width): every stride-th pixel together."""
    (sr, sc), (n, channels, rows, columns) = stride, x.shape
    x = F.pad(x, (0, max(0, sc * width - columns), 0, max(0, sr * height - rows)))[:, :, : sr * height, : sc * width]
    return x.reshape(n, channels, height, sr, width, sc).permute(0, 1, 3, 5, 2, 4)
