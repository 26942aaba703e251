"""Many short dot products between sampled pieces of two arrays: what sampled weight gradients come down to."""

import ctypes
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import Tensor

GATHERED = 2**24  # numbers that the plain way holds at a time


@dataclass(frozen=True)
class Dots:
    """For every sample s and entry j, Σ_{t < length} g[s, g_at[j] + t] · x[s, x_at[j] + t]."""

    g: Tensor  # (samples, …), flattened but for the samples
    x: Tensor
    g_at: Tensor  # (entries,)
    x_at: Tensor
    length: int

    def write(self, out: Tensor) -> None:
        """Compute them into ``out``, (samples, entries), whose rows need not be contiguous."""
        if not len(self.g) == len(self.x) == len(out):  # kernels do not check their bounds
            raise RuntimeError(f"a layer saw {len(self.x)} rows for {len(out)} samples")
        g, x = self.g.flatten(1).contiguous(), self.x.flatten(1).contiguous()
        simple = g.dtype == x.dtype == out.dtype and g.dtype in _C_NAMES and out.stride(1) == 1
        kernel = fast_kernel(g.device.type) if simple else plain_kernel
        kernel(g, x, self.g_at, self.x_at, self.length, out)


Kernel = Callable[[Tensor, Tensor, Tensor, Tensor, int, Tensor], None]  # g, x, g_at, x_at, length, out


@cache
def fast_kernel(device: str) -> Kernel:
    """The kernel in C on a processor, in Triton on a GPU; the plain one where neither was built or installed."""
    if device == "cpu":
        spec = importlib.util.find_spec("fedtct.tangent._dots")
        return partial(_c_kernel, ctypes.CDLL(spec.origin)) if spec is not None else plain_kernel
    if device == "cuda" and importlib.util.find_spec("triton") is not None:
        from fedtct.tangent.dots_triton import triton_kernel

        return triton_kernel
    return plain_kernel


def plain_kernel(g: Tensor, x: Tensor, g_at: Tensor, x_at: Tensor, length: int, out: Tensor) -> None:
    """The same in torch alone, a sample at a time: a piece is a row of the array's overlapping windows."""
    block = max(1, GATHERED // length)
    for row, g_windows, x_windows in zip(out, g.unfold(1, length, 1), x.unfold(1, length, 1), strict=True):
        for part, g_part, x_part in zip(row.split(block), g_at.split(block), x_at.split(block), strict=True):
            part.copy_(torch.linalg.vecdot(g_windows[g_part], x_windows[x_part]))


_C_NAMES = {torch.float32: "dots_float", torch.float64: "dots_double"}


def _c_kernel(library: ctypes.CDLL, g: Tensor, x: Tensor, g_at: Tensor, x_at: Tensor, length: int, out: Tensor) -> None:
    g_at, x_at = g_at.int(), x_at.int()
    arrays = [ctypes.c_void_p(t.data_ptr()) for t in (g, x, g_at, x_at, out)]
    sizes = [len(g), len(g_at), length, g.shape[1], x.shape[1], out.stride(0)]
    getattr(library, _C_NAMES[g.dtype])(*arrays, *map(ctypes.c_int64, sizes), torch.get_num_threads())
