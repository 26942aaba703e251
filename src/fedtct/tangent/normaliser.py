"""The normaliser of tangent features that all silos share, and the linear model that goes with it."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedtct.errors import Diverged
from fedtct.hardware.memory import roomy_empty
from fedtct.hardware.precision import full_precision

HALF_FROM = 2**28  # bytes of float32 features from which on they are stored in half precision
ROW = 64  # on a GPU, rows begin at multiples of so many features

# Below these a feature is a constant with rounding errors: relative to its mean, and to the typical feature.
CONSTANT_TO_MEAN = 1e-5
CONSTANT_TO_TYPICAL = 1e-8


class Moments(NamedTuple):
    """Count, mean and sum of squared deviations of every feature, in float64."""

    n: int
    mean: Tensor
    m2: Tensor

    @classmethod
    def of(cls, features: Iterable[Tensor]) -> "Moments":
        """The moments of rows in batches, summed about the first batch's mean so that little cancels."""
        n, centre = 0, torch.zeros(0)
        for rows in features:
            if not n:
                centre = rows.double().mean(0)
                total, squares = torch.zeros_like(centre), torch.zeros_like(centre)
            values = rows - centre  # in float64
            n, total, squares = n + len(rows), total.add_(values.sum(0)), squares.add_(values.square_().sum(0))
        return cls(n, centre + total / n, (squares - total.square() / n).clamp_min_(0))

    @classmethod
    def merge(cls, parts: list["Moments"]) -> "Moments":
        """The moments of all samples together (Chan's formula): equal to those of the pooled data."""
        n = sum(part.n for part in parts)
        mean = sum((part.n / n * part.mean for part in parts), torch.zeros_like(parts[0].mean))
        m2 = sum((p.m2 + p.n * (p.mean - mean).square() for p in parts), torch.zeros_like(mean))
        return cls(n, mean, m2)


class Normaliser(NamedTuple):
    """Feature z becomes (z − mean)·scale, cut off at ± limit; a near-constant feature has scale zero.

    None of n numbers is more than √n standard deviations from their mean, so nothing that is trained on is cut off. In
    other samples a feature that is almost always zero may be hundreds of deviations off, and would decide alone.
    """

    mean: Tensor
    scale: Tensor
    limit: Tensor = torch.tensor([torch.inf])

    @classmethod
    def among(cls, values: Mapping[str, Any]) -> "Normaliser":
        """The normaliser in a message or a file, among its other values."""
        return cls(**{name: values[name] for name in cls._fields})

    @classmethod
    def of(cls, moments: Moments, normalize: bool = True) -> "Normaliser":
        """Mean zero and variance one over all silos, or the identity; refused if features are not finite."""
        std = (moments.m2 / moments.n).sqrt()
        if not bool(std.isfinite().all()):
            raise Diverged(
                "tangent features are not finite: stage 1 diverged (lower its lr), or samples are far too large"
            )
        if not normalize:
            return cls.identity(len(std), std.device)
        typical = std.square().mean().sqrt()
        constant = (std <= CONSTANT_TO_MEAN * moments.mean.abs()) | (std <= CONSTANT_TO_TYPICAL * typical)
        if bool(constant.all()):
            raise Diverged(
                "the network gives the same output for every sample: stage 1 went too far (lower its lr), or all "
                "samples are alike"
            )
        scale = torch.where(constant, 0.0, 1 / std)
        return cls(moments.mean.float(), scale.float(), scale.new_tensor([moments.n]).sqrt().float())

    @classmethod
    def identity(cls, p: int, device: torch.device | str = "cpu") -> "Normaliser":
        """The normaliser that leaves features as they are."""
        return cls(*(torch.full((p,), value, dtype=torch.float32, device=device) for value in (0.0, 1.0)))

    @property
    def normalises(self) -> bool:
        """Whether features have mean zero and variance one with it."""
        return not bool((self.scale == 1).all())

    def __call__(self, features: Tensor) -> Tensor:
        """Normalised features with a last column of ones: the bias of the linear model, not normalised."""
        result = features.new_empty(len(features), features.shape[1] + 1)
        torch.sub(features, self.mean.to(features), out=result[:, :-1])
        result[:, :-1] *= self.scale.to(features)
        limit = self.limit.to(features)
        result.clamp_(-limit, limit)
        result[:, -1] = 1
        return result

    @full_precision()
    def scores(self, raw: Tensor, w: Tensor) -> Tensor:
        """Normalised features times W, whose last row is the bias, without forming them; ``raw`` is written to."""
        furthest = (self.limit.to(self.scale) / self.scale).to(raw)
        centred = raw.sub_(self.mean.to(raw)).clamp_(-furthest, furthest).to(w)
        return torch.addmm(w[-1], centred, self.scale.to(w).unsqueeze(1) * w[:-1])


class LinearModel(NamedTuple):
    """What stage 2 ends with: a normaliser of features, and W with its bias in the last row."""

    normaliser: Normaliser
    w: Tensor


def feature_rows(size: tuple[int, int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Room for features, a row a sample; on a GPU rows begin where its copy engine can reach them."""
    samples, width = size
    stride = -(-width // ROW) * ROW if device.type == "cuda" else width
    return roomy_empty((samples, stride), dtype, device)[:, :width]


def normalised(batches: Iterable[Tensor], samples: int, normaliser: Normaliser) -> Tensor:
    """Normalised features of many samples from batches of raw ones, with the column of ones.

    Half precision is enough once they are normalised; raw gradients would underflow. It is used on a GPU, where reading
    them takes the time, and for large matrices; a matrix larger than memory goes to a file. In samples that the
    normaliser was not made from, features may be of any size: they are cut off at half precision's largest number.
    """
    size = (samples, len(normaliser.mean) + 1)
    device = normaliser.mean.device
    half = normaliser.normalises and (device.type == "cuda" or 4 * size[0] * size[1] >= HALF_FROM)
    result = feature_rows(size, torch.float16 if half else torch.float32, device)
    largest = torch.finfo(torch.float16).max
    start = 0
    for raw in batches:
        rows = result[start : start + len(raw)]
        rows.copy_(normaliser(raw))
        if half:
            rows.clamp_(-largest, largest)
        start += len(raw)
    return result
