"""Whether a GPU kernel of ours can be used where we are: compilers and GPUs differ, so it is tried out once."""

import importlib.util
import warnings
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

TOLERANCE = 1e-5


def works(what: str, device: torch.device, cases: Callable[[], Iterable[tuple[Tensor, Tensor]]]) -> bool:
    """Whether the kernel of a part of the work finds what is right: pairs of what it found and what is exact."""
    if importlib.util.find_spec("triton") is None or torch.cuda.get_device_capability(device) < (9, 0):
        return False
    try:
        error = max(float((found - exact).norm() / exact.norm()) for found, exact in cases())
        fault = "" if error < TOLERANCE else f"its error is {error:.1g}"
    except Exception as error:  # whatever a compiler may say
        fault = (str(error).strip() or type(error).__name__).splitlines()[0]
    if fault:
        warnings.warn(f"{what} go without their GPU kernel, which is slower ({fault})", stacklevel=2)
    return not fault
