"""Slices of a GPU's multiprocessors, on which silos train side by side.

At batch size 64 a kernel ends before it fills the whole GPU. On a slice it takes longer and wastes less, and the slices
work at the same time: ten ResNets on five slices do a tenth more than on the whole. CUDA calls slices green contexts;
torch cannot yet make several that are disjoint, so the driver is asked directly.
"""

import ctypes
from functools import cache

import torch

SLICE_SIZES = (16, 24, 32)  # multiprocessors; smaller slices leave more of a GPU over, larger ones gain nothing
GAIN = 1.2  # what a multiprocessor does in a slice, relative to the whole GPU: measured on an H200 with ResNet-18

_RESOURCE_BYTES, _COUNT_AT = 144, 96  # CUdevResource, and where it says how many multiprocessors it has
_MULTIPROCESSORS, _DEFAULT_STREAM, _NON_BLOCKING = 1, 1, 1  # constants of the driver's interface


def streams_for(loads: list[int], device: torch.device) -> list[torch.cuda.Stream]:
    """A stream for each load, on slices of the GPU if the loads can be shared out evenly, else on all of it."""
    available = torch.cuda.get_device_properties(device).multi_processor_count
    size, owners = share_out(loads, available)
    slices = _slices(device.index or 0, size, max(owners) + 1) if size else None
    if slices is None:
        return [torch.cuda.Stream(device) for _ in loads]
    return [_stream(slices[owner], owners[:i].count(owner), device) for i, owner in enumerate(owners)]


def share_out(loads: list[int], available: int) -> tuple[int, list[int]]:
    """The best size of a slice (zero: the whole GPU) and the slice that each load goes to."""
    best, plan = 1.0, (0, [0] * len(loads))
    for size in SLICE_SIZES:
        count = min(available // size, len(loads))
        if count < 2:
            continue
        owners, busiest = _balance(loads, count)
        worth = GAIN * (count * size / available) * (sum(loads) / count / busiest)
        if worth > best:
            best, plan = worth, (size, owners)
    return plan


def _balance(loads: list[int], count: int) -> tuple[list[int], int]:
    """Give every load to the least busy slice, the heaviest first. Returns the slices, and the largest sum of loads."""
    busy, owners = [0] * count, [0] * len(loads)
    for i in sorted(range(len(loads)), key=lambda i: -loads[i]):
        owners[i] = busy.index(min(busy))
        busy[owners[i]] += loads[i]
    return owners, max(busy)


@cache
def _slices(device: int, size: int, count: int) -> list[int] | None:
    """Disjoint slices as the driver's handles; None if the driver does not know how."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        split = driver.cuDevSmResourceSplitByCount
    except (OSError, AttributeError):
        return None
    whole, rest = (ctypes.create_string_buffer(2048) for _ in range(2))
    parts, found = ctypes.create_string_buffer(_RESOURCE_BYTES * count), ctypes.c_uint(count)
    if driver.cuDeviceGetDevResource(device, whole, _MULTIPROCESSORS):
        return None
    if split(parts, ctypes.byref(found), whole, rest, 0, size) or found.value != count:
        return None
    handles = []
    for start in range(0, len(parts.raw), _RESOURCE_BYTES):
        part = ctypes.create_string_buffer(parts.raw[start : start + _RESOURCE_BYTES], 2048)
        description, handle = ctypes.c_void_p(), ctypes.c_void_p()
        if int.from_bytes(part.raw[_COUNT_AT : _COUNT_AT + 4], "little") != size:
            return None  # its layout is not the one we know
        if driver.cuDevResourceGenerateDesc(ctypes.byref(description), part, 1):
            return None
        if driver.cuGreenCtxCreate(ctypes.byref(handle), description, device, _DEFAULT_STREAM):
            return None
        handles.append(handle.value or 0)
    return handles


@cache  # shared by all fits: torch keeps memory for every stream it ever multiplied on
def _stream(handle: int, number: int, device: torch.device) -> torch.cuda.Stream:
    """A stream of a slice, one for each number."""
    stream, create = ctypes.c_void_p(), ctypes.CDLL("libcuda.so.1").cuGreenCtxStreamCreate
    if create(ctypes.byref(stream), ctypes.c_void_p(handle), _NON_BLOCKING, 0):
        return torch.cuda.Stream(device)
    return torch.cuda.ExternalStream(stream.value, device)
