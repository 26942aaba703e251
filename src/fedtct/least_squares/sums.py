"""Sums over samples that determine a least-squares fit exactly: stage 2 in one round.

With a leading constant feature, S = Σ z̃z̃ᵀ holds n, Σz and Σzzᵀ at once, and T = Σ z̃yᵀ holds Σy and Σzyᵀ. They are
plain sums: silos' add up to those of the pooled data, however it was dealt.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedtct.tangent import Moments, Normaliser

FEW = 0.5  # with fewer samples for each feature most eigenvalues of the covariance are zero
RANK = 1e-13  # eigenvalues below this share of the largest are rounding errors


class Sums(NamedTuple):
    """Sufficient statistics of least squares in float64."""

    s: Tensor  # (d + 1, d + 1), constant feature first
    t: Tensor  # (d + 1, outputs)
    yy: float  # Σ |y|²

    @classmethod
    def of(cls, batches: Iterable[tuple[Tensor, Tensor]]) -> "Sums":
        """The sums over raw features and targets that come in batches, at least one."""
        s, t, yy = torch.zeros(0), torch.zeros(0), 0.0
        for features, targets in batches:
            z, y = torch.cat([features.new_ones(len(features), 1), features], 1).double(), targets.double()
            if not len(s):
                s, t = z.new_zeros(z.shape[1], z.shape[1]), z.new_zeros(z.shape[1], y.shape[1])
            s.addmm_(z.T, z)
            t.addmm_(z.T, y)
            yy += float(y.square().sum())
        return cls(s, t, yy)

    @classmethod
    def total(cls, packed: list[Tensor], t: list[Tensor], yy: list[float]) -> "Sums":
        """Everybody's sums together, from what each sent."""
        return cls(cls.unpack(sum_tensors(packed), len(t[0])), sum_tensors(t), sum(yy))

    def pack(self) -> Tensor:
        """The upper triangle of S, row by row: S is symmetric."""
        return torch.cat([row[place:] for place, row in enumerate(self.s)])

    @staticmethod
    def unpack(packed: Tensor, size: int) -> Tensor:
        """The symmetric matrix that was packed."""
        s = packed.new_zeros(size, size)
        for place, part in enumerate(packed.split(list(range(size, 0, -1)))):
            s[place, place:] = s[place:, place] = part
        return s

    def moments(self) -> Moments:
        """Count, mean and squared deviations of the features."""
        n = float(self.s[0, 0])
        mean = self.s[0, 1:] / n
        m2 = (self.s.diagonal()[1:] - n * mean.square()).clamp_min(0)
        return Moments(round(n), mean, m2)


def sum_tensors(tensors: list[Tensor]) -> Tensor:
    """The sum of tensors, which takes the memory of one more."""
    total = tensors[0].clone()
    for tensor in tensors[1:]:
        total += tensor
    return total


@dataclass(frozen=True)
class RidgePath:
    """Ridge regression on normalised features for every strength, from one eigendecomposition.

    The bias is not penalised, so features and targets are centred and the bias put back at the end.
    """

    n: int
    eigenvalues: Tensor  # of the features' covariance; zeros may be left out, with their columns of q
    q: Tensor
    projected: Tensor  # qᵀ·cov(z, y)
    target_mean: Tensor
    target_variance: float  # summed over outputs

    @classmethod
    def of(cls, sums: Sums, normaliser: Normaliser, *, noisy: bool = False) -> "RidgePath":
        """Decompose the pooled, normalised covariance; with noise on it, it has full rank and negative eigenvalues."""
        n = float(sums.s[0, 0])
        mean, scale = sums.s[0, 1:] / n, normaliser.scale.double()
        covariance = (sums.s[1:, 1:] / n - torch.outer(mean, mean)) * torch.outer(scale, scale)
        target_mean = sums.t[0] / n
        cross = (sums.t[1:] / n - torch.outer(mean, target_mean)) * scale.unsqueeze(1)
        few_samples = n < FEW * len(covariance) and not noisy and not covariance.is_cuda
        eigenvalues, q = decompose_range(covariance) if few_samples else torch.linalg.eigh(covariance)
        variance = sums.yy / n - float(target_mean.square().sum())
        return cls(round(n), eigenvalues.clamp_min(0), q, q.T @ cross, target_mean, variance)

    def weights(self, ridge: float, normaliser: Normaliser, mean: Tensor) -> Tensor:
        """W with its bias in the last row, for features that ``normaliser`` has prepared."""
        w = self.q @ (self.projected / (self.eigenvalues + ridge).unsqueeze(1))
        # The normaliser subtracts the mean in float32; its difference to the true mean goes into the bias.
        rest = (mean - normaliser.mean.double()) * normaliser.scale.double()
        return torch.cat([w, (self.target_mean - rest @ w).unsqueeze(0)])

    def generalised_cross_validation(self, ridge: float, cost: float = 1.0) -> float:
        """The GCV score: squared error over the squared share of degrees of freedom left; one counts ``cost``."""
        shrunk = self.eigenvalues / (self.eigenvalues + ridge)
        fitted = (self.projected.square() / (self.eigenvalues + ridge).unsqueeze(1)).sum(1)
        error = self.target_variance - float(((2 - shrunk) * fitted).sum())
        freedom = 1 - cost * (1 + float(shrunk.sum())) / self.n
        return max(error, 0.0) / freedom**2 if freedom > 0 else float("inf")


def decompose_range(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """The eigenvalues of a matrix of low rank that are not zero, ascending, and their eigenvectors.

    Pivoted Cholesky gives C = F·Fᵀ with as many columns as C has rank; FᵀF is small and has the same eigenvalues.
    """
    from scipy.linalg.lapack import dpstrf  # slow to import, and only ridge regression needs it

    lower, pivots, rank, _ = dpstrf(covariance.numpy().T, lower=1)  # symmetric: transposed, it is in Fortran's order
    factor = torch.empty(len(covariance), max(rank, 1), dtype=covariance.dtype)
    factor[torch.from_numpy(pivots).long() - 1] = torch.from_numpy(np.tril(lower[:, : max(rank, 1)]))
    eigenvalues, vectors = torch.linalg.eigh(factor.T @ factor)
    kept = eigenvalues >= RANK * eigenvalues[-1].clamp_min(torch.finfo(eigenvalues.dtype).tiny)
    eigenvalues, vectors = eigenvalues[kept], vectors[:, kept]
    return eigenvalues, factor @ (vectors / eigenvalues.sqrt())
