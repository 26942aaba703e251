"""What the machine itself does: the figures that floors are computed from."""

import platform
import re
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor


@dataclass(frozen=True)
class Machine:
    """Rates of large, simple operations, the best of several tries."""

    fp32: float  # flop/s of a matrix product
    bf16: float
    bandwidth: float  # bytes/s of reading and writing memory

    @classmethod
    def measure(cls) -> "Machine":
        """Measure this processor, with as many threads as torch uses."""
        a, b = torch.randn(2, 2048, 2048)
        source, target = torch.randn(2, 2**26)  # 256 MiB each: far larger than any cache
        return cls(
            fp32=_product_rate(a, b),
            bf16=_product_rate(a.bfloat16(), b.bfloat16()),
            bandwidth=2 * source.nbytes / _best(lambda: target.copy_(source)),
        )

    def seconds(self, *, flops: float = 0, size: float = 0, bf16: bool = False) -> float:
        """The least time for so many operations and so many bytes, which may overlap."""
        return max(flops / (self.bf16 if bf16 else self.fp32), size / self.bandwidth)


def _product_rate(a: Tensor, b: Tensor) -> float:
    return 2 * len(a) ** 3 / _best(lambda: a @ b)


def _best(work: object, tries: int = 7) -> float:
    assert callable(work)
    times = []
    for _ in range(tries):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def processor() -> str:
    """The name of this processor, its cores and its memory."""
    found = re.search(r"model name\s*:\s*(.*)", _read("/proc/cpuinfo"))
    total = re.search(r"MemTotal:\s*(\d+)", _read("/proc/meminfo"))
    name = found[1] if found else platform.processor() or platform.machine()
    size = f", {int(total[1]) / 2**20:.0f} GiB" if total else ""
    units = ", bf16 matrix units" if "amx_bf16" in _read("/proc/cpuinfo") else ""
    return f"{name}, {torch.get_num_threads()} threads{size}{units}"


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""
