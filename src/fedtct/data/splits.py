"""Dealing the samples of a dataset to silos: evenly, by classes, or by Dirichlet proportions."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from fedtct.data.samples import as_answers
from fedtct.errors import FedtctError, check_whole
from fedtct.split_forms import parse_split

Ints: TypeAlias = NDArray[np.int64]
Labels: TypeAlias = torch.Tensor | NDArray[Any] | Sequence[int] | Sequence[str]

MINIMUM_PER_SILO = 10  # samples; a tenth of an equal share if that is less, but at least one
MAX_DEALS = 100_000  # ten classes thrown whole into ten silos hit all of them once in 2,756 deals
MAX_VARIATES = 50_000_000  # bounds the time of MAX_DEALS large deals to a few seconds


def partition(y: Labels, silos: int = 10, split: str = "iid", seed: int = 0) -> list[Ints]:
    """Deal the samples with labels or class names `y` to `silos`; returns the sorted indices of each silo's samples.

    - "iid": at random, in equal parts
    - "classes:N": N classes for each silo; the silos that hold a class share it almost equally. If there are more
      classes than silos * N, the others are left out
    - "dirichlet:ALPHA": each class in proportions drawn from a symmetric Dirichlet distribution

    No sample goes to two silos. If a silo gets fewer than `MINIMUM_PER_SILO` samples, all are dealt again. The same
    arguments always give the same result.

    >>> y = [0, 0, 0, 1, 1, 1, 2, 2, 2]
    >>> [sorted({y[i] for i in part}) for part in partition(y, silos=3, split="classes:1")]
    [[2], [0], [1]]
    """
    labels = _as_labels(y)
    check_whole(1, silos=silos)
    check_whole(0, seed=seed)
    if silos > len(labels):
        raise FedtctError(f"there are {silos} silos but only {len(labels)} samples: use fewer silos")
    rng = np.random.Generator(np.random.PCG64(seed))
    sizes = np.unique(labels, return_counts=True)[1]
    form, number = parse_split(split, len(sizes))
    if form == "iid":
        shuffled = _shuffled(np.arange(len(labels), dtype=np.int64), rng)
        return [np.sort(part) for part in np.array_split(shuffled, silos)]
    if form == "classes":
        deals = _class_deals(sizes, silos, int(number), rng)
    else:
        deals = _dirichlet_deals(sizes, silos, number, rng)
    minimum = max(1, min(MINIMUM_PER_SILO, len(labels) // (10 * silos)))
    for counts in deals:
        if counts.sum(axis=1).min() >= minimum:
            return _deal(labels, counts, rng)
    raise FedtctError(
        f"however the {len(labels)} samples are dealt by {split!r}, some of the {silos} silos get fewer than "
        f"{minimum}: use fewer silos, or a larger N or ALPHA"
    )


def _as_labels(y: Labels) -> Ints:
    labels = y.numpy(force=True) if isinstance(y, torch.Tensor) else np.asarray(y)
    if labels.size == 0:
        raise FedtctError("there are no samples to split: y is empty")
    if labels.ndim == 1 and labels.dtype.kind in "OUSTb":
        labels = np.unique(as_answers(labels, "y"), return_inverse=True)[1]
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise FedtctError(f"y must be a list of labels or names, not {labels.dtype} of shape {labels.shape}")
    return labels.astype(np.int64)


def _class_deals(sizes: Ints, silos: int, per_silo: int, rng: np.random.Generator) -> Iterator[Ints]:
    """Yield tables (silo, class) of sample counts in which each silo holds `per_silo` classes."""
    for _ in range(MAX_DEALS // 100):  # the deals differ little: one that fails will mostly fail again
        held = np.zeros((silos, len(sizes)), bool)
        for silo in range(silos):
            # The classes with the fewest holders so far, ties at random: none waits while another gains.
            order = np.lexsort((rng.random(len(sizes)), held.sum(axis=0)))
            held[silo, order[:per_silo]] = True
        counts = np.zeros(held.shape, np.int64)
        for label, size in enumerate(sizes):
            holders = _shuffled(np.flatnonzero(held[:, label]), rng)  # parts differ by one: by chance
            if len(holders):
                counts[holders, label] = np.diff(np.arange(len(holders) + 1) * size // len(holders))
        yield counts


def _dirichlet_deals(sizes: Ints, silos: int, alpha: float, rng: np.random.Generator) -> Iterator[Ints]:
    """Yield tables (silo, class) of sample counts in proportions drawn from Dirichlet(alpha).

    The proportions are gamma variates over their sum, but for a small alpha these all underflow to 0.
    So they are drawn as logarithms: if G ~ Gamma(alpha + 1) and U ~ Uniform(0, 1], then
    G * U**(1 / alpha) ~ Gamma(alpha).
    """
    cells = silos * len(sizes)
    batch = max(1, 100_000 // cells)
    for _ in range(math.ceil(min(MAX_DEALS, MAX_VARIATES // cells + 1) / batch)):
        shape = (batch, silos, len(sizes))
        logs = np.log(rng.standard_gamma(alpha + 1, shape)) + np.log1p(-rng.random(shape)) / alpha
        weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        ends = weights.cumsum(axis=1)
        ends = np.rint(ends / ends[:, -1:] * sizes).astype(np.int64)
        yield from np.diff(ends, axis=1, prepend=0)


def _deal(labels: Ints, counts: Ints, rng: np.random.Generator) -> list[Ints]:
    """Deal random samples of every class according to a table (silo, class) of counts."""
    hands: list[list[Ints]] = [[] for _ in counts]
    for label, column in zip(np.unique(labels), counts.T, strict=True):
        shuffled = _shuffled(np.flatnonzero(labels == label), rng)
        for hand, part in zip(hands, np.split(shuffled, column.cumsum()), strict=False):
            hand.append(part)  # a last part, beyond all silos, is what a class without holders leaves
    return [np.sort(np.concatenate(hand)) for hand in hands]


def _shuffled(values: Ints, rng: np.random.Generator) -> Ints:
    # Sorting plain uniform draws relies on the generator's bit stream alone, not on numpy's shuffling.
    return values[np.argsort(rng.random(len(values)), kind="stable")]
