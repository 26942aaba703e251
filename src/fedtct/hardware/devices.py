"""Which device computes, and in which precision."""

import re
import warnings
from functools import cache

import torch

from fedtct.errors import FedtctError, check_one_of, first_line

BF16_FROM = (8, 0)  # the compute capability from which on GPUs have bf16: before, it is slower than float32


def pick_device(device: torch.device | str) -> torch.device:
    """The device of that name; "auto" is a GPU if there is one."""
    if (default := torch.get_default_device().type) != "cpu":
        raise FedtctError(
            f"torch's default device is '{default}', but fedtct uses several devices: call "
            "torch.set_default_device('cpu') first. A GPU is still used; device= says which."
        )
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() and _gpu_computes() else "cpu"
    if not re.fullmatch(r"(cpu|cuda)(:\d+)?", str(device)):
        raise FedtctError(f"unknown device '{device}'. Use 'auto', 'cpu' or 'cuda'.")
    chosen = torch.device(device)
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise FedtctError(f"device '{device}' was asked for, but there is none here. Use 'auto' or 'cpu'.")
    if chosen.type == "cuda" and chosen.index is None:
        return torch.device("cuda", torch.cuda.current_device())  # other threads may be at another
    return chosen


@cache
def _gpu_computes() -> bool:
    """Whether this torch has kernels for the GPU, which may be too old for it."""
    try:
        torch.ones(1, device="cuda").add_(1)
    except RuntimeError as error:
        warnings.warn(f"the GPU cannot be used, so the CPU is used instead ({first_line(error)})", stacklevel=3)
        return False
    return True


def pick_precision(precision: str, device: torch.device) -> torch.dtype | None:
    """The precision that forward passes are cast to; none: the precision of the weights."""
    check_one_of(("auto", "fp32", "bf16"), precision=precision)
    if precision == "auto" and (device.type != "cuda" or torch.cuda.get_device_capability(device) < BF16_FROM):
        return None
    return None if precision == "fp32" else torch.bfloat16
