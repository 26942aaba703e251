"""Many (lr, steps) of stage 2 on the same features at once, in a simulation.

All cells go side by side, as columns of one W, so that a pass over the features serves them all. On a processor silos
work in the span of everybody's samples besides: steps from W = 0 never leave it, so W = Zᵀ·A with Z of all silos, and
all that rounds need of Z are its inner products K = Z·Zᵀ: one pass over K in place of two over Z.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import torch
from torch import Tensor

from fedtct.errors import FedtctError
from fedtct.federation import LocalFederation, weighted_sum
from fedtct.hardware.memory import free_bytes
from fedtct.hardware.precision import full_precision
from fedtct.history import Journal
from fedtct.least_squares import LocalRegression, times
from fedtct.least_squares.closed_form import Decomposition, DualRegression
from fedtct.least_squares.products import transposed_times
from fedtct.seated_silo import take_steps
from fedtct.session import Session
from fedtct.stage2.base import Stage2
from fedtct.stage2.convexify import Convexified
from fedtct.stage2.fedavg import FedAvgRegression
from fedtct.stage2.gradient_descent import GradientDescent
from fedtct.stage2.iterative import IterativeRegression
from fedtct.stage2.scaffold import ScaffoldRegression
from fedtct.tangent import LinearModel
from fedtct.training import Memory, ScaffoldCorrection

KERNEL_SHARE = 0.5  # of the memory that is left, for K
Cell = tuple[float, int]  # a step size, and how many steps


def check_cells(method: Stage2, cells: Sequence[Cell]) -> IterativeRegression:
    """The method; refused if its step size and number of steps cannot be chosen, or if these cells are not valid."""
    if not isinstance(method, IterativeRegression) or isinstance(method, GradientDescent):
        raise FedtctError(
            f"{type(method).__name__} has no (lr, steps) to try: use stage2=ScaffoldRegression(), for example"
        )
    if method.patience is not None:
        raise FedtctError("a grid rates no rounds, which patience needs: leave patience out")
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
    own_rule = type(method) not in (ScaffoldRegression, FedAvgRegression)  # a subclass may combine replies otherwise
    # One after another, also where features are few, so that passes over them are cheap, or the memory is short.
    if own_rule or any(type(own) is not DualRegression for own in given):
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
    y, outputs = given[0].y, given[0].y.shape[1]
    lr = y.new_tensor([size for size, _ in cells]).repeat_interleave(outputs)
    steps = torch.tensor([count for _, count in cells], device=y.device).repeat_interleave(outputs)
    scaffold = ScaffoldCorrection(lr, steps) if method.correction == "scaffold" else None
    regressions = in_span(given, len(cells)) if span else in_columns(given, len(cells))
    silos: list[tuple[LocalRegression, Memory]] = [(own, {}) for own in regressions]
    w = y.new_zeros(regressions[0].p, len(lr))
    for _ in range(method.rounds):
        w = weighted_sum(shares, [take_steps(own, w, lr, steps, scaffold, memory)[1] for own, memory in silos])
    if span:
        parts = zip(given, w.split([own.n for own in given]), strict=True)
        w = torch.stack([transposed_times(own.z, rows) for own, rows in parts]).sum(0)
    return list(w.split(outputs, 1))


def in_columns(given: Sequence[LocalRegression], cells: int) -> Sequence[DualRegression]:
    """The silos' regressions with columns for every cell."""
    return [DualRegression(own.z, own.y.repeat(1, cells), own.decomposition) for own in given]


def in_span(given: Sequence[LocalRegression], cells: int) -> Sequence[DualRegression]:
    """The same regressions on A, the coefficients of all samples: W = ZᵀA."""
    kernel, ends = inner_products(given), accumulate(own.n for own in given)
    return [
        SpanRegression(kernel, slice(end - own.n, end), own.y.repeat(1, cells), own.decomposition)
        for own, end in zip(given, ends, strict=True)
    ]


class SpanRegression(DualRegression):
    """A silo's regression on A: its features are its samples' inner products with everybody's, some rows of K."""

    def __init__(self, kernel: Tensor, rows: slice, y: Tensor, decomposition: Decomposition) -> None:
        super().__init__(kernel[rows], y, decomposition)
        self.rows = rows

    def in_features(self, v: Tensor) -> Tensor:
        """Zₖᵀ·V has the coefficients V in the silo's own rows."""
        coefficients = v.new_zeros(self.p, v.shape[1])
        coefficients[self.rows] = v
        return coefficients


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
            if j > i:
                blocks[i][j].copy_(blocks[j][i].T)
    return kernel
