"""The one local update that serves every stage-1 algorithm.

A step follows  ∇L_k(w) + weight_decay·w + correction + prox·(w − w_server):  FedAvg has neither of the last two,
FedProx the last, SCAFFOLD the correction c − c_k, FedDyn both (−g_k and α).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fedtct.data.augment import AUGMENTATIONS
from fedtct.errors import FedtctError
from fedtct.models import Network
from fedtct.seeds import generator

TRAINABLE = ("all", "last-layer")


@dataclass(frozen=True)
class LocalPlan:
    """How a silo trains in a round."""

    epochs: int
    batch_size: int
    lr: float
    weight_decay: float
    prox: float = 0.0
    augment: str = "none"
    trainable: str = "all"

    def steps(self, samples: int) -> int:
        """How many steps a silo with this many samples takes; partial last batches count."""
        return self.epochs * -(-samples // self.batch_size)

    def check(self) -> None:
        """Refuse what cannot work."""
        if self.epochs < 1 or self.batch_size < 1:
            raise FedtctError("local_epochs and batch_size must be at least 1")
        if not self.lr > 0 or self.weight_decay < 0 or self.prox < 0:
            raise FedtctError("lr must be positive, weight_decay and the proximal strength not negative")
        if self.augment not in AUGMENTATIONS:
            raise FedtctError(f"unknown augment '{self.augment}'. Known: {', '.join(AUGMENTATIONS)}")
        if self.trainable not in TRAINABLE:
            raise FedtctError(f"unknown trainable '{self.trainable}'. Known: {', '.join(TRAINABLE)}")


def local_update(
    network: Network, x: Tensor, y: Tensor, plan: LocalPlan, seed: int, correction: Tensor | None = None
) -> int:
    """Train ``network`` in place from its present weights; returns the number of steps."""
    start = network.parameters.clone() if plan.prox else None
    augment = AUGMENTATIONS[plan.augment]
    draws = generator(seed, "augment", device=network.device)
    free = network.head_slice() if plan.trainable == "last-layer" else slice(None)
    # Frozen layers keep their running statistics too, so the network stays in evaluation mode.
    network.module.train(plan.trainable == "all")
    for batch in batches(len(y), plan, seed):
        batch = batch.to(x.device)
        images = x[batch]
        if augment is not None:
            images = augment(images, draws)
        loss = F.cross_entropy(network(images), y[batch])
        network.gradient.zero_()
        loss.backward()
        _step(network, plan, start, correction, free)
    return plan.steps(len(y))


def batches(samples: int, plan: LocalPlan, seed: int) -> Iterator[Tensor]:
    """The indices of each batch, a fresh order every epoch; the last batch may be smaller."""
    for epoch in range(plan.epochs):
        order = torch.randperm(samples, generator=generator(seed, "order", epoch))
        yield from order.split(plan.batch_size)


@torch.no_grad()
def _step(network: Network, plan: LocalPlan, start: Tensor | None, correction: Tensor | None, free: slice) -> None:
    w, direction = network.parameters, network.gradient
    if plan.weight_decay:
        direction.add_(w, alpha=plan.weight_decay)
    if correction is not None:
        direction.add_(correction)
    if start is not None:
        direction.add_(w - start, alpha=plan.prox)
    w[free].sub_(direction[free], alpha=plan.lr)
