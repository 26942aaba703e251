"""M full-batch gradient steps on one silo's least squares, at the cost of two passes over its features.

A step is  W ← W − η·((1/n)·Zᵀ(ZW − Y) − h).  With G = ZZᵀ/n = QΛQᵀ the residuals of every step are known at once: in
the eigenbasis they follow r ← q·r + η·Zh with q = 1 − ηΛ, so their sum over M steps needs qᴹ, s = Σ qᵐ and
t = Σ_m Σ_{j<m} qʲ only. When there are more samples than features the same is done in the primal, with ZᵀZ/n.
"""

import warnings
from typing import Any

import torch
from torch import Tensor

from fedtct.least_squares.power_sums import ChebyshevSeries, step_sums
from fedtct.least_squares.products import inner, outer, times, times_both, transposed_times
from fedtct.memory import free_bytes

GRAM_SHARE = 0.5  # of the memory that is left, for decomposing a Gram matrix
GRAM_COPIES = 4  # the matrix, its eigenvectors, and what LAPACK works in


class LocalRegression:
    """One silo's regression, decomposed once; after that a round costs the same whatever M is.

    Z may be stored in half precision: products and the decomposition are taken in the precision of ``y``.
    ``decomposition`` is (eigenvalues, q) of an earlier one with the same Z, if it was kept. Where the Gram matrix does
    not fit in memory, only its largest eigenvalue is found, q is empty, and the sum of residuals comes from products
    with Z alone: as a Chebyshev series, whose length grows with √M.
    """

    def __init__(self, z: Tensor, y: Tensor, decomposition: tuple[Tensor, Tensor] | None = None) -> None:
        self.z, self.y = z, y
        self.n, self.p = z.shape
        self.eigenvalues, self.q = decomposition or self._decompose()
        self.decomposed = self.q.numel() > 0
        self.dual = self.n <= self.p or not self.decomposed
        if not self.dual:
            self.b = transposed_times(z, y) / self.n

    def _decompose(self) -> tuple[Tensor, Tensor]:
        size = GRAM_COPIES * self.y.element_size() * min(self.z.shape) ** 2
        if size > GRAM_SHARE * free_bytes(self.z.device):
            warnings.warn(
                f"the Gram matrix of {self.n} samples takes {size / 2**30:.1f} GiB to decompose and does not fit: "
                "this silo's steps are computed from products with its features, which is slower",
                stacklevel=2,
            )
            return self._largest_eigenvalue_alone(), self.y.new_empty(0, 0)
        gram = outer(self.z, self.y.dtype) if self.n <= self.p else inner(self.z, self.y.dtype)
        eigenvalues, q = torch.linalg.eigh(gram.div_(self.n))
        return eigenvalues.double().clamp_min(0), q

    def _largest_eigenvalue_alone(self) -> Tensor:
        from scipy.sparse.linalg import LinearOperator, eigsh  # rarely needed, and slow to import

        def product(vector: Any) -> Any:
            return self._gram_times(torch.from_numpy(vector).to(self.y).view(-1, 1)).double().cpu().numpy()

        gram = LinearOperator((self.n, self.n), matvec=product, dtype="float64")
        start = torch.ones(self.n, dtype=torch.float64).numpy()
        return torch.from_numpy(eigsh(gram, k=1, v0=start, tol=1e-3, return_eigenvectors=False)).to(self.y.device)

    def _gram_times(self, v: Tensor) -> Tensor:
        return times(self.z, transposed_times(self.z, v)) / self.n

    @property
    def largest_eigenvalue(self) -> float:
        """λmax: steps of size η converge in this silo if η·λmax < 2."""
        return float(self.eigenvalues[-1])

    def scores(self, w: Tensor) -> Tensor:
        """The linear model's output on the silo's samples."""
        return times(self.z, w)

    def advance(self, w: Tensor, h: Tensor | None, lr: float | Tensor, steps: int | Tensor) -> tuple[Tensor, Tensor]:
        """Where ``steps`` steps lead from W, and the scores at W itself.

        A column of W is a problem of its own: with tensors, each has its own ``lr`` and its own number of ``steps``.
        """
        if self.dual:
            return self._advance_dual(w, h, lr, steps)
        scores = self.scores(w)
        gradient = self.q @ (self.eigenvalues.to(w).unsqueeze(1) * (self.q.T @ w)) - _for_all(w, self.b)
        if h is not None:
            gradient -= h
        s, _ = step_sums(self.eigenvalues, lr, steps)
        return w - lr * (self.q @ (s.to(w) * (self.q.T @ gradient))), scores

    def _advance_dual(
        self, w: Tensor, h: Tensor | None, lr: float | Tensor, steps: int | Tensor
    ) -> tuple[Tensor, Tensor]:
        scores, pushed = times_both(self.z, w, w[:, :0] if h is None else h)
        total = self._sum_of_residuals(scores - _for_all(w, self.y), pushed, lr, steps)
        moved = transposed_times(self.z, total).mul_(-lr / self.n).add_(w)  # in place: W may be large
        return (
            moved if h is None else moved.addcmul_(h, torch.as_tensor(steps * lr, dtype=h.dtype, device=h.device))
        ), scores

    def _sum_of_residuals(self, first: Tensor, pushed: Tensor, lr: float | Tensor, steps: int | Tensor) -> Tensor:
        """Over all steps, from the first residuals and Zh; the latter has no columns if there is no h."""
        if not self.decomposed:
            return self._sum_of_residuals_by_products(first, pushed, lr, steps)
        s, t = step_sums(self.eigenvalues, lr, steps)
        total = s.to(first) * (self.q.T @ first)
        if pushed.shape[1]:
            total += lr * t.to(first) * (self.q.T @ pushed)
        return self.q @ total

    def _sum_of_residuals_by_products(
        self, first: Tensor, pushed: Tensor, lr: float | Tensor, steps: int | Tensor
    ) -> Tensor:
        """s(G)·R₀ + η·t(G)·Zh with the polynomials s and t as Chebyshev series over the eigenvalues' range."""
        series = ChebyshevSeries(upper=1.01 * self.largest_eigenvalue, lr=lr, steps=steps)
        columns = first.shape[1]
        before = now = torch.cat([first, pushed], 1)
        total = torch.zeros_like(first)
        for k, (s, t) in enumerate(zip(series.s.to(first), series.t.to(first), strict=True)):
            if k:
                shifted = (2 / series.upper) * self._gram_times(now) - now
                before, now = now, shifted if k == 1 else 2 * shifted - before
            total += s * now[:, :columns]
            if pushed.shape[1]:
                total += lr * t * now[:, columns:]
        return total


def _for_all(w: Tensor, y: Tensor) -> Tensor:
    """The columns of y as often as W holds them."""
    return y.repeat(1, w.shape[1] // y.shape[1])


def explicit_steps(z: Tensor, y: Tensor, w: Tensor, h: Tensor | None, lr: float, steps: int) -> Tensor:
    """The same steps one by one, as the paper lists them: the reference that tests compare with."""
    for _ in range(steps):
        gradient = z.T @ (z @ w - y) / len(z)
        w = w - lr * (gradient if h is None else gradient - h)
    return w
