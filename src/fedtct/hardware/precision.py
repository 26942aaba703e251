"""float32 that is float32, whatever a program has allowed for its own products; and bf16 where a processor has none."""

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch import backends, nn

_ONEDNN: Any = backends.mkldnn  # whose settings torch declares with types of its own
_ALONE = threading.RLock()  # the settings are the process's: a thread would restore what another has set


@contextlib.contextmanager
def full_precision() -> Iterator[None]:
    """No TF32, no bf16 products and no autocast within the block, in the whole process; a lock lets one thread in.

    TF32 costs tangent features two digits (relative error 1e-2 instead of 3e-7), bf16 all but one.
    Torch has older settings and newer ones, of each kind of product, and minds if the two disagree: both are set.
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
    """Products of bf16 that leave the process as it was.

    Where oneDNN has none for this processor, torch at the first one switches it off for good, for float32 too, and says
    so at the length of a page. So it is off from the beginning, and on again afterwards.
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
    """An older setting; torch does not tell it where the newer ones alone were used, so that it is the default."""
    try:
        return read()
    except RuntimeError:
        return default
