"""The weights that nobody trains: silos are told them once, and rounds carry the others alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fedtct.digests import digest
from fedtct.errors import FedtctError
from fedtct.models import Network, Weights
from fedtct.models.network import weight_buffers


@dataclass(frozen=True)
class Frozen:
    """The weights that training leaves alone, and where the trained ones lie among all; by default all are trained."""

    rest: Weights | None = None
    trained: Weights | None = None  # for each weight, whether it is trained
    message: Mapping[str, Any] = field(default_factory=dict)  # the 'freeze' that told of it

    @cached_property
    def tag(self) -> str:
        """A digest of the frozen weights. Only silos need it, and computing it takes time."""
        return digest(self.message) if self.message else ""

    @classmethod
    def told(cls, network: Network, message: Mapping[str, Any]) -> "Frozen":
        """From the message that ``split_trained`` made; an empty one means that everything is trained."""
        if not message:
            return cls()
        rest = Weights(message["parameters"], message["buffers"])
        return cls(rest, trained_among(network, message["trainable"]), message)

    def meant_by(self, message: Mapping[str, Any], whose: str) -> "Frozen":
        """These, if a message names them by their digest, or none if it names none; refused if it names others."""
        if not (tag := message.get("frozen")):
            return Frozen()
        if tag != self.tag:
            raise FedtctError(f"{whose} does not have the weights that are not trained: 'freeze' must tell it them")
        return self

    def whole(self, part: Weights) -> Weights:
        """All weights: the trained ones, which are given, and the frozen ones."""
        if self.rest is None or self.trained is None:
            return part
        return Weights(*map(_merged, self.trained, part, self.rest))

    def part(self, whole: Weights) -> Weights:
        """The trained ones among all weights."""
        return whole if self.trained is None else _taken(whole, self.trained)

    def spread(self, term: Tensor | None) -> Tensor | None:
        """A term for each trained parameter, extended to all parameters by zeros."""
        if self.rest is None or self.trained is None or term is None:
            return term
        return _merged(self.trained.parameters, term, torch.zeros_like(self.rest.parameters))


def split_trained(network: Network, trainable: str, weights: Weights) -> tuple[Weights, dict[str, Any]]:
    """The weights that are trained, and a message with the others, which is empty if all are trained."""
    chosen = trained_among(network, trainable)
    if all(bool(values.all()) for values in chosen):
        return weights, {}
    part, rest = _taken(weights, chosen), _taken(weights, Weights(*(~mask for mask in chosen)))
    return part, rest._asdict() | {"trainable": trainable}


def trained_among(network: Network, trainable: str) -> Weights:
    """Which parameters are trained, and which running statistics change with them: those of layers in training."""
    network.set_training(trainable)
    in_training = {id(b): layer.training for layer in network.module.modules() for b in layer.buffers(recurse=False)}
    buffers = weight_buffers(network.module).values()
    return Weights(
        _repeated([(p.numel(), p.requires_grad) for p in network.module.parameters()], network.device),
        _repeated([(b.numel(), in_training[id(b)]) for b in buffers], network.device),
    )


def trains_head_alone(network: Network, trainable: str) -> bool:
    """Whether training changes nothing but the last linear layer."""
    chosen = trained_among(network, trainable)
    head = sum(p.numel() for p in network.module.get_submodule(network.head).parameters() if p.requires_grad)
    return int(chosen.parameters.sum()) == head and not bool(chosen.buffers.any())


def _repeated(counts: list[tuple[int, bool]], device: torch.device) -> Tensor:
    sizes = torch.tensor([count for count, _ in counts], dtype=torch.long)
    return torch.tensor([value for _, value in counts], dtype=torch.bool).repeat_interleave(sizes).to(device)


def _taken(weights: Weights, chosen: Weights) -> Weights:
    return Weights(*(values[mask] for values, mask in zip(weights, chosen, strict=True)))


def _merged(chosen: Tensor, some: Tensor, others: Tensor) -> Tensor:
    merged = torch.empty(len(chosen), dtype=some.dtype, device=chosen.device)
    return merged.masked_scatter_(chosen, some.to(merged)).masked_scatter_(~chosen, others.to(merged))
