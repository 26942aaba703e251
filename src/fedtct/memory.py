"""How much memory is left, to decide what is worth keeping, and how it is had quickly."""

import contextlib
import ctypes
import os
from functools import cache

import torch

# Options of glibc's mallopt, and what they are set to: blocks of a batch are smaller than the first.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
KEPT_BLOCK, KEPT = 2**26, 2**28


def free_bytes(device: torch.device) -> int:
    """Memory that can still be taken on a device, about."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            return next(1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration):  # not Linux
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


@cache
def keep_freed_memory() -> None:
    """Have the C library keep what a batch frees for the next one, instead of asking the system for it page by page."""
    with contextlib.suppress(OSError, TypeError, AttributeError):  # not glibc
        library = ctypes.CDLL(None)
        library.mallopt(MMAP_THRESHOLD, KEPT_BLOCK)
        library.mallopt(TRIM_THRESHOLD, KEPT)
