"""A module whose parameters are views of one flat vector: what the algorithms compute with.

Every federated rule (averages, corrections, server momentum) is vector arithmetic. With the parameters in one
vector it is written as such, and a step of SGD is two operations whatever the number of layers.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedtct.errors import FedtctError
from fedtct.models.pretrained import StateDict, load_state_dict
from fedtct.models.registry import build_module


class Weights(NamedTuple):
    """All that a network has learnt, as two vectors."""

    parameters: Tensor  # in the order of module.parameters()
    buffers: Tensor  # the floating-point buffers: BatchNorm's running statistics


@dataclass(frozen=True)
class InputSpec:
    """What a sample looks like, and how raw pixels become the numbers a network sees."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    mean: tuple[float, ...] = ()  # per channel, of pixels scaled to [0, 1]; empty for other data than uint8
    std: tuple[float, ...] = ()

    def check(self, x: Tensor, whose: str) -> None:
        """Refuse samples of another shape or kind."""
        if tuple(x.shape[1:]) != self.shape:
            raise FedtctError(f"{whose}: samples have shape {tuple(x.shape[1:])}, expected {self.shape}")
        if (x.dtype == torch.uint8) != (self.dtype == torch.uint8):
            raise FedtctError(f"{whose}: samples are {x.dtype}, expected {self.dtype} as in training")


@dataclass(frozen=True)
class NetworkSpec:
    """Everything but the weights: enough to build the same network on every machine."""

    model: str | nn.Module
    inputs: InputSpec
    num_classes: int
    head: str | None = None
    stem: str = "small"

    def build(self, device: torch.device | str = "cpu", *, seed: int = 0, state: StateDict | None = None) -> "Network":
        """The network on a device, with weights from ``state``, else its own, else drawn from ``seed``."""
        if isinstance(self.model, nn.Module):
            module = copy.deepcopy(self.model)
        else:
            module = build_module(self.model, self.inputs.shape, self.num_classes, seed=seed, stem=self.stem)
        head = find_head(module, self.head)
        outputs = module.get_submodule(head).out_features
        if outputs != self.num_classes:
            raise FedtctError(
                f"the model's head '{head}' has {outputs} outputs, the silos have {self.num_classes} classes"
            )
        if state is not None:
            load_state_dict(module, state, head)
        return Network(module, head, self.inputs, device)


class Network:
    """A module on a device with flat parameters, flat gradients and flat buffers."""

    def __init__(self, module: nn.Module, head: str, inputs: InputSpec, device: torch.device | str = "cpu") -> None:
        self.module = module.to(device)
        self.head = head
        self.inputs = inputs
        self.device = torch.device(device)
        # A view a channel, so that normalising broadcasts over (n, c, h, w).
        view = (1, -1) + (1,) * (len(inputs.shape) - 1)
        self._mean = torch.tensor(inputs.mean, device=device).view(view) if inputs.mean else None
        self._std = torch.tensor(inputs.std, device=device).view(view) if inputs.std else None
        parameters = list(self.module.parameters())
        self.parameters = _gather(parameters)
        self.gradient = torch.zeros_like(self.parameters)
        for parameter, grad in zip(parameters, _views(self.gradient, parameters), strict=True):
            parameter.grad = grad
        self.buffers = _gather([b for b in self.module.buffers() if b.is_floating_point()])

    def __call__(self, x: Tensor) -> Tensor:
        """Logits of raw samples."""
        logits: Tensor = self.module(self.prepare(x))
        return logits

    def prepare(self, x: Tensor) -> Tensor:
        """Raw samples as the module wants them: pixels scaled and normalised, other data as it is."""
        x = x.to(self.device)
        if self._mean is None or self._std is None:
            return x.to(self.parameters.dtype) if x.is_floating_point() else x
        return (x.to(self.parameters.dtype) / 255 - self._mean) / self._std

    def load(self, weights: Weights) -> None:
        """Take these weights."""
        self.parameters.copy_(weights.parameters)
        self.buffers.copy_(weights.buffers)

    def weights(self) -> Weights:
        """A copy of the present weights."""
        return Weights(self.parameters.clone(), self.buffers.clone())

    def head_slice(self) -> slice:
        """Where the head's parameters lie in the flat vector."""
        own = set(map(id, self.module.get_submodule(self.head).parameters()))
        positions, start = [], 0
        for parameter in self.module.parameters():
            if id(parameter) in own:
                positions.append((start, start + parameter.numel()))
            start += parameter.numel()
        return slice(positions[0][0], positions[-1][1])


def find_head(module: nn.Module, name: str | None = None) -> str:
    """The name of the last linear layer, or of the one that was asked for."""
    layers = {n: m for n, m in module.named_modules() if isinstance(m, nn.Linear)}
    if name is not None and name not in layers:
        raise FedtctError(f"head '{name}' is not an nn.Linear of the model. It has: {', '.join(layers) or 'none'}")
    if not layers:
        raise FedtctError("the model has no nn.Linear to serve as its head: give it one as its last layer")
    return name if name is not None else list(layers)[-1]


def _gather(tensors: Sequence[Tensor]) -> Tensor:
    """Move tensors into one vector, leaving views of it in their place."""
    flat = torch.cat([t.detach().reshape(-1) for t in tensors]) if tensors else torch.zeros(0)
    for tensor, view in zip(tensors, _views(flat, tensors), strict=True):
        tensor.data = view
    return flat


def _views(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    pieces = flat.split([t.numel() for t in like]) if like else ()
    return [piece.view(t.shape) for piece, t in zip(pieces, like, strict=True)]
