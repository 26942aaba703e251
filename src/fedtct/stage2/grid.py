"""Many (lr, steps) of stage 2 on the same features at once, in a simulation.

All cells go side by side, as columns of one W, so that a pass over the features serves them all. On a processor silos
work in the span of everybody's samples besides: steps from W = 0 never leave it, so W = Zᵀ·A with Z of all silos, and
all that rounds need of Z are its inner products K = Z·Zᵀ: one pass over K in place of two over Z.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fedtct.classifier import LinearModel
from fedtct.errors import FedtctError
from fedtct.federation import LocalFederation, weighted_sum
from fedtct.history import Journal
from fedtct.least_squares import LocalRegression, times
from fedtct.least_squares.closed_form import DualRegression
from fedtct.least_squares.power_sums import step_sums
from fedtct.least_squares.products import transposed_times
from fedtct.memory import free_bytes
from fedtct.precision import full_precision
from fedtct.session import Session
from fedtct.stage2.base import Convexified, IterativeRegression, Stage2
from fedtct.stage2.gradient_descent import GradientDescent

KERNEL_SHARE = 0.5  # of the memory that is left, for K
Cell = tuple[float, int]  # a step size, and how many steps


def check_cells(method: Stage2, cells: Sequence[Cell]) -> IterativeRegression:
    """The method, refused if it does not take steps of a size and number that one chooses, or not these."""
    if not isinstance(method, IterativeRegression) or isinstance(method, GradientDescent):
        raise FedtctError(f"{type(method).__name__} has no (lr, steps) to try: take stage2=ScaffoldRegression(), say")
    if not cells:
        raise FedtctError("there is nothing to try: give cells such as [(1e-4, 500), (1e-3, 500)]")
    for lr, steps in cells:
        replace(method, lr=lr, steps=steps)
    return method


def solve_grid(
    method: IterativeRegression, session: Session, problem: Convexified, cells: Sequence[Cell]
) -> list[LinearModel]:
    """The models that ``method`` ends with for each cell. Nothing is rated or recorded on the way."""
    if not isinstance(session.federation, LocalFederation):
        raise FedtctError("a grid needs all silos in one process: give it silos, not a federation of another kind")
    limits = method.step_limits(problem)
    cells = [(limits.check(lr), steps) for lr, steps in cells]
    given = [silo.regression() for silo in session.federation.silos]
    if any(type(own) is not DualRegression for own in given):  # more samples than features: passes over Z are few
        ways = [replace(method, lr=lr, steps=steps) for lr, steps in cells]
        return [way.solve(replace(session, journal=Journal()), problem) for way in ways]
    span = span_pays(given, columns=method.rounds * len(cells) * session.spec.num_classes)
    weights = solve_side_by_side(given, problem.shares, method, cells, span=span)
    return [LinearModel(problem.normaliser, w) for w in weights]


@full_precision()
def solve_side_by_side(
    given: Sequence[LocalRegression],
    shares: list[float],
    method: IterativeRegression,
    cells: Sequence[Cell],
    *,
    span: bool,
) -> list[Tensor]:
    """The W that rounds end with for each cell."""
    kernel, sizes = inner_products(given) if span else None, [own.n for own in given]
    ends = torch.tensor(sizes).cumsum(0).tolist()
    silos = [GridSilo(own, cells, kernel, slice(end - own.n, end)) for own, end in zip(given, ends, strict=True)]
    w = silos[0].y.new_zeros(silos[0].p, silos[0].y.shape[1])
    for _ in range(method.rounds):
        w = weighted_sum(shares, [silo.round(w, scaffold=method.correction == "scaffold") for silo in silos])
    if span:
        parts = zip(given, w.split(sizes), strict=True)
        w = torch.stack([transposed_times(own.z, rows) for own, rows in parts]).sum(0)
    return list(w.split(given[0].y.shape[1], 1))


class GridSilo(DualRegression):
    """One silo's regression with columns for every cell; on A if there is a kernel, of which it has some rows."""

    def __init__(self, own: LocalRegression, cells: Sequence[Cell], kernel: Tensor | None, rows: slice) -> None:
        z = own.z if kernel is None else kernel[rows]
        super().__init__(z, own.y.repeat(1, len(cells)), own.decomposition)
        self.rows = None if kernel is None else rows
        columns = own.y.shape[1]
        lr, steps = (own.y.new_tensor(values).repeat_interleave(columns) for values in zip(*cells, strict=True))
        s, t = zip(*(step_sums(own.eigenvalues, *cell) for cell in cells), strict=True)
        self.s, t_of_cells = (torch.stack(sums, 1).repeat_interleave(columns, 1).to(own.y) for sums in (s, t))
        self.t, self.steps, self.length = lr * t_of_cells, steps, lr * steps
        self.before: tuple[Tensor, Tensor] | None = None  # where the last round began, and the mean gradient in it

    def round(self, w: Tensor, *, scaffold: bool) -> Tensor:
        """W after this silo's steps: see ``fedtct.silo.take_steps``."""
        start = self.point(w)
        residuals = self.s * (self.q.T @ (self.scores(start) - self.y))
        term = None
        if scaffold and self.before is not None:
            server, own = self.before
            term = (server - start).div_(self.length).sub_(own)
            residuals -= self.t * (self.q.T @ self.scores(term))
        gradient = self.gradient(residuals / self.steps)
        self.before = start, gradient
        towards = gradient[: self.p] if term is None else gradient[: self.p] + term[: self.p]
        return w - self.length * towards

    def gradient(self, residuals: Tensor) -> Tensor:
        """On A, Zₖᵀ·R/nₖ has the coefficients R/nₖ in the silo's own rows."""
        if self.rows is None:
            return super().gradient(residuals)
        gradient = residuals.new_zeros(self.p + self.n, residuals.shape[1])
        gradient[self.rows] = (self.q @ residuals).div_(self.n)
        gradient[self.p :] = self.q @ (self.eigenvalues.to(residuals).unsqueeze(1) * residuals)
        return gradient


def span_pays(given: Sequence[LocalRegression], columns: int) -> bool:
    """Whether products with so many columns, over all rounds, are worth computing K for.

    On a GPU they are not: products with stored halves run on its tensor cores, those for K in float32 do not.
    """
    n, p, one = sum(own.n for own in given), given[0].p, given[0].y
    fits = n**2 * one.element_size() <= KERNEL_SHARE * free_bytes(one.device)
    return fits and not one.is_cuda and n**2 * p < columns * (4 * n * p - 2 * n**2)


def inner_products(given: Sequence[LocalRegression]) -> Tensor:
    """Z·Zᵀ of everybody's features: every pair of silos once."""
    sizes, dtype = [own.n for own in given], given[0].y.dtype
    kernel = torch.empty(sum(sizes), sum(sizes), dtype=dtype, device=given[0].z.device)
    blocks = [rows.split(sizes, 1) for rows in kernel.split(sizes)]
    for i, own in enumerate(given):
        transposed = own.z.to(dtype).T
        for j in range(i, len(given)):
            blocks[j][i].copy_(times(given[j].z, transposed))
            blocks[i][j].copy_(blocks[j][i].T)
    return kernel
