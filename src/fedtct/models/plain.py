"""A network as an nn.Module that needs nothing else of fedtct: for torch.export, ONNX or a phone."""

import copy

import torch
from torch import Tensor, nn

from fedtct.models.network import InputSpec, Network


class ScaledPixels(nn.Module):
    """(pixel / 255 − mean) / std, a channel at a time."""

    mean: Tensor
    std: Tensor

    def __init__(self, inputs: InputSpec) -> None:
        super().__init__()
        view = (-1,) + (1,) * (len(inputs.shape) - 1)
        self.register_buffer("mean", torch.tensor(inputs.mean).view(view))
        self.register_buffer("std", torch.tensor(inputs.std).view(view))

    def forward(self, pixels: Tensor) -> Tensor:
        """Raw pixels, 0 to 255, as the network wants them."""
        return (pixels / 255 - self.mean) / self.std


def plain_module(network: Network) -> nn.Module:
    """A copy on the CPU that takes samples as they are, with weights of its own rather than parts of one vector."""
    module = copy.deepcopy(network.module).cpu().eval()
    for tensor in (*module.parameters(), *module.buffers()):
        tensor.grad = None
        tensor.data = tensor.data.clone(memory_format=torch.contiguous_format)
    return nn.Sequential(ScaledPixels(network.inputs), module).eval() if network.inputs.mean else module
