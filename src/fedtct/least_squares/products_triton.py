"""Products of half-precision features and float32 matrices on a GPU's tensor cores, as exact as float32.

The float32 matrix, each column scaled, is written as the sum of two float16 ones, so that two products of halves are
one of float32. Features are read once, as they are stored. Tensor cores cut what they sum up rather than round it; so
each short stretch is added to the total in ordinary float32.
"""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

ROWS, STRETCH = 128, 64  # of the result, a program's; of the sum, what tensor cores do by themselves
COLUMNS = (16, 32, 64, 128)
PROGRAMS = 1024  # that fill a GPU: where a result is small, several share a sum
STAGES = 3
LARGEST_SCALE = 126  # as a power of two, which a float32 number can be


def multiply(z: Tensor, b: Tensor, *, transposed: bool) -> Tensor:
    """Z·B, or Zᵀ·B. Rows of Z must begin at multiples of 16 bytes."""
    inner, rows = z.shape if transposed else z.shape[::-1]
    columns = b.shape[1]
    wide = next((width for width in COLUMNS if width >= columns), COLUMNS[-1])
    padded = triton.cdiv(columns, wide) * wide
    tiles = triton.cdiv(rows, ROWS) * (padded // wide)
    shares = max(1, min(PROGRAMS // tiles, inner // (8 * STRETCH)))
    share = triton.cdiv(triton.cdiv(inner, shares), STRETCH) * STRETCH
    out = torch.empty(triton.cdiv(inner, share), rows, padded, dtype=torch.float32, device=z.device)
    scale, high, low = _halves(F.pad(b, (0, padded - columns)))
    box = [STRETCH, ROWS] if transposed else [ROWS, STRETCH]
    descriptors = [TensorDescriptor.from_tensor(z, box)]
    descriptors += [TensorDescriptor.from_tensor(half, [STRETCH, wide]) for half in (high, low)]
    grid = (triton.cdiv(rows, ROWS), padded // wide, len(out))
    _multiply[grid](
        *descriptors, out, rows, padded, inner, share, transposed, ROWS, wide, STRETCH,
        num_warps=4 if wide < 64 else 8, num_stages=STAGES,
    )  # fmt: skip
    return (out.sum(0) / scale)[:, :columns]


def _halves(b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scales and two halves: B·scale = high + low to 22 bits. A scale is a power of two, found on the device.

    Every column has its own: where a grid's cells are solved side by side, one that diverges must not cost the others.
    """
    exponent = torch.frexp(torch.linalg.vector_norm(b, float("inf"), dim=0)).exponent
    scale = torch.ldexp(torch.ones_like(exponent, dtype=b.dtype), (14 - exponent).clamp(max=LARGEST_SCALE))
    scaled = b * scale
    high = scaled.half()
    return scale, high, (scaled - high).half()


@triton.jit  # type: ignore[untyped-decorator]
def _multiply(  # type: ignore[no-untyped-def]
    z, high, low, out, rows, columns, inner, share,
    TRANSPOSED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STRETCH: tl.constexpr,
):  # fmt: skip
    first_row, first_column = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
    start = tl.program_id(2) * share
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for at in range(start, tl.minimum(start + share, inner), STRETCH):
        piece = z.load([at, first_row]).T if TRANSPOSED else z.load([first_row, at])
        part = tl.dot(piece, low.load([at, first_column]))
        total += tl.dot(piece, high.load([at, first_column]), part)
    row, column = first_row + tl.arange(0, ROWS), first_column + tl.arange(0, COLUMNS)
    place = (tl.program_id(2).to(tl.int64) * rows + row)[:, None] * columns + column[None, :]
    tl.store(out + place, total, mask=(row < rows)[:, None])
