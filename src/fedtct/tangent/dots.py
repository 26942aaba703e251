"""Many short dot products between sampled pieces of two arrays: what sampled weight gradients come down to."""

import ctypes
import importlib.util
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

GATHERED = 2**26  # products that the plain way holds at a time


@dataclass(frozen=True)
class Dots:
    """For every sample s and entry j, Σ_{t < length} g[s, g_at[j] + t] · x[s, x_at[j] + t]."""

    g: Tensor  # (samples, …), flattened but for the samples
    x: Tensor
    g_at: Tensor  # (entries,)
    x_at: Tensor
    length: int

    def write(self, out: Tensor) -> None:
        """Compute them into ``out``, (samples, entries), whose rows may lie apart."""
        g, x = self.g.flatten(1).contiguous(), self.x.flatten(1).contiguous()
        library = _library() if g.device.type == "cpu" else None
        if library is not None and g.dtype == x.dtype == out.dtype and g.dtype in _NAMES and out.stride(1) == 1:
            self._write_compiled(library, g, x, out)
        else:
            self._write_plainly(g, x, out)

    def _write_compiled(self, library: ctypes.CDLL, g: Tensor, x: Tensor, out: Tensor) -> None:
        g_at, x_at = self.g_at.int(), self.x_at.int()
        arrays = [ctypes.c_void_p(t.data_ptr()) for t in (g, x, g_at, x_at, out)]
        sizes = [len(g), len(g_at), self.length, g.shape[1], x.shape[1], out.stride(0)]
        getattr(library, _NAMES[g.dtype])(*arrays, *map(ctypes.c_int64, sizes), torch.get_num_threads())

    def _write_plainly(self, g: Tensor, x: Tensor, out: Tensor) -> None:
        steps = torch.arange(self.length, device=g.device)
        block = max(1, GATHERED // (len(g) * self.length))
        for start in range(0, len(self.g_at), block):
            part = slice(start, start + block)
            pieces = (g[:, self.g_at[part, None] + steps], x[:, self.x_at[part, None] + steps])
            out[:, part] = (pieces[0] * pieces[1]).sum(2)


_NAMES = {torch.float32: "dots_float", torch.float64: "dots_double"}


@cache
def _library() -> ctypes.CDLL | None:
    """The compiled form, if the installation had a C compiler to make it with."""
    spec = importlib.util.find_spec("fedtct.tangent._dots")
    if spec is None or spec.origin is None:
        return None
    return ctypes.CDLL(spec.origin)
