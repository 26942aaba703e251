"""How much memory is left, to decide what to keep, and matrices in files for what does not fit."""

import os
import shutil
import tempfile
import warnings
from pathlib import Path

import torch
from torch import Tensor

from fedtct.errors import FedtctError

CONTAINER = Path("/sys/fs/cgroup")
CONTAINER_FILES = (  # of limit, use and statistics, and what these call the part that holds files: cgroups 2 and 1
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
)
UNTOLD = 2**32  # bytes that are assumed to be left where it cannot be found out, as on Windows
ROOMY = 0.7  # the share of the memory left above which a matrix goes to a file


def free_bytes(device: torch.device) -> int:
    """About how many bytes of memory can still be taken on a device."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # by torch, for what comes
        return torch.cuda.mem_get_info(device)[0] + cached
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            left = next(1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration):  # not Linux
        if not hasattr(os, "sysconf"):
            return UNTOLD
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return min([left, *(room for files in CONTAINER_FILES if (room := _left_to_container(*files)) is not None)])


def _left_to_container(limit: str, use: str, statistics: str, cached: str) -> int | None:
    """What this process's container may still take, if it has a limit, which Linux's own numbers leave out."""
    try:
        most, taken = (int((CONTAINER / name).read_text(encoding="ascii")) for name in (limit, use))
        lines = (CONTAINER / statistics).read_text(encoding="ascii").splitlines()
        files = next(int(line.split()[1]) for line in lines if line.startswith(f"{cached} "))  # given back when needed
    except (OSError, ValueError, StopIteration):
        return None
    return max(0, most - taken + files)


def roomy_empty(size: tuple[int, int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """An empty matrix; if memory is short, in a file that goes with the process, with a warning."""
    needed = size[0] * size[1] * dtype.itemsize
    if device.type != "cpu" or needed <= ROOMY * free_bytes(device):
        return torch.empty(size, dtype=dtype, device=device)
    folder = tempfile.gettempdir()
    what = f"features of {needed / 2**30:.1f} GiB do not fit into the free memory"
    room = f"{free_bytes(device) / 2**30:.1f} GiB"
    if needed > (disk := shutil.disk_usage(folder).free):  # the system would end the process as it writes
        raise FedtctError(
            f"{what} ({room}) nor into {folder} ({disk / 2**30:.1f} GiB): set TMPDIR to a folder on a larger disk, or "
            "use fewer features (p), or stage2 = ridge, which keeps none"
        )
    warnings.warn(f"{what} ({room}), so they are kept in a file in {folder} ($TMPDIR), which is slower", stacklevel=2)
    with tempfile.NamedTemporaryFile(dir=folder, prefix="fedtct-") as file:  # its name goes now, its content later
        return torch.from_file(file.name, shared=True, size=size[0] * size[1], dtype=dtype).view(size)
