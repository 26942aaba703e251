"""Per-sample gradients of one layer's parameters at sampled entries, a rule for each kind of layer.

A rule gets the layer, the input it saw, the gradient with respect to its output, which of its parameters is meant
("weight" or "bias") and the sampled entries of that parameter's flattened form. It returns one row a sample, or the
dot products that make it up. Only the sampled entries are computed: at p = 100,000 of ResNet-18's 11 million
parameters, the rest would be 99 % waste.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedtct.tangent.dots import Dots


class NoRule(Exception):
    """The layer-by-layer way does not cover this model."""


Rule = Callable[[Any, Tensor, Tensor, str, Tensor], Tensor | Dots]  # see above; each takes its own kind of layer


def linear(layer: nn.Module, x: Tensor, g: Tensor, name: str, entries: Tensor) -> Tensor | Dots:
    """d/dW[o, i] = Σ g[o]·x[i] over the positions that share the layer."""
    if name == "bias":
        return g.flatten(1, -2).sum(1)[:, entries] if g.ndim > 2 else g[:, entries]
    row, column = entries // x.shape[-1], entries % x.shape[-1]
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
    phases = _phases(x, _padding(layer), (sr, sc), (phase_height, phase_width))
    g = _phases(g, (0, 0), (1, 1), (height, phase_width))

    kernel = _Kernel(outputs, channels, rows, columns, dr, dc, sr, sc, layer.groups)
    g_at, x_at = _places(entries, kernel, height, phase_height, phase_width)
    return Dots(g, phases, g_at, x_at, length=(height - 1) * phase_width + width)


class _Kernel(NamedTuple):
    outputs: int
    channels: int  # of a group
    rows: int
    columns: int
    dilation_rows: int
    dilation_columns: int
    stride_rows: int
    stride_columns: int
    groups: int


@lru_cache(maxsize=256)  # entries are the same for every batch, and on a GPU these are many small kernels
def _places(
    entries: Tensor, kernel: _Kernel, height: int, phase_height: int, phase_width: int
) -> tuple[Tensor, Tensor]:
    """Where in the gradient and in the phases of the input the dot products of sampled entries begin."""
    k = kernel
    j, i = entries % k.columns * k.dilation_columns, entries // k.columns % k.rows * k.dilation_rows
    channel, output = entries // (k.columns * k.rows) % k.channels, entries // (k.columns * k.rows * k.channels)
    channel = channel + output // (k.outputs // k.groups) * k.channels
    phase = (channel * k.stride_rows + i % k.stride_rows) * k.stride_columns + j % k.stride_columns
    x_at = (phase * phase_height + i // k.stride_rows) * phase_width + j // k.stride_columns
    return output * height * phase_width, x_at


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


def embedding(layer: nn.Embedding, x: Tensor, g: Tensor, name: str, entries: Tensor) -> Tensor:
    """d/dW[v, e] = Σ g[e] over the positions that hold v: summed up at one of them, which a table by v finds."""
    x, g = x.reshape(len(x), -1).long(), g.reshape(len(g), -1, layer.embedding_dim)
    (samples, positions), nowhere = x.shape, x.shape[1]
    place = x.new_full((samples, layer.num_embeddings), nowhere)
    place.scatter_(1, x, torch.arange(positions, device=x.device).expand_as(x))
    sums = g.new_zeros(samples, positions + 1, layer.embedding_dim)
    sample = torch.arange(samples, device=x.device).unsqueeze(1)
    sums.index_put_((sample, place.gather(1, x)), g, accumulate=True)  # in the same order every time, on GPUs too
    if layer.padding_idx is not None:
        place[:, layer.padding_idx] = nowhere
    row, column = entries // layer.embedding_dim, entries % layer.embedding_dim
    return sums.flatten(1).gather(1, place[:, row].mul_(layer.embedding_dim).add_(column))


RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: linear,
    nn.modules.linear.NonDynamicallyQuantizableLinear: linear,  # what attention ends with
    nn.Conv1d: conv1d,
    nn.Conv2d: conv2d,
    nn.BatchNorm1d: batch_norm,
    nn.BatchNorm2d: batch_norm,
    nn.GroupNorm: group_norm,
    nn.LayerNorm: layer_norm,
    nn.Embedding: embedding,
}


def rule_for(layer: nn.Module) -> Rule | None:
    """The rule for a layer; none if there is none that covers its settings."""
    if isinstance(layer, nn.Conv1d | nn.Conv2d) and layer.padding_mode != "zeros":
        return None
    if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d) and not layer.track_running_stats:
        return None
    if isinstance(layer, nn.Embedding) and (layer.max_norm is not None or layer.scale_grad_by_freq):
        return None
    return RULES.get(type(layer))


def _pair(values: tuple[int, ...]) -> tuple[int, int]:
    return (values[0], values[1]) if len(values) == 2 else (1, values[0])


def _padding(layer: nn.Conv1d | nn.Conv2d) -> tuple[int, int]:
    """Rows above and columns to the left of the image."""
    if layer.padding == "valid":
        return 0, 0
    if layer.padding == "same":
        (rows, columns), (dr, dc) = _pair(layer.kernel_size), _pair(layer.dilation)
        return dr * (rows - 1) // 2, dc * (columns - 1) // 2
    assert isinstance(layer.padding, tuple)
    return (layer.padding[0], layer.padding[1]) if len(layer.padding) == 2 else (0, layer.padding[0])


def _phases(x: Tensor, padding: tuple[int, int], stride: tuple[int, int], size: tuple[int, int]) -> Tensor:
    """The zero-padded x as (n, channels, phase row, phase column, *size): every stride-th pixel together.

    Its memory is in that order, whatever the order of x is.
    """
    result = x.new_zeros(*x.shape[:2], *stride, *size)
    for row, column in product(range(stride[0]), range(stride[1])):
        to_rows, rows = _phase(row, padding[0], stride[0], x.shape[2], size[0])
        to_columns, columns = _phase(column, padding[1], stride[1], x.shape[3], size[1])
        result[:, :, row, column, to_rows, to_columns] = x[:, :, rows, columns]
    return result


def _phase(phase: int, padding: int, stride: int, length: int, size: int) -> tuple[slice, slice]:
    """Which places of a phase of length ``size`` lie in the unpadded image, and which of its pixels go there."""
    first = max(0, -((phase - padding) // stride))
    pixel = phase + stride * first - padding
    count = max(0, min(size - first, -((pixel - length) // stride)))
    return slice(first, first + count), slice(pixel, pixel + stride * count, stride)
