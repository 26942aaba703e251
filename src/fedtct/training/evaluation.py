"""How good predictions are on labelled samples."""

from collections.abc import Callable

import torch
from torch import Tensor

from fedtct.tasks import Score, add

BATCH = 500
GPU_BATCH = 5000


@torch.no_grad()
def evaluate(
    predict: Callable[[Tensor], Tensor], x: Tensor, y: Tensor, score: Callable[[Tensor, Tensor], Score]
) -> Score:
    """Score a prediction function on samples, a batch at a time; it is never asked about none."""
    if not len(y):
        return add([])
    size = GPU_BATCH if x.is_cuda else BATCH
    return add([score(predict(xs), ys) for xs, ys in zip(x.split(size), y.split(size), strict=True)])
