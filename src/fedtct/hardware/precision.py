"""Products in full float32, whatever the program allows elsewhere; and products in bf16 on any processor."""

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch import backends, nn

_ONEDNN: Any = backends.mkldnn  # whose settings torch declares with types of its own
_ALONE = threading.RLock()  # the settings are the whole process's: threads would undo each other's


@contextlib.contextmanager
def full_precision() -> Iterator[None]:
    """Within the block no TF32, no bf16 products and no autocast, in the whole process; a lock lets in one thread.

    TF32 costs tangent features two digits (relative error 1e-2 instead of 3e-7), bf16 all but one.
    Torch has older and newer settings for each kind of product, and raises errors if they disagree: both are set.
    """
    with _ALONE, torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False), _exact_products():
        yield


@contextlib.contextmanager
def _exact_products() -> Iterator[None]:
    parts = [part for part in _parts() if hasattr(part, "fp32_precision")]  # from torch 2.9 on
    before = [part.fp32_precision for part in parts]
    products = _older(torch.get_float32_matmul_precision, "highest")
    convolutions = _older(lambda: backends.cudnn.allow_tf32, True)
    torch.set_float32_matmul_precision("highest")
    backends.cudnn.allow_tf32 = False
    for part in parts:
        part.fp32_precision = "ieee"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(products)
        backends.cudnn.allow_tf32 = convolutions
        for part, value in zip(parts, before, strict=True):
            part.fp32_precision = value


@contextlib.contextmanager
def bf16_products(device: torch.device) -> Iterator[None]:
    """The context for products in bf16, which leaves the process as it was.

    If oneDNN has no bf16 for this processor, torch at the first product switches oneDNN off for good, for float32 too,
    and prints a page about it. So oneDNN is off from the beginning of the block, and on again afterwards.
    """
    if device.type != "cpu" or _onednn_takes_bf16():
        yield
        return
    before = _ONEDNN.enabled
    _ONEDNN.enabled = False
    try:
        yield
    finally:
        _ONEDNN.enabled = before


@cache
def _onednn_takes_bf16() -> bool:
    before, ones = _ONEDNN.enabled, torch.ones(64, 64, dtype=torch.bfloat16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nn.functional.linear(ones, ones, ones[0])  # a plain product may go another way
    takes: bool = _ONEDNN.enabled == before
    _ONEDNN.enabled = before
    return takes


def _parts() -> list[Any]:
    kinds = [
        (backends.cuda, ["matmul"]),
        (backends.cudnn, ["conv", "rnn"]),
        (backends.mkldnn, ["matmul", "conv", "rnn"]),
    ]
    return [getattr(module, kind, None) for module, names in kinds for kind in names]


def _older(read: Callable[[], Any], default: Any) -> Any:
    """The value of an older setting; where only newer ones were used torch does not tell it, so the default."""
    try:
        return read()
    except RuntimeError:
        return default
