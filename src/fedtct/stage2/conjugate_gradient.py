"""Conjugate gradients on the linear model: the split plays no part, nothing is chosen (Hestenes & Stiefel, 1952)."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedtct.federation import Replies
from fedtct.history import State
from fedtct.stage2.base import Convexified, StepLimits
from fedtct.stage2.gradient_descent import GradientDescent

PROBE = 2.0**10  # times the largest step that is safe: nobody goes on from there, and less is lost to rounding
SOLVED, FLAT = 1e-5, 1e-6  # of the first gradient, of the largest curvature: less is rounding errors


@dataclass(frozen=True, kw_only=True)
class ConjugateGradient(GradientDescent):
    """The best model that so many rounds of gradients allow, for each class by itself.

    The first round tells the gradient, every other the pooled loss's curvature along one direction: the model goes as
    far in it as pays, and the next direction undoes nothing of what was gained. Sums over silos do not depend on how
    samples are dealt, nor does the model. Many rounds fit noise, too: with held-out samples, give ``patience``. When a
    silo leaves or comes back, directions begin anew.

    - ``rounds``, of one step on all samples each; there is no step size to choose
    - ``evaluate_every``: rate the model every so many rounds; silos are sent two models in these
    - ``patience``: stop after so many rounds without a better score on held-out samples
    """

    rounds: int = 20
    lr: Literal["auto"] = field(default="auto", init=False)

    correction: ClassVar[str] = "conjugate"

    # A step of everybody from v leads to S(v) = v − H·v + b, with the pooled H and b in units of the step size.

    def step_limits(self, problem: Convexified) -> StepLimits:
        """No step diverges, since it shows the way alone."""
        safe = super().step_limits(problem).safe
        return StepLimits(torch.inf, PROBE * safe)

    def point(self, state: State) -> Tensor:
        """v = w + γ·d, with γ·d longer than w, so that little is lost to rounding; at first w, for its gradient."""
        w: Tensor = state["w"]
        return w + _reach(state) * state["d"] if "d" in state else w

    def combine(self, state: State, replies: Replies) -> State:
        """α = r·r / d·Hd,  w ← w + α·d,  r ← r − α·Hd,  β = r·r / (r·r before),  d ← r + β·d."""
        w, reached, silos = state["w"], replies.average("w"), sorted(replies.cost.silos)
        if "d" not in state:
            r = reached - w
            return {"w": w, "r": r, "d": r, "solved": SOLVED**2 * _dot(r, r), "silos": silos}
        if silos != state["silos"]:  # it is another loss now
            return {"w": w}
        r, d = state["r"], state["d"]
        curved = _quotient(self.point(state) + r - reached, _reach(state))
        squares, curvature = _dot(r, r), _dot(d, curved)
        there_is_more = (squares > state["solved"]) & (curvature > FLAT * PROBE * _dot(d, d))
        far = torch.where(there_is_more, squares / curvature, 0.0)
        w, r = w + far * d, r - far * curved
        return state | {"w": w, "r": r, "d": r + _quotient(_dot(r, r), squares) * d}


def _reach(state: State) -> Tensor:
    """γ, of each class."""
    return 1 + _quotient(state["w"].norm(dim=0), state["d"].norm(dim=0))


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """The inner product of each class's columns."""
    return (a * b).sum(0)


def _quotient(a: Tensor, b: Tensor) -> Tensor:
    """a/b, and zero where a class is solved."""
    return torch.where(b > 0, a / b, 0.0)
