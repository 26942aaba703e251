"""The one local update that serves every stage-1 algorithm.

A step follows  ∇L_k(w) + weight_decay·w + correction + prox·(w − w_server):  FedAvg has neither of the last two,
FedProx the last, SCAFFOLD the correction c − c_k, FedDyn both (−g_k and α).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedtct.data.augment import AUGMENTATIONS
from fedtct.data.pretext import PRETEXTS, TURNS, draw_turns, turn
from fedtct.errors import FedtctError, check_not_negative, check_one_of, check_positive, check_whole
from fedtct.models import Network, Weights
from fedtct.seeds import generator, seeded
from fedtct.tasks import loss


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
    pretext: str = "none"

    @classmethod
    def among(cls, message: Mapping[str, Any]) -> "LocalPlan":
        """The plan in a message, among its other values."""
        return cls(**{spec.name: message[spec.name] for spec in fields(cls)})

    def batch_sizes(self, samples: int) -> list[int]:
        """An epoch's batches, the partial last one included.

        If that were a single sample it joins the batch before: BatchNorm cannot train on one.
        """
        full, rest = divmod(samples, self.batch_size)
        if rest == 1 and full:
            return [self.batch_size] * (full - 1) + [self.batch_size + 1]
        return [self.batch_size] * full + ([rest] if rest else [])

    def steps(self, samples: int) -> int:
        """How many steps a silo with this many samples takes."""
        return self.epochs * len(self.batch_sizes(samples))

    def check(self) -> None:
        """Refuse what cannot work."""
        check_whole(1, local_epochs=self.epochs, batch_size=self.batch_size)
        check_positive(lr=self.lr)
        check_not_negative(weight_decay=self.weight_decay)
        check_one_of(AUGMENTATIONS, augment=self.augment)
        check_one_of(PRETEXTS, pretext=self.pretext)
        if not re.fullmatch("all|last-layer|last:[1-9][0-9]*", self.trainable):
            raise FedtctError(f"unknown trainable '{self.trainable}'. Known: all, last-layer, last:N")


@dataclass(frozen=True)
class LocalJob:
    """One silo's training in a round: its data, where it starts, and how it goes on."""

    index: int  # of the silo
    x: Tensor
    y: Tensor
    start: Weights
    plan: LocalPlan
    seed: int
    correction: Tensor | None = None
    outputs: int = TURNS  # of the network; read only if it learns which way images are turned


class Epoch(NamedTuple):
    """All that is random in an epoch, drawn on the CPU so that every device sees the same."""

    order: Tensor  # of the samples
    changes: Tensor | None  # to the sample at each place of that order: by augmentation, then by the pretext task


def draw_epochs(samples: int, plan: LocalPlan, seed: int) -> list[Epoch]:
    """A fresh order and fresh changes for every epoch."""
    epochs = []
    for number in range(plan.epochs):
        draws = generator(seed, "epoch", number)
        order = torch.randperm(samples, generator=draws)
        epochs.append(Epoch(order, _draw_changes(samples, plan, draws)))
    return epochs


def _draw_changes(samples: int, plan: LocalPlan, draws: torch.Generator) -> Tensor | None:
    columns = []
    if augmentation := AUGMENTATIONS[plan.augment]:
        columns.append(augmentation.draw(samples, draws))
    if plan.pretext == "rotations":
        columns.append(draw_turns(samples, draws))
    return torch.cat(columns, 1) if columns else None


def batch(job: LocalJob, indices: Tensor, changes: Tensor | None) -> tuple[Tensor, Tensor]:
    """Some of a job's samples, augmented or turned, and their answers."""
    images, y = job.x[indices], job.y[indices]
    if changes is None:
        return images, y
    turned = job.plan.pretext == "rotations"
    if augmentation := AUGMENTATIONS[job.plan.augment]:
        images = augmentation.apply(images, changes[:, :-1] if turned else changes)
    if turned:  # last: mirrored after it was turned left, an image looks like a mirror image turned right
        turns = changes[:, -1]
        images = turn(images, turns)
        y = turns.clamp(max=job.outputs - 1)  # the last of few outputs is for all other turns
    return images, y


def batch_loss(network: Network, x: Tensor, y: Tensor) -> Tensor:
    """The loss of a batch."""
    return loss(network(x), y)


def local_update(network: Network, job: LocalJob) -> Weights:
    """Do a job with ``network``, step by step. Returns the weights it ends with."""
    plan, device = job.plan, network.device
    network.load(job.start)
    network.set_training(plan.trainable)
    free = network.trainable_slices()
    start = [network.parameters[part].clone() for part in free] if plan.prox else None
    correction = None
    if job.correction is not None:
        correction = [network.to_memory(job.correction)[part] for part in free]
    w, gradients = ([flat[part] for part in free] for flat in (network.parameters, network.gradient))
    with seeded(job.seed, device), torch.enable_grad(), network.arithmetic():
        for epoch in draw_epochs(len(job.y), plan, job.seed):
            sizes = plan.batch_sizes(len(job.y))
            order = epoch.order.to(device).split(sizes)
            changes = epoch.changes.to(device).split(sizes) if epoch.changes is not None else [None] * len(sizes)
            for indices, change in zip(order, changes, strict=True):
                network.gradient.zero_()
                batch_loss(network, *batch(job, indices, change)).backward()
                descend(plan, w, gradients, start, correction)
    return network.weights()


@torch.no_grad()
def descend(
    plan: LocalPlan,
    w: list[Tensor],
    gradients: list[Tensor],
    start: list[Tensor] | None,
    correction: list[Tensor] | None,
) -> None:
    """One step, in place: against the sum of gradient, weight decay, correction and proximal term."""
    if plan.weight_decay:
        torch._foreach_add_(gradients, w, alpha=plan.weight_decay)
    if correction is not None:
        torch._foreach_add_(gradients, correction)
    if start is not None:
        torch._foreach_add_(gradients, torch._foreach_sub(w, start), alpha=plan.prox)
    torch._foreach_sub_(w, gradients, alpha=plan.lr)
