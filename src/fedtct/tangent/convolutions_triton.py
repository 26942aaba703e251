"""Convolutions of float32 images on a GPU's tensor cores, as exact as float32: every number as a sum of two halves.

A float32 number, scaled by a power of two into the range of float16, is the sum of two float16 numbers to 2⁻²², so that
a product of float32 matrices is three products of float16 ones, which tensor cores do many times as fast. What they sum
up themselves they cut rather than round; so each short stretch is added to the total in ordinary float32.

A program computes some pixels and outputs. For each tap of the kernel it loads the box of pixels that the tap sees;
what lies outside the image the hardware fills with zeros.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

PIXELS = 64  # of a program
STRETCH = 64  # channels that tensor cores sum up by themselves
WARPS, STAGES = 4, 2  # measured on an H200
SPLIT_TILE = (32, 64)  # channels and pixels


class Halves(NamedTuple):
    """Numbers as the sum of two halves over a scale, which is the power of two that brings ``largest`` near 2¹⁴.

    Every sample has its own: what is computed of one must not depend on those beside it.
    """

    high: Tensor
    low: Tensor
    largest: Tensor  # a number for each sample, on the device

    def descriptors(self, box: list[int]) -> tuple[TensorDescriptor, TensorDescriptor]:
        """For loading boxes of them."""
        return TensorDescriptor.from_tensor(self.high, box), TensorDescriptor.from_tensor(self.low, box)


def split_images(x: Tensor) -> Halves:
    """(n, channels, rows, columns) as halves of (n, rows, columns, channels)."""
    x = x.contiguous()
    samples, channels, rows, columns = x.shape
    high, low = torch.empty((2, samples, rows, columns, channels), dtype=torch.float16, device=x.device)
    largest = torch.linalg.vector_norm(x, float("inf"), dim=(1, 2, 3))
    grid = (triton.cdiv(rows * columns, SPLIT_TILE[1]), triton.cdiv(channels, SPLIT_TILE[0]), samples)
    _split[grid](x, largest, high, low, channels, rows * columns, *SPLIT_TILE)
    return Halves(high, low, largest)


def split_weight(weight: Tensor) -> Halves:
    """(outputs, channels, i, j) as halves of (i · j · channels, outputs)."""
    taps = weight.flatten(2).transpose(1, 2)[None]  # as images whose channels are the outputs: they come last, too
    high, low, largest = split_images(taps)
    return Halves(high.view(-1, len(weight)), low.view(-1, len(weight)), largest)


def convolve(x: Halves, weight: Halves, size: tuple[int, int], padding: tuple[int, int]) -> Tensor:
    """The convolution with a kernel of ``size``, moved a pixel at a time: (n, outputs, rows, columns) in float32."""
    samples, rows, columns, channels = x.high.shape
    outputs = weight.high.shape[1]
    rows, columns = (n + 2 * pad - side + 1 for n, pad, side in zip((rows, columns), padding, size, strict=True))
    out = torch.empty(samples, outputs, rows, columns, dtype=torch.float32, device=x.high.device)
    box = box_of_pixels(rows, columns)
    across = 64 if outputs % 128 else 128
    tiles = [triton.cdiv(n, side) for n, side in zip((samples, rows, columns), box, strict=True)]
    grid = (tiles[0] * tiles[1] * tiles[2] * (outputs // across),)
    _convolve[grid](
        *x.descriptors([*box, STRETCH]), *weight.descriptors([STRETCH, across]), x.largest, weight.largest, out,
        samples, rows, columns, channels, outputs, *tiles[1:], size[0] * size[1], size[1], *padding,
        *box, across, STRETCH, num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    return out


def box_of_pixels(rows: int, columns: int) -> tuple[int, int, int]:
    """How many samples, rows and columns a program's pixels are."""
    wide = min(triton.next_power_of_2(columns), 32)
    high = min(triton.next_power_of_2(rows), PIXELS // wide)
    return PIXELS // (wide * high), high, wide


@triton.jit
def _exponent_of_scale(largest):  # type: ignore[no-untyped-def]
    """As the bits of a float: of the power of two that brings ``largest`` below 2¹⁵."""
    exponent = (largest.to(tl.int32, bitcast=True) >> 23) & 255
    return tl.minimum(254, 127 + 14 + 127 - exponent)


@triton.jit  # type: ignore[untyped-decorator]
def _split(  # type: ignore[no-untyped-def]
    x, largest, high, low, channels, pixels, CHANNELS: tl.constexpr, PIXELS: tl.constexpr
):
    sample = tl.program_id(2).to(tl.int64)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    inside = (channel < channels)[:, None] & (pixel < pixels)[None, :]
    scale = (_exponent_of_scale(tl.load(largest + sample)) << 23).to(tl.float32, bitcast=True)
    value = tl.load(x + (sample * channels + channel)[:, None] * pixels + pixel[None, :], mask=inside, other=0) * scale
    first = value.to(tl.float16)
    second = (value - first.to(tl.float32)).to(tl.float16)
    here = (sample * pixels + pixel)[:, None] * channels + channel[None, :]
    tl.store(high + here, tl.trans(first), mask=tl.trans(inside))
    tl.store(low + here, tl.trans(second), mask=tl.trans(inside))


@triton.jit  # type: ignore[untyped-decorator]
def _convolve(  # type: ignore[no-untyped-def]
    x_high, x_low, w_high, w_low, x_largest, w_largest, out,
    samples, rows, columns, channels, outputs, tiles_high, tiles_wide, taps, tap_columns, pad_rows, pad_columns,
    SAMPLES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, OUTPUTS: tl.constexpr, STRETCH: tl.constexpr,
):  # fmt: skip
    PIXELS: tl.constexpr = SAMPLES * ROWS * COLUMNS
    across = outputs // OUTPUTS
    first_output = tl.program_id(0) % across * OUTPUTS
    tile = tl.program_id(0) // across
    first_column = tile % tiles_wide * COLUMNS
    first_row = tile // tiles_wide % tiles_high * ROWS
    first_sample = tile // (tiles_wide * tiles_high) * SAMPLES

    total = tl.zeros((PIXELS, OUTPUTS), dtype=tl.float32)
    for at in range(0, taps * channels, STRETCH):
        tap = at // channels
        row, column = first_row + tap // tap_columns - pad_rows, first_column + tap % tap_columns - pad_columns
        xh = x_high.load([first_sample, row, column, at % channels]).reshape(PIXELS, STRETCH)
        xl = x_low.load([first_sample, row, column, at % channels]).reshape(PIXELS, STRETCH)
        wh, wl = w_high.load([at, first_output]), w_low.load([at, first_output])
        part = tl.dot(xl, wh)
        part = tl.dot(xh, wl, part)
        total += tl.dot(xh, wh, part)

    pixel = tl.arange(0, PIXELS)
    column = first_column + pixel % COLUMNS
    row = first_row + pixel // COLUMNS % ROWS
    sample = first_sample + pixel // (COLUMNS * ROWS)
    output = first_output + tl.arange(0, OUTPUTS)
    there = (sample.to(tl.int64)[:, None] * outputs + output[None, :]) * (rows * columns) + (row * columns + column)[
        :, None
    ]
    inside = (sample < samples) & (row < rows) & (column < columns)
    of_sample = _exponent_of_scale(tl.load(x_largest + sample, mask=inside, other=1.0))
    unscaled = ((254 - of_sample) << 23).to(tl.float32, bitcast=True)
    unscaled *= ((254 - _exponent_of_scale(tl.load(w_largest))) << 23).to(tl.float32, bitcast=True)
    tl.store(out + there, total * unscaled[:, None], mask=inside[:, None])
