"""Convolutions on a GPU's tensor cores, for passes that need gradients of activations alone.

Within ``fast_convolutions`` a model's Conv2d layers take another kernel where there is one: as exact as float32 and
several times as fast. Everything else goes its usual way.
"""

import contextlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fedtct.hardware.kernels import works

CHANNELS = 64  # the kernel's tiles: channels come in multiples


def fast_convolutions(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """For a while convolutions take the fast kernel, on a GPU that has it."""
    return _FastConvolutions() if device.type == "cuda" and _kernel_works(device) else contextlib.nullcontext()


@cache
def _kernel_works(device: torch.device) -> bool:
    def cases() -> Iterator[tuple[Tensor, Tensor]]:
        draws = torch.Generator().manual_seed(0)
        weight = torch.randn(CHANNELS, CHANNELS, 3, 3, generator=draws).to(device)
        x = torch.randn(2, CHANNELS, 5, 4, generator=draws).to(device)
        yield _convolve(x, weight, (1, 1)), torch.conv2d(x.double(), weight.double(), padding=1)

    return works("convolutions of tangent features", device, cases)


class _FastConvolutions(TorchFunctionMode):
    """Sees every call of a torch function on its way."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.conv2d and len(args) == 7 and kernel_suits(*args):  # as nn.Conv2d calls it
            x, weight, bias, _, padding = args[:5]
            out: Tensor = Convolution.apply(x, weight, padding)  # type: ignore[no-untyped-call]
            return out if bias is None else out + bias.view(-1, 1, 1)
        return func(*args, **kwargs or {})


def kernel_suits(
    x: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: tuple[int, int], groups: int
) -> bool:
    """Whether the kernel covers a convolution: dense, moving a pixel at a time, with many channels."""
    dense = x.ndim == 4 and groups == 1 and stride == dilation == (1, 1) and not isinstance(padding, str)
    if not dense or x.dtype != torch.float32 or weight.dtype != torch.float32 or weight.requires_grad:
        return False
    narrow = all(pad < side for pad, side in zip(padding, weight.shape[2:], strict=True))
    return narrow and all(channels % CHANNELS == 0 for channels in weight.shape[:2])


class Convolution(torch.autograd.Function):
    """conv2d, and its gradient with respect to the images alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, padding: tuple[int, int]) -> Tensor:
        """The convolution."""
        ctx.weight, ctx.padding = weight, padding
        return _convolve(x, weight, padding)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """The gradient's convolution with the kernel turned round."""
        turned = ctx.weight.flip(2, 3).transpose(0, 1)
        rows, columns = (side - 1 - pad for side, pad in zip(turned.shape[2:], ctx.padding, strict=True))
        return _convolve(gradients[0], turned, (rows, columns)), None, None


def _convolve(x: Tensor, weight: Tensor, padding: tuple[int, int]) -> Tensor:
    from fedtct.tangent.convolutions_triton import convolve, split_images, split_weight

    rows, columns = weight.shape[2:]
    with torch.cuda.device_of(x):  # kernels go to the GPU that torch works on, wherever their arrays are
        return convolve(split_images(x), split_weight(weight), (rows, columns), padding)
