"""Convolutions of float32 images on a GPU's tensor cores, as exact as float32: every number as a sum of two halves.

A float32 number, scaled by a power of two into the range of float16, is the sum of two float16 numbers to 2⁻²², so that
a product of float32 matrices is three products of float16 ones, which tensor cores do many times as fast. What they sum
up themselves they cut rather than round; so each short stretch is added to the total in ordinary float32.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

STRETCH = 32  # channels that tensor cores sum up by themselves
SPLIT_TILE = (32, 64)  # channels and pixels


class Halves(NamedTuple):
    """Numbers as the sum of two halves over a scale, which is the power of two that brings ``largest`` to 2¹⁴."""

    high: Tensor
    low: Tensor
    largest: Tensor  # one number, on the device


def split_images(x: Tensor, padding: tuple[int, int]) -> Halves:
    """(n, channels, rows, columns) as halves of (n, padded rows, padded columns, channels)."""
    x = x.contiguous()
    samples, channels, rows, columns = x.shape
    size = (2, samples, rows + 2 * padding[0], columns + 2 * padding[1], channels)
    high, low = torch.zeros(size, dtype=torch.float16, device=x.device)
    largest = torch.linalg.vector_norm(x, float("inf"))
    grid = (triton.cdiv(rows * columns, SPLIT_TILE[1]), triton.cdiv(channels, SPLIT_TILE[0]), samples)
    _split[grid](x, largest, high, low, channels, rows, columns, *padding, *SPLIT_TILE)
    return Halves(high, low, largest)


def split_weight(weight: Tensor) -> Halves:
    """(outputs, channels, i, j) as halves of (i, j, channels, outputs)."""
    halves = split_images(weight.permute(2, 3, 1, 0).reshape(1, 1, 1, -1), (0, 0))
    shape = (*weight.shape[2:], weight.shape[1], weight.shape[0])
    return Halves(halves.high.view(shape), halves.low.view(shape), halves.largest)


def convolve(x: Halves, weight: Halves, stride: tuple[int, int]) -> Tensor:
    """The convolution of padded images, (n, outputs, rows, columns) in float32."""
    samples, high, wide, channels = x.high.shape
    i, j, _, outputs = weight.high.shape
    rows, columns = (high - i) // stride[0] + 1, (wide - j) // stride[1] + 1
    out = torch.empty(samples, outputs, rows, columns, device=x.high.device)
    tile = tile_for(outputs)
    grid = (triton.cdiv(samples * rows * columns, tile.pixels) * (outputs // tile.outputs),)
    _convolve[grid](
        x.high, x.low, weight.high, weight.low, x.largest, weight.largest, out, samples * rows * columns,
        channels, outputs, rows, columns, high, wide, *stride, i * j, j, tile.pixels, tile.outputs, tile.stretch,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return out


class Tile(NamedTuple):
    """What one program computes, and how."""

    pixels: int
    outputs: int
    stretch: int
    warps: int
    stages: int


def tile_for(outputs: int) -> Tile:
    """What measured best on an H200."""
    return Tile(128, 64 if outputs % 128 else 128, 64, 8, 3)


@triton.jit  # type: ignore[untyped-decorator]
def _exponent_of_scale(largest):
    """As the bits of a float: of the power of two that brings ``largest`` below 2¹⁵."""
    exponent = (tl.load(largest).to(tl.int32, bitcast=True) >> 23) & 255
    return tl.minimum(254, 127 + 14 + 127 - exponent)


@triton.jit  # type: ignore[untyped-decorator]
def _split(  # type: ignore[no-untyped-def]
    x, largest, high, low, channels, rows, columns, pad_rows, pad_columns, CHANNELS: tl.constexpr, PIXELS: tl.constexpr
):
    sample = tl.program_id(2).to(tl.int64)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    inside = (channel < channels)[:, None] & (pixel < rows * columns)[None, :]
    scale = (_exponent_of_scale(largest) << 23).to(tl.float32, bitcast=True)
    there = (sample * channels + channel)[:, None] * (rows * columns) + pixel[None, :]
    value = tl.load(x + there, mask=inside, other=0) * scale
    first = value.to(tl.float16)
    second = (value - first.to(tl.float32)).to(tl.float16)
    row, column = pixel // columns + pad_rows, pixel % columns + pad_columns
    place = (sample * (rows + 2 * pad_rows) + row) * (columns + 2 * pad_columns) + column
    here = place[:, None] * channels + channel[None, :]
    tl.store(high + here, tl.trans(first), mask=tl.trans(inside))
    tl.store(low + here, tl.trans(second), mask=tl.trans(inside))


@triton.jit  # type: ignore[untyped-decorator]
def _convolve(  # type: ignore[no-untyped-def]
    x_high, x_low, w_high, w_low, x_largest, w_largest, out, pixels, channels, outputs,
    rows, columns, padded_rows, padded_columns, stride_rows, stride_columns, taps, tap_columns,
    PIXELS: tl.constexpr, OUTPUTS: tl.constexpr, STRETCH: tl.constexpr,
):  # fmt: skip
    across = outputs // OUTPUTS
    pixel = tl.program_id(0) // across * PIXELS + tl.arange(0, PIXELS)
    output = tl.program_id(0) % across * OUTPUTS + tl.arange(0, OUTPUTS)
    known = tl.minimum(pixel, pixels - 1)
    sample, row, column = known // (rows * columns), known // columns % rows, known % columns
    corner = (sample * padded_rows + row * stride_rows) * padded_columns + column * stride_columns
    step = tl.arange(0, STRETCH)
    from_x = corner[:, None] * channels + step[None, :]
    from_w = step[:, None] * outputs + output[None, :]
    total = tl.zeros((PIXELS, OUTPUTS), dtype=tl.float32)
    for at in range(0, taps * channels, STRETCH):
        tap = at // channels
        shift = (tap // tap_columns * padded_columns + tap % tap_columns) * channels + at % channels
        xh, xl = tl.load(x_high + from_x + shift), tl.load(x_low + from_x + shift)
        wh, wl = tl.load(w_high + from_w + at * outputs), tl.load(w_low + from_w + at * outputs)
        part = tl.dot(xl, wh)
        part = tl.dot(xh, wl, part)
        total += tl.dot(xh, wh, part)
    unscaled = ((254 - _exponent_of_scale(x_largest)) << 23).to(tl.float32, bitcast=True)
    unscaled *= ((254 - _exponent_of_scale(w_largest)) << 23).to(tl.float32, bitcast=True)
    there = (sample[:, None] * outputs + output[None, :]) * (rows * columns) + (known % (rows * columns))[:, None]
    tl.store(out + there, total * unscaled, mask=(pixel < pixels)[:, None])
