"""Everybody's regressions in the span of everybody's samples: in simulations, where all features are in one place.

Steps from W = 0 never leave that span, so W = Zᵀ·A with Z of all silos. A has as many rows as there are samples, and
all that rounds need of Z are its inner products K = Z·Zᵀ: one pass over K in place of two over Z.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedtct.least_squares.closed_form import DualRegression, LocalRegression
from fedtct.least_squares.products import times, transposed_times
from fedtct.memory import free_bytes

KERNEL_SHARE = 0.5  # of the memory that is left, for K


class Span:
    """Silos' regressions on A in place of W."""

    def __init__(self, regressions: Sequence[LocalRegression]) -> None:
        self.given = regressions
        kernel = inner_products([regression.z for regression in regressions], regressions[0].y.dtype)
        ends = torch.tensor([regression.n for regression in regressions]).cumsum(0).tolist()
        self.regressions = [
            SpanRegression(own, kernel, slice(end - own.n, end)) for own, end in zip(regressions, ends, strict=True)
        ]

    @staticmethod
    def pays(regressions: Sequence[LocalRegression], columns: int) -> bool:
        """Whether products with so many columns, over all rounds, are worth computing K for.

        On a GPU they are not: products with stored halves run on its tensor cores, those for K in float32 do not.
        """
        n, p, one = sum(regression.n for regression in regressions), regressions[0].p, regressions[0].y
        known = all(type(regression) is DualRegression for regression in regressions)
        fits = n**2 * one.element_size() <= KERNEL_SHARE * free_bytes(one.device)
        return known and fits and not one.is_cuda and n**2 * p < columns * (4 * n * p - 2 * n**2)

    def weights(self, a: Tensor) -> Tensor:
        """W = Zᵀ·A."""
        w = a.new_zeros(self.given[0].p, a.shape[1])
        for own, rows in zip(self.given, a.split([own.n for own in self.given]), strict=True):
            w += transposed_times(own.z, rows)
        return w


class SpanRegression(DualRegression):
    """One silo's regression on A. What goes for its features are its rows of K."""

    def __init__(self, own: LocalRegression, kernel: Tensor, rows: slice) -> None:
        super().__init__(kernel[rows], own.y, own.eigenvalues, own.q)
        self.rows = rows

    def gradient(self, residuals: Tensor) -> Tensor:
        """Zₖᵀ·R/nₖ has the coefficients R/nₖ in the silo's own rows of A."""
        gradient = residuals.new_zeros(self.p + self.n, residuals.shape[1])
        gradient[self.rows] = (self.q @ residuals).div_(self.n)
        gradient[self.p :] = self.q @ (self.eigenvalues.to(residuals).unsqueeze(1) * residuals)
        return gradient


def inner_products(features: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """Z·Zᵀ of everybody's features: every pair of silos once."""
    sizes = [len(z) for z in features]
    kernel = torch.empty(sum(sizes), sum(sizes), dtype=dtype, device=features[0].device)
    blocks = [rows.split(sizes, 1) for rows in kernel.split(sizes)]
    for i, z in enumerate(features):
        transposed = z.to(dtype).T
        for j in range(i, len(features)):
            blocks[j][i].copy_(times(features[j], transposed))
            blocks[i][j].copy_(blocks[j][i].T)
    return kernel
