"""Random changes to training images, drawn for a whole epoch at once and applied a batch at a time.

Because they are drawn beforehand, the changes are the same on every device, and a captured GPU graph can read them.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from fedtct.errors import FedtctError

PADDING = 4


class Augmentation(NamedTuple):
    """How to draw a change for each of n samples, and how to apply a batch's draws to it."""

    draw: Callable[[int, torch.Generator], Tensor]
    apply: Callable[[Tensor, Tensor], Tensor]


def draw_crop_flip(n: int, generator: torch.Generator) -> Tensor:
    """Top, left and mirrored, one row an image."""
    shifts = torch.randint(2 * PADDING + 1, (n, 2), generator=generator, device=generator.device)
    mirrored = torch.randint(2, (n, 1), generator=generator, device=generator.device)
    return torch.cat([shifts, mirrored], 1)


def crop_flip(x: Tensor, draws: Tensor) -> Tensor:
    """Shift every image of an NCHW batch by up to ``PADDING`` pixels and mirror some.

    The shift is a crop of the original size out of the image with zeros on each side.
    """
    n, channels, height, width = x.shape

    def count(length: int) -> Tensor:
        return torch.arange(length, device=x.device)

    top, left, mirrored = draws.unsqueeze(2).unbind(1)
    rows = top + count(height)
    columns = left + torch.where(mirrored.bool(), count(width).flip(0), count(width))
    padded = functional.pad(x, (PADDING,) * 4)
    return padded[
        count(n)[:, None, None, None],
        count(channels)[:, None, None],
        rows[:, None, :, None],
        columns[:, None, None, :],
    ]


AUGMENTATIONS: dict[str, Augmentation | None] = {
    "none": None,
    "crop-flip": Augmentation(draw_crop_flip, crop_flip),
}


def check_augmentation(name: str, shape: tuple[int, ...]) -> None:
    """Refuse to augment samples that are not images."""
    if AUGMENTATIONS[name] is not None and len(shape) != 3:
        raise FedtctError(
            f"augment='{name}' needs images (channels, height, width), but the samples have shape {shape}"
        )
