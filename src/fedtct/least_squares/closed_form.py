"""M full-batch gradient steps on one silo's least squares, at the cost of two passes over its features.

A step is  W ← W − η·((1/n)·Zᵀ(ZW − Y) + h).  With G = ZZᵀ/n = QΛQᵀ the residuals of every step are known at once: in
the eigenbasis they follow r ← c·r − η·Zh with c = 1 − ηΛ, so their sum over M steps is s·r₀ − η·t·Zh with s = Σ cᵐ and
t = Σ_m Σ_{j<m} cʲ. With more samples than features, ZᵀZ/n takes the place of ZZᵀ/n, and gradients that of residuals.
"""

import warnings
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]  # it is there, but torch does not say so

from fedtct.hardware.memory import free_bytes
from fedtct.least_squares.power_sums import ChebyshevSeries, StepCount, StepSize, step_sums
from fedtct.least_squares.products import inner, outer, times, transposed_times

GRAM_SHARE = 0.5  # of the memory that is left, for decomposing a Gram matrix
GRAM_COPIES = 4  # the matrix, its eigenvectors, and what LAPACK works in
FOUND_TO = 1e-5  # the relative error of an eigenvalue that is found alone, and then added to it
QUICK = 1024  # samples or features: a decomposition takes a second then, and is always made, for its spectrum


class Decomposition(NamedTuple):
    """That of ZZᵀ/n or ZᵀZ/n, whichever is smaller; if it took too much work, the largest eigenvalue alone."""

    eigenvalues: Tensor  # ascending, in float64
    q: Tensor  # eigenvectors, a column each; empty if only the largest eigenvalue is known

    @property
    def is_known(self) -> bool:
        """Whether all of it is known, not only the largest eigenvalue."""
        return self.q.numel() > 0


def local_regression(
    z: Tensor, y: Tensor, decomposition: Decomposition | None = None, *, many_steps: bool = True
) -> "LocalRegression":
    """One silo's regression, in the form that suits its size.

    Z may be stored in half precision: products and the decomposition are taken in the precision of ``y``. An earlier
    ``decomposition`` of the same Z may be given. Making one takes longer than many rounds of a single step each, which
    do not need it: for these pass ``many_steps=False``.
    """
    if decomposition is None:
        needed = many_steps or min(z.shape) <= QUICK
        decomposition = decompose(z, y) if needed and _fits(z, y) else largest_alone(z, y)
    if not decomposition.is_known:
        return SeriesRegression(z, y, decomposition)
    return (DualRegression if len(z) <= z.shape[1] else PrimalRegression)(z, y, decomposition)


def decompose(z: Tensor, y: Tensor) -> Decomposition:
    """All eigenvalues and eigenvectors."""
    gram = outer(z, y.dtype) if len(z) <= z.shape[1] else inner(z, y.dtype)
    gram.div_(len(z))
    try:
        eigenvalues, q = torch.linalg.eigh(gram)
    except LinAlgError:  # in float32 it may not converge if many eigenvalues are alike
        eigenvalues, q = torch.linalg.eigh(gram.double())
    return Decomposition(eigenvalues.double().clamp_min(0), q.to(y))


def largest_alone(z: Tensor, y: Tensor) -> Decomposition:
    """The largest eigenvalue, or slightly more, by products with Z in the precision of y.

    Never less: a series of thousands of steps would explode at an eigenvalue beyond the one that it was made for.
    """
    from scipy.sparse.linalg import LinearOperator, eigsh  # rarely needed, and slow to import

    def product(vector: Any) -> Any:
        return gram_times(z, torch.from_numpy(vector).to(y).view(-1, 1)).double().cpu().numpy()

    gram = LinearOperator((len(z), len(z)), matvec=product, dtype="float64")
    start = torch.ones(len(z), dtype=torch.float64).numpy()
    largest = (1 + FOUND_TO) * torch.from_numpy(eigsh(gram, k=1, v0=start, tol=FOUND_TO, return_eigenvectors=False))
    return Decomposition(largest.to(y.device), y.new_empty(0, 0))


def _fits(z: Tensor, y: Tensor) -> bool:
    """Whether there is memory to decompose; warns if there is not."""
    size = GRAM_COPIES * y.element_size() * min(z.shape) ** 2
    if size <= GRAM_SHARE * free_bytes(z.device):
        return True
    warnings.warn(
        f"the Gram matrix of {len(z)} samples takes {size / 2**30:.1f} GiB to decompose and does not fit: "
        "this silo's steps are computed from products with its features, which is slower",
        stacklevel=3,
    )
    return False


class LocalRegression(ABC):
    """One silo's regression, decomposed once; after that a round costs the same whatever M is.

    It works on *points*: W, and below it other values, linear in W, that steps from W need, such as Z·W.
    """

    def __init__(self, z: Tensor, y: Tensor, decomposition: Decomposition) -> None:
        self.z, self.y, self.decomposition = z, y, decomposition
        self.eigenvalues, self.q = decomposition
        self.n, self.p = z.shape
        self._known: dict[tuple[StepSize, StepCount], tuple[Tensor, Tensor]] = {}

    @property
    def largest_eigenvalue(self) -> float:
        """λmax: steps of size η converge in this silo if η·λmax < 2."""
        return float(self.eigenvalues[-1])

    def advance(self, start: Tensor, term: Tensor | None, lr: StepSize, steps: StepCount) -> tuple[Tensor, Tensor]:
        """W after ``steps`` steps of size ``lr`` from a point, and the mean gradient along them.

        ``term``, a point, is added to every gradient. The mean gradient is a point too, or only its part for W.
        """
        gradient = self.gradient(self.sum_of_residuals(start, term, lr, steps) / steps)
        w, mean = start[: self.p], gradient[: self.p]
        towards = mean if term is None else mean + term[: self.p]
        return w - lr * steps * towards, gradient

    def _sum(self, first: Tensor, pushed: Tensor | None, lr: StepSize, steps: StepCount) -> Tensor:
        """s·first − η·t·pushed; s and η·t are the same in every round."""
        if (lr, steps) not in self._known:
            s, t = step_sums(self.eigenvalues.unsqueeze(1), lr, steps)
            self._known = {(lr, steps): (s.to(first), (lr * t).to(first))}
        s, t = self._known[lr, steps]
        return s * first if pushed is None else s * first - t * pushed

    @abstractmethod
    def point(self, w: Tensor) -> Tensor:
        """The point at W."""

    @abstractmethod
    def scores(self, point: Tensor) -> Tensor:
        """The linear model's output on the silo's samples."""

    @abstractmethod
    def sum_of_residuals(self, start: Tensor, term: Tensor | None, lr: StepSize, steps: StepCount) -> Tensor:
        """The sum over all steps of the residuals, or of the gradients, in the eigenbasis if it is known."""

    @abstractmethod
    def gradient(self, residuals: Tensor) -> Tensor:
        """The gradient that belongs to residuals in that basis: a point, or only its part for W."""


class DualRegression(LocalRegression):
    """For at most as many samples as features. A point is W above Z·W.

    If the correction h is made of such points, Z·h is known with it, which saves a third pass over Z.
    """

    def point(self, w: Tensor) -> Tensor:
        """W above Z·W."""
        point = w.new_empty(self.p + self.n, w.shape[1])
        point[: self.p], point[self.p :] = w, times(self.z, w)
        return point

    def scores(self, point: Tensor) -> Tensor:
        """Z·W, the lower part of the point."""
        return point[self.p :]

    def sum_of_residuals(self, start: Tensor, term: Tensor | None, lr: StepSize, steps: StepCount) -> Tensor:
        """s·r₀ − η·t·Zh in the eigenbasis."""
        residuals = self.q.T @ (self.scores(start) - self.y)
        pushed = None if term is None else self.q.T @ self.scores(term)
        return self._sum(residuals, pushed, lr, steps)

    def gradient(self, residuals: Tensor) -> Tensor:
        """Zᵀ·R/n above G·R."""
        gradient = residuals.new_empty(self.p + self.n, residuals.shape[1])
        gradient[: self.p] = self.in_features((self.q @ residuals).div_(self.n))
        gradient[self.p :] = self.q @ (self.eigenvalues.to(residuals).unsqueeze(1) * residuals)
        return gradient

    def in_features(self, v: Tensor) -> Tensor:
        """Zᵀ·V."""
        return transposed_times(self.z, v)


class PrimalRegression(LocalRegression):
    """For more samples than features. A point is W; in the eigenbasis of ZᵀZ/n, gradients take the residuals' place."""

    def __init__(self, z: Tensor, y: Tensor, decomposition: Decomposition) -> None:
        super().__init__(z, y, decomposition)
        self.target = self.q.T @ transposed_times(z, y).div_(self.n)

    def point(self, w: Tensor) -> Tensor:
        """W alone."""
        return w

    def scores(self, point: Tensor) -> Tensor:
        """Z·W, a pass over Z."""
        return times(self.z, point)

    def sum_of_residuals(self, start: Tensor, term: Tensor | None, lr: StepSize, steps: StepCount) -> Tensor:
        """s·g₀ − η·t·Λh in the eigenbasis."""
        eigenvalues = self.eigenvalues.to(start).unsqueeze(1)
        gradients = eigenvalues * (self.q.T @ start) - self.target
        pushed = None if term is None else eigenvalues * (self.q.T @ term)
        return self._sum(gradients, pushed, lr, steps)

    def gradient(self, residuals: Tensor) -> Tensor:
        """Back from the eigenbasis."""
        return self.q @ residuals


class SeriesRegression(DualRegression):
    """For a Gram matrix that was not decomposed: only λmax is known.

    The sum of residuals is computed from products with Z, as a Chebyshev series, whose length grows with √M.
    """

    def sum_of_residuals(self, start: Tensor, term: Tensor | None, lr: StepSize, steps: StepCount) -> Tensor:
        """s(G)·R₀ − η·t(G)·Zh with the polynomials s and t as series over the eigenvalues' range."""
        lr, steps = float(lr), int(steps)  # the same for all columns
        series = ChebyshevSeries(upper=self.largest_eigenvalue, lr=lr, steps=steps)
        first = self.scores(start) - self.y
        columns = first.shape[1]
        before = now = first if term is None else torch.cat([first, self.scores(term)], 1)
        total = torch.zeros_like(first)
        for k, (s, t) in enumerate(zip(series.s.to(first), series.t.to(first), strict=True)):
            if k:
                shifted = (2 / series.upper) * gram_times(self.z, now) - now
                before, now = now, shifted if k == 1 else 2 * shifted - before
            total += s * now[:, :columns]
            if term is not None:
                total -= lr * t * now[:, columns:]
        return total

    def gradient(self, residuals: Tensor) -> Tensor:
        """Zᵀ·R/n alone: the scores below it would take a pass over Z, and are only needed if a correction uses them."""
        return self.in_features(residuals / self.n)


def gram_times(z: Tensor, v: Tensor) -> Tensor:
    """Z·Zᵀ·V/n."""
    return times(z, transposed_times(z, v)) / len(z)
