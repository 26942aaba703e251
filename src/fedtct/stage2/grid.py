"""One linear problem solved with many (lr, steps) at once, in a simulation."""

from collections.abc import Sequence

import torch

from fedtct.classifier import LinearModel
from fedtct.errors import FedtctError
from fedtct.federation import LocalFederation, weighted_sum
from fedtct.least_squares import Span
from fedtct.precision import full_precision
from fedtct.session import Session
from fedtct.silo import take_steps
from fedtct.stage2.base import Convexified, IterativeRegression
from fedtct.training import Memory, ScaffoldCorrection


@full_precision()
def solve_grid(
    method: IterativeRegression, session: Session, problem: Convexified, cells: Sequence[tuple[float, int]]
) -> list[LinearModel]:
    """The models that ``method`` ends with for each (lr, steps).

    All cells go side by side, as columns of one W, so that a pass over the features serves them all. Nothing is rated
    or recorded on the way.
    """
    if not isinstance(session.federation, LocalFederation):
        raise FedtctError("a grid needs all silos in one process: give it silos, not a federation of another kind")
    for size, _ in cells:
        method.step_limits(problem).check(size)
    classes, device = session.spec.num_classes, session.network.device
    lr, steps = (torch.tensor(values, device=device).repeat_interleave(classes) for values in zip(*cells, strict=True))
    regressions = [silo.regression() for silo in session.federation.silos]
    span = Span(regressions) if Span.pays(regressions, method.rounds * len(lr)) else None
    silos = [(regression, Memory()) for regression in (span.regressions if span else regressions)]
    scaffold = ScaffoldCorrection(lr, steps) if method.correction == "scaffold" else None
    w = torch.zeros(silos[0][0].p, len(lr), dtype=torch.float32, device=device)
    for _ in range(method.rounds):
        ends = [take_steps(regression, w, lr, steps, scaffold, memory)[1] for regression, memory in silos]
        w = weighted_sum(problem.shares, ends)
    w = span.weights(w) if span else w
    return [LinearModel(problem.normaliser, columns) for columns in w.split(classes, 1)]
