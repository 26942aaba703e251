"""A network as an nn.Module that needs nothing else of fedtct: for torch.export, ONNX or a phone."""

import copy

import torch
from torch import Tensor, nn

from fedtct.models.network import Network


class ScaledPixels(nn.Module):
    """Scales raw pixels, 0 to 255, as a network wants them: a product and a sum for each channel."""

    scale: Tensor
    shift: Tensor

    def __init__(self, scale: Tensor, shift: Tensor, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("scale", scale.cpu())
        self.register_buffer("shift", shift.cpu())
        self.dtype = dtype

    def forward(self, pixels: Tensor) -> Tensor:
        """The pixels as ``Network.prepare`` makes them."""
        return torch.addcmul(self.shift, pixels.to(self.dtype), self.scale)


class InPrecision(nn.Module):
    """Converts real numbers to the precision of a network's weights."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        """The same samples; whole numbers stay whole."""
        return x.to(self.dtype) if x.is_floating_point() else x


class Rescaled(nn.Module):
    """Brings outputs to other units."""

    def __init__(self, scale: float, shift: float) -> None:
        super().__init__()
        self.scale, self.shift = scale, shift

    def forward(self, outputs: Tensor) -> Tensor:
        """A product and a sum."""
        return outputs * self.scale + self.shift


def plain_module(network: Network, scale: float = 1.0, shift: float = 0.0) -> nn.Module:
    """A copy on the CPU that takes raw samples, with separate weights rather than views of one vector.

    Its outputs are the network's, times ``scale`` plus ``shift``.
    """
    module = copy.deepcopy(network.module).cpu().eval()
    for tensor in (*module.parameters(), *module.buffers()):
        tensor.grad = None
        tensor.data = tensor.data.clone(memory_format=torch.contiguous_format)
    parts = [module]
    if network.pixel_scale is not None:
        parts.insert(0, ScaledPixels(network.pixel_scale, network.pixel_shift, network.parameters.dtype))
    elif network.parameters.dtype != torch.float32:
        parts.insert(0, InPrecision(network.parameters.dtype))
    if (scale, shift) != (1.0, 0.0):
        parts.append(Rescaled(scale, shift))
    return nn.Sequential(*parts).eval() if len(parts) > 1 else module
