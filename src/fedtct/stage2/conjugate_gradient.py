"""Conjugate gradients on the linear model: the split plays no part, nothing is chosen (Hestenes & Stiefel, 1952)."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedtct.federation import Replies
from fedtct.history import State
from fedtct.stage2.gradient_descent import GradientDescent

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
    stride: ClassVar[float] = 2.0**10

    # x is the best model of the directions so far, r = b − H·x what is left of its gradient, in units of a safe step.
    # Before there is a direction, the model w is one such step further.

    def point(self, state: State) -> Tensor:
        """v = x + γ·d, with γ·d longer than x, so that little is lost to rounding; at first w, for its gradient."""
        w: Tensor = state["w"]
        return state["x"] + _reach(state) * state["d"] if "d" in state else w

    def combine(self, state: State, replies: Replies) -> State:
        """α = r·r / d·Hd,  x ← x + α·d,  r ← r − α·Hd,  β = r·r / (r·r before),  d ← r + β·d."""
        w, silos = state["w"], sorted(replies.cost.silos)
        downhill = (replies.average("w") - self.point(state)) / self.stride  # b − H·v
        if "d" not in state:
            solved = SOLVED**2 * _dot(downhill, downhill)
            return {"w": w + downhill, "x": w, "r": downhill, "d": downhill, "solved": solved, "silos": silos}
        if silos != state["silos"]:  # it is another loss now
            return {"w": w}
        x, r, d = state["x"], state["r"], state["d"]
        curved = (r - downhill) / _reach(state)
        squares, curvature = _dot(r, r), _dot(d, curved)
        there_is_more = (squares > state["solved"]) & (curvature > FLAT * _dot(d, d))
        far = torch.where(there_is_more, squares / curvature, 0.0)
        x, r = x + far * d, r - far * curved
        return state | {"w": x, "x": x, "r": r, "d": r + _quotient(_dot(r, r), squares) * d}


def _reach(state: State) -> Tensor:
    """γ, of each class."""
    return 1 + _quotient(state["x"].norm(dim=0), state["d"].norm(dim=0))


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """The inner product of each class's columns."""
    return (a * b).sum(0)


def _quotient(a: Tensor, b: Tensor) -> Tensor:
    """a/b, and zero where a class is solved."""
    return torch.where(b > 0, a / b, 0.0)
