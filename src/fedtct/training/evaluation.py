"""Accuracy and loss of scores on labelled samples."""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

BATCH = 500
GPU_BATCH = 5000


class Score(NamedTuple):
    """Sums over samples, so that scores of several silos add up."""

    samples: int
    correct: int
    loss: float  # summed over samples

    @property
    def accuracy(self) -> float:
        """Share of samples classified rightly."""
        return self.correct / self.samples if self.samples else float("nan")

    @property
    def mean_loss(self) -> float:
        """Loss a sample."""
        return self.loss / self.samples if self.samples else float("nan")


def cross_entropy_score(scores: Tensor, y: Tensor) -> Score:
    """How well logits fit labels."""
    return Score(
        len(y),
        int((scores.argmax(1) == y).sum()),
        float(F.cross_entropy(scores, y, reduction="sum").double()),
    )


def add(scores: list[Score]) -> Score:
    """The score over all samples together."""
    return Score(sum(s.samples for s in scores), sum(s.correct for s in scores), sum(s.loss for s in scores))


@torch.no_grad()
def evaluate(
    predict: Callable[[Tensor], Tensor],
    x: Tensor,
    y: Tensor,
    score: Callable[[Tensor, Tensor], Score] = cross_entropy_score,
) -> Score:
    """Score a prediction function on samples, a batch at a time."""
    size = GPU_BATCH if x.is_cuda else BATCH
    return add([score(predict(xs), ys) for xs, ys in zip(x.split(size), y.split(size), strict=True)])
