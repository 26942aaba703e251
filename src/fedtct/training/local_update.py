"""The one local update that serves every stage-1 algorithm.

A step follows  ∇L_k(w) + weight_decay·w + correction + prox·(w − w_server):  FedAvg has neither of the last two,
FedProx the last, SCAFFOLD the correction c − c_k, FedDyn both (−g_k and α).
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedtct.data.augment import AUGMENTATIONS
from fedtct.errors import FedtctError
from fedtct.models import Network, Weights
from fedtct.seeds import generator, seeded

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


@dataclass(frozen=True)
class Job:
    """One silo's training in a round: its data, where it starts, and how it goes on."""

    index: int  # of the silo
    x: Tensor
    y: Tensor
    start: Weights
    plan: LocalPlan
    seed: int
    correction: Tensor | None = None


class Epoch(NamedTuple):
    """All that is random in an epoch, drawn on the CPU so that every device sees the same."""

    order: Tensor  # of the samples
    changes: Tensor | None  # what augmentation does to the sample at each place of that order


def draw_epochs(samples: int, plan: LocalPlan, seed: int) -> list[Epoch]:
    """A fresh order and fresh augmentation for every epoch."""
    augmentation = AUGMENTATIONS[plan.augment]
    epochs = []
    for number in range(plan.epochs):
        draws = generator(seed, "epoch", number)
        order = torch.randperm(samples, generator=draws)
        epochs.append(Epoch(order, augmentation.draw(samples, draws) if augmentation else None))
    return epochs


def batch_loss(network: Network, job: Job, indices: Tensor, changes: Tensor | None) -> Tensor:
    """Cross-entropy of a batch."""
    images = job.x[indices]
    augmentation = AUGMENTATIONS[job.plan.augment]
    if augmentation is not None and changes is not None:
        images = augmentation.apply(images, changes)
    return F.cross_entropy(network(images), job.y[indices])


def local_update(network: Network, job: Job) -> Weights:
    """Do a job with ``network``, step by step; the weights it ends with."""
    plan, device = job.plan, network.device
    network.load(job.start)
    network.set_training(plan.trainable)
    terms = _Terms(
        start=network.parameters.clone() if plan.prox else None,
        correction=network.to_memory(job.correction) if job.correction is not None else None,
        free=network.head_slice() if plan.trainable == "last-layer" else slice(None),
    )
    with seeded(job.seed, device):
        for epoch in draw_epochs(len(job.y), plan, job.seed):
            order = epoch.order.to(device)
            changes = epoch.changes.to(device) if epoch.changes is not None else None
            for start in range(0, len(order), plan.batch_size):
                batch = slice(start, start + plan.batch_size)
                loss = batch_loss(network, job, order[batch], changes[batch] if changes is not None else None)
                network.gradient.zero_()
                loss.backward()
                _step(network, plan, terms)
    return network.weights()


class _Terms(NamedTuple):
    """What a step needs besides the gradient, laid out as the network's parameters are."""

    start: Tensor | None
    correction: Tensor | None
    free: slice


@torch.no_grad()
def _step(network: Network, plan: LocalPlan, terms: _Terms) -> None:
    w, direction = network.parameters, network.gradient
    if plan.weight_decay:
        direction.add_(w, alpha=plan.weight_decay)
    if terms.correction is not None:
        direction.add_(terms.correction)
    if terms.start is not None:
        direction.add_(w - terms.start, alpha=plan.prox)
    w[terms.free].sub_(direction[terms.free], alpha=plan.lr)
