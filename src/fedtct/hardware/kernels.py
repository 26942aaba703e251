"""Which GPU kernels are used: compilers and GPUs differ, so each kernel is tried out once."""

import importlib.util
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from fedtct.errors import first_line

TOLERANCE = 1e-5


@contextmanager
def fastest_convolutions() -> Iterator[None]:
    """For a while cuDNN tries its kernels for every new shape and takes the fastest."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def works(what: str, device: torch.device, cases: Callable[[], Iterable[tuple[Tensor, Tensor]]]) -> bool:
    """Whether a GPU kernel runs here and is right to ``TOLERANCE``, on pairs of its result and the exact one."""
    if importlib.util.find_spec("triton") is None or torch.cuda.get_device_capability(device) < (9, 0):
        return False
    try:
        # The largest of all, or NaN if one is: Python's own max would drop it.
        error = float(torch.tensor([float((found - exact).norm() / exact.norm()) for found, exact in cases()]).max())
        fault = "" if error < TOLERANCE else f"its error is {error:.1g}"
    except Exception as error:  # whatever a compiler may say
        fault = first_line(error)
    if fault:
        warnings.warn(f"{what} cannot use their GPU kernel and will be slower ({fault})", stacklevel=2)
    return not fault
