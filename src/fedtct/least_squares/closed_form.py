"""M full-batch gradient steps on one silo's least squares, at the cost of two passes over its features.

A step is  W ← W − η·((1/n)·Zᵀ(ZW − Y) − h).  With G = ZZᵀ/n = QΛQᵀ the residuals of every step are known at once: in
the eigenbasis they follow r ← q·r + η·Zh with q = 1 − ηΛ, so their sum over M steps needs qᴹ, s = Σ qᵐ and
t = Σ_m Σ_{j<m} qʲ only. When there are more samples than features the same is done in the primal, with ZᵀZ/n.
"""

import torch
from torch import Tensor

ROWS = 2048  # a block of rows that is converted to the precision of the arithmetic at a time


class LocalRegression:
    """One silo's regression, decomposed once; after that a round costs the same whatever M is.

    Z may be stored in half precision: products and the decomposition are taken in the precision of ``y``.
    ``decomposition`` is (eigenvalues, q) of an earlier one with the same Z, if it was kept.
    """

    def __init__(self, z: Tensor, y: Tensor, decomposition: tuple[Tensor, Tensor] | None = None) -> None:
        self.z, self.y = z, y
        self.n, self.p = z.shape
        self.dual = self.n <= self.p
        self.eigenvalues, self.q = decomposition or self._decompose()
        if not self.dual:
            self.b = transposed_times(z, y) / self.n

    def _decompose(self) -> tuple[Tensor, Tensor]:
        gram = _outer(self.z, self.y.dtype) if self.dual else _inner(self.z, self.y.dtype)
        eigenvalues, q = torch.linalg.eigh(gram / self.n)
        return eigenvalues.double().clamp_min(0), q

    @property
    def largest_eigenvalue(self) -> float:
        """λmax: steps of size η converge in this silo if η·λmax < 2."""
        return float(self.eigenvalues[-1])

    def scores(self, w: Tensor) -> Tensor:
        """The linear model's output on the silo's samples."""
        return times(self.z, w)

    def advance(self, w: Tensor, h: Tensor | None, lr: float, steps: int) -> tuple[Tensor, Tensor]:
        """Where ``steps`` steps lead from W, and the scores at W itself."""
        if self.dual:
            return self._advance_dual(w, h, lr, steps)
        scores = self.scores(w)
        gradient = self.q @ (self.eigenvalues.to(w).unsqueeze(1) * (self.q.T @ w)) - self.b
        if h is not None:
            gradient -= h
        _, s, _ = power_sums(1 - lr * self.eigenvalues, steps)
        return w - lr * (self.q @ (s.to(w).unsqueeze(1) * (self.q.T @ gradient))), scores

    def _advance_dual(self, w: Tensor, h: Tensor | None, lr: float, steps: int) -> tuple[Tensor, Tensor]:
        classes = w.shape[1]
        products = times(self.z, w if h is None else torch.cat([w, h], 1))  # one pass over Z for both
        scores = products[:, :classes]
        _, s, t = power_sums(1 - lr * self.eigenvalues, steps)
        total = s.to(w).unsqueeze(1) * (self.q.T @ (scores - self.y))
        if h is not None:
            total += lr * t.to(w).unsqueeze(1) * (self.q.T @ products[:, classes:])
        moved = w - (lr / self.n) * transposed_times(self.z, self.q @ total)
        return (moved if h is None else moved + steps * lr * h), scores


def power_sums(q: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """q^M, Σ_{m<M} q^m and Σ_{m<M} Σ_{j<m} q^j, element by element.

    By doubling and without dividing by 1 − q, so it is right at q = 1 (a zero eigenvalue) too.
    """
    a, s, t, count = torch.ones_like(q), torch.zeros_like(q), torch.zeros_like(q), 0
    for bit in bin(steps)[2:]:
        a, s, t, count = a * a, s + a * s, t + count * s + a * t, 2 * count
        if bit == "1":
            a, s, t, count = a * q, s + a, t + s, count + 1
    return a, s, t


def explicit_steps(z: Tensor, y: Tensor, w: Tensor, h: Tensor | None, lr: float, steps: int) -> Tensor:
    """The same steps one by one, as the paper lists them: the reference that tests compare with."""
    for _ in range(steps):
        gradient = z.T @ (z @ w - y) / len(z)
        w = w - lr * (gradient if h is None else gradient - h)
    return w


def times(z: Tensor, w: Tensor) -> Tensor:
    """Z·W in the precision of W."""
    if z.dtype == w.dtype:
        return z @ w
    return torch.cat([rows.to(w.dtype) @ w for rows in z.split(ROWS)])


def transposed_times(z: Tensor, r: Tensor) -> Tensor:
    """Zᵀ·R in the precision of R."""
    if z.dtype == r.dtype:
        return z.T @ r
    result = r.new_zeros(z.shape[1], r.shape[1])
    for rows, part in zip(z.split(ROWS), r.split(ROWS), strict=True):
        result.addmm_(rows.to(r.dtype).T, part)
    return result


def _outer(z: Tensor, dtype: torch.dtype) -> Tensor:
    """Z·Zᵀ, a block of columns at a time."""
    result = torch.zeros(len(z), len(z), dtype=dtype, device=z.device)
    for columns in z.split(16 * ROWS, dim=1):
        block = columns.to(dtype)
        result.addmm_(block, block.T)
    return result


def _inner(z: Tensor, dtype: torch.dtype) -> Tensor:
    """Zᵀ·Z, a block of rows at a time."""
    result = torch.zeros(z.shape[1], z.shape[1], dtype=dtype, device=z.device)
    for rows in z.split(ROWS):
        block = rows.to(dtype)
        result.addmm_(block.T, block)
    return result
