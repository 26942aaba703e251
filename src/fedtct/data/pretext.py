"""A task that needs no labels: which way up was an image? (Gidaris et al., 2018)

Every silo sees each answer as often as every other, however much their own labels differ.
"""

import torch
from torch import Tensor

from fedtct.errors import FedtctError

PRETEXTS = ("none", "rotations")
TURNS = 4  # an image may be turned by this many quarters, none included


def draw_turns(n: int, generator: torch.Generator) -> Tensor:
    """Quarters to turn by, one row an image."""
    return torch.randint(TURNS, (n, 1), generator=generator, device=generator.device)


def turn(x: Tensor, quarters: Tensor) -> Tensor:
    """Every image of an NCHW batch, turned by its own number of quarters."""
    views = torch.stack([x.rot90(quarter, (2, 3)) for quarter in range(TURNS)])
    return views[quarters, torch.arange(len(x), device=x.device)]


def check_pretext(name: str, shape: tuple[int, ...], outputs: int) -> None:
    """Refuse samples that cannot be turned, and models that have no two outputs to say it with."""
    if name == "none":
        return
    if len(shape) != 3 or shape[1] != shape[2]:
        raise FedtctError(
            f"pretext='{name}' needs square images (channels, height, width), but the samples have shape {shape}"
        )
    if outputs < 2:
        raise FedtctError(f"pretext='{name}' needs a model with two or more outputs: a regression's has one")
