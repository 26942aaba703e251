"""How good predictions are on labelled samples."""

from collections.abc import Callable

import torch
from torch import Tensor

from fedtct.hardware.kernels import fastest_convolutions
from fedtct.tasks import Score

BATCH, GPU_BATCH = 500, 5000  # samples that a network rates at a time, at most
GPU_SAMPLE = 2**24  # bytes of a GPU's memory for each sample
NUMBERS = 2**24  # in all samples of a batch, at most: activations of large images would not fit


@torch.no_grad()
@fastest_convolutions()
def evaluate(
    predict: Callable[[Tensor], Tensor], x: Tensor, y: Tensor, score: Callable[[Tensor, Tensor], Score]
) -> Score:
    """Score a prediction function on samples, a batch at a time; it is never called with no samples."""
    if not len(y):
        return Score()
    size = batch_size(x, _fitting(x.device) if x.is_cuda else BATCH)
    return Score.total(score(predict(xs), ys) for xs, ys in zip(x.split(size), y.split(size), strict=True))


def _fitting(gpu: torch.device) -> int:
    return min(GPU_BATCH, torch.cuda.get_device_properties(gpu).total_memory // GPU_SAMPLE)


def batch_size(x: Tensor, most: int = BATCH) -> int:
    """How many of these samples to give a network at a time: fewer than ``most`` if they are large."""
    return max(1, min(most, NUMBERS // max(1, x[:1].numel())))
