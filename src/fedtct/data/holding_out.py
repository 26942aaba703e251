"""Which samples of a silo are held out: single ones or, where some belong together, whole groups of them."""

from typing import Any

import torch
from torch import Tensor

from fedtct.data.texts import composed
from fedtct.errors import FedtctError, plain
from fedtct.seeds import generator


def hold_out(samples: int, share: float, whose: str, groups: Any = None) -> tuple[Tensor, Tensor]:
    """Which rows are trained on, and which are held out: the same ones whenever a silo is made.

    ``groups`` says for each row whose it is: all rows of one are either trained on or held out.
    """
    share = plain(share)
    if not isinstance(share, int | float) or not 0 <= share < 1:
        raise FedtctError(f"{whose}: holdout is a share of the samples, from 0 to below 1, not {share}")
    count = round(share * samples)
    if count == samples:
        raise FedtctError(f"{whose}: holdout={share} leaves none of {samples} samples to train on")
    if groups is not None:
        held = _whole_groups(_numbered(groups, samples, whose), count, whose)
        return (~held).nonzero()[:, 0], held.nonzero()[:, 0]
    order = torch.randperm(samples, generator=generator(0, "holdout"))
    return order[count:].sort().values, order[:count].sort().values


def _numbered(groups: Any, samples: int, whose: str) -> Tensor:
    """The group of each row as a number, counted from 0."""
    import pandas as pd

    try:
        given = pd.Series(groups.numpy(force=True) if isinstance(groups, Tensor) else groups).tolist()
        numbers, _ = pd.factorize(pd.Series([composed(one) if isinstance(one, str) else one for one in given]))
    except (TypeError, ValueError) as error:
        raise FedtctError(f"{whose}: groups must be a list or an array of names or numbers", error) from error
    if len(numbers) != samples:
        raise FedtctError(f"{whose}: groups has {len(numbers)} entries for {samples} samples: give one for each")
    if missing := int((numbers < 0).sum()):
        raise FedtctError(
            f"{whose}: {missing} of {samples} samples have no group: fill it in, with a unique name for each sample "
            "that stands alone, or drop them"
        )
    return torch.from_numpy(numbers)


def _whole_groups(numbers: Tensor, count: int, whose: str) -> Tensor:
    """Which rows are held out: groups in random order, each taken if it brings the number of rows nearer to ``count``.

    If every group is too large for that, a smallest one is held out, so that there are scores on new groups.
    """
    sizes = torch.bincount(numbers).tolist()
    if not count:
        return torch.zeros(len(numbers), dtype=torch.bool)
    if len(sizes) < 2:
        raise FedtctError(
            f"{whose}: all {len(numbers)} samples are of one group, so none can be held out: set holdout to 0, or "
            "leave out groups (--group in a command)"
        )
    chosen, held = torch.zeros(len(sizes), dtype=torch.bool), 0
    order = torch.randperm(len(sizes), generator=generator(0, "holdout")).tolist()
    for group in order:
        after = held + sizes[group]
        if abs(after - count) < abs(held - count) and after < len(numbers):
            chosen[group], held = True, after
    if not held:
        chosen[min(order, key=sizes.__getitem__)] = True
    return chosen[numbers]
