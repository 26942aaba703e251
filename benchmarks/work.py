"""The work that is timed: shapes, sizes and random images. Speed does not depend on what images show."""

import torch
from torch import Tensor

SHAPES = {
    "linear": (1, 28, 28),
    "mlp": (1, 28, 28),
    "simple-cnn": (1, 28, 28),
    "resnet18-bn": (3, 32, 32),
    "resnet18-gn": (3, 32, 32),
}
CLASSES = 10
BATCH = 64
LR, WEIGHT_DECAY = 0.01, 1e-5
SEED = 0


def images(model: str, samples: int) -> tuple[Tensor, Tensor]:
    """Pixels and labels in the shape that a model takes."""
    draws = torch.Generator().manual_seed(SEED)
    x = torch.randint(256, (samples, *SHAPES[model]), dtype=torch.uint8, generator=draws)
    return x, torch.randint(CLASSES, (samples,), generator=draws)
