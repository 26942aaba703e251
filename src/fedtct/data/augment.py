"""Random changes to training images, drawn anew for every batch."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from fedtct.errors import FedtctError


def crop_flip(x: Tensor, generator: torch.Generator, padding: int = 4) -> Tensor:
    """Shift every image of an NCHW batch by up to `padding` pixels and mirror it half of the time.

    The shift is a crop of the original size out of the image with `padding` zeros on each side. Random
    draws are made on the generator's device; the result is on the device of `x` and has its type.
    """
    if x.ndim != 4:
        raise FedtctError(f"crop-flip needs images (N, C, H, W), not a tensor of shape {tuple(x.shape)}")
    if padding < 0:
        raise FedtctError(f"padding must be 0 or more, not {padding}")
    n, channels, height, width = x.shape

    def draw(values: int) -> Tensor:
        draws = torch.randint(values, (n, 1), generator=generator, device=generator.device)
        return draws.to(x.device)

    def count(length: int) -> Tensor:
        return torch.arange(length, device=x.device)

    top, left, mirrored = draw(2 * padding + 1), draw(2 * padding + 1), draw(2).bool()
    rows = top + count(height)
    columns = left + torch.where(mirrored, count(width).flip(0), count(width))
    padded = functional.pad(x, (padding,) * 4)
    return padded[
        count(n)[:, None, None, None],
        count(channels)[:, None, None],
        rows[:, None, :, None],
        columns[:, None, None, :],
    ]


AUGMENTATIONS: dict[str, Callable[[Tensor, torch.Generator], Tensor] | None] = {
    "none": None,
    "crop-flip": crop_flip,
}
