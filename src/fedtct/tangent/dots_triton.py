"""The dot products of ``Dots`` on a GPU: a program for a sample and a block of entries."""

import torch
import triton
import triton.language as tl
from torch import Tensor

ELEMENTS = 2048  # products that a program holds at a time
LONGEST = 32  # of which these many belong to one entry


def triton_kernel(g: Tensor, x: Tensor, g_at: Tensor, x_at: Tensor, length: int, out: Tensor) -> None:
    """Compute them into ``out``, (samples, entries), whose rows may lie apart."""
    steps = min(triton.next_power_of_2(length), LONGEST)
    block = ELEMENTS // steps
    grid = (triton.cdiv(len(g_at), block), len(g))
    with torch.cuda.device_of(g):
        _dots[grid](g, x, g_at, x_at, out, len(g_at), length, g.stride(0), x.stride(0), out.stride(0), block, steps)


@triton.jit  # type: ignore[untyped-decorator]
def _dots(  # type: ignore[no-untyped-def]
    g, x, g_at, x_at, out, entries, length, g_row, x_row, out_row, BLOCK: tl.constexpr, STEPS: tl.constexpr
):
    sample = tl.program_id(1).to(tl.int64)
    entry = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    wanted = entry < entries
    g_first = g + sample * g_row + tl.load(g_at + entry, mask=wanted, other=0)
    x_first = x + sample * x_row + tl.load(x_at + entry, mask=wanted, other=0)
    sums = tl.zeros((BLOCK, STEPS), dtype=out.dtype.element_ty)
    for start in range(0, length, STEPS):
        step = start + tl.arange(0, STEPS)
        inside = wanted[:, None] & (step < length)[None, :]
        left = tl.load(g_first[:, None] + step[None, :], mask=inside, other=0)
        right = tl.load(x_first[:, None] + step[None, :], mask=inside, other=0)
        sums += left * right
    tl.store(out + sample * out_row + entry, tl.sum(sums, 1), mask=wanted)
