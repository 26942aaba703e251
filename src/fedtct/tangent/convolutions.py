"""Convolutions of passes that need gradients of activations alone, at the speed of a GPU's tensor cores.

Within ``fast_convolutions`` a model's Conv2d layers take another kernel where there is one: as exact as float32 and
several times as fast. Everything else goes its usual way.
"""

import contextlib
import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

CHANNELS = 64  # the kernel's tiles: channels come in multiples
PLACES = 2**31  # it counts with 32 bits


def fast_convolutions(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Convolutions take the fast kernel for a while, on a GPU that has it."""
    return _FastConvolutions() if device.type == "cuda" and _has_kernel(device) else contextlib.nullcontext()


@cache
def _has_kernel(device: torch.device) -> bool:
    return importlib.util.find_spec("triton") is not None and torch.cuda.get_device_capability(device) >= (8, 0)


class _FastConvolutions(TorchFunctionMode):
    """Sees every call of a torch function on its way."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.conv2d and len(args) == 7 and _suits(*args):  # as nn.Conv2d calls it
            x, weight, bias, stride, padding = args[:5]
            out = Convolution.apply(x, weight, stride, padding)
            return out if bias is None else out + bias.view(-1, 1, 1)
        return func(*args, **kwargs or {})


def _suits(
    x: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: tuple[int, int], groups: int
) -> bool:
    """Whether the kernel covers a convolution."""
    simple = x.ndim == 4 and groups == 1 and dilation == (1, 1) and not isinstance(padding, str)
    if not simple or x.dtype != torch.float32 or weight.dtype != torch.float32 or weight.requires_grad:
        return False
    outputs, channels, *size = weight.shape
    padded = len(x) * channels * (x.shape[2] + 2 * padding[0]) * (x.shape[3] + 2 * padding[1])
    narrow = all(pad < side for pad, side in zip(padding, size, strict=True))
    return narrow and channels % CHANNELS == 0 and outputs % CHANNELS == 0 and padded < PLACES


class Convolution(torch.autograd.Function):
    """conv2d, and its gradient with respect to the images."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int]) -> Tensor:
        """The convolution."""
        ctx.weight, ctx.shape, ctx.stride, ctx.padding = weight, x.shape, stride, padding
        return _convolve(x, weight, stride, padding)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        """Where the kernel moves a pixel at a time, the gradient's convolution with the kernel turned round."""
        (g,), weight = gradients, ctx.weight
        if ctx.stride == (1, 1):
            turned = weight.flip(2, 3).transpose(0, 1)
            padding = tuple(side - 1 - pad for side, pad in zip(weight.shape[2:], ctx.padding, strict=True))
            return _convolve(g, turned, (1, 1), padding), None, None, None
        return torch.nn.grad.conv2d_input(ctx.shape, weight, g, ctx.stride, ctx.padding), None, None, None


def _convolve(x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int]) -> Tensor:
    from fedtct.tangent.convolutions_triton import convolve, split_images, split_weight

    return convolve(split_images(x, padding), split_weight(weight), stride)
