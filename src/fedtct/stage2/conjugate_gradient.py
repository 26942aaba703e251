"""Conjugate gradients on the linear model: the split plays no part, nothing is chosen (Hestenes & Stiefel, 1952)."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedtct.federation import Federation, Replies
from fedtct.history import State
from fedtct.stage2.gradient_descent import GradientDescent

SOLVED, FLAT = 1e-5, 1e-6  # of the first gradient, of the largest curvature: less is rounding errors
STRIDE = 2.0**10  # safe steps: from where a long one leads, less of the gradient is lost to rounding


@dataclass(frozen=True, kw_only=True)
class ConjugateGradient(GradientDescent):
    """Stage 2 by conjugate gradients: for each class, the best model that this many gradients allow.

    The first round gives the gradient, every later one the curvature of the pooled loss along one direction. The model
    goes to the lowest point in that direction, and the next direction undoes none of it. Neither the directions nor the
    model depend on how samples are divided between silos. Too many rounds fit noise: if silos hold samples out, set
    ``patience``. When a silo leaves or comes back, directions begin anew.

    - ``rounds``: how many, each with one step on all samples; there is no step size to choose
    - ``evaluate_every``: rate the model only every so many rounds; in these, silos receive two models
    - ``patience``: stop after this many rounds without a better score on held-out samples
    """

    rounds: int = 20
    lr: Literal["auto"] = field(default="auto", init=False)

    exact: ClassVar[bool] = True

    def round(self, federation: Federation, state: State, number: int, lr: float) -> tuple[State, Replies]:
        """α = r·r / d·Hd,  x ← x + α·d,  r ← r − α·Hd,  β = r·r / (r·r before),  d ← r + β·d.

        x is the best model of the directions so far, r = b − H·x what is left of its gradient, in units of a safe step.
        Hd is told by the gradient further along d.
        """
        if "d" not in state:
            return self._first_direction(federation, state, number, lr)
        x, r, d = state["x"], state["r"], state["d"]
        reach = 1 + _quotient(x.norm(dim=0), d.norm(dim=0))  # further than x is long: little is lost to rounding
        ahead = x + reach * d
        replies = federation.ask("regress", self.question(state, number, STRIDE * lr, start=ahead))
        if sorted(replies.cost.silos) != state["silos"]:  # it is another loss now
            return {"w": state["w"]}, replies
        curved = (r - _downhill(replies, ahead)) / reach  # Hd
        squares, curvature = _dot(r, r), _dot(d, curved)
        there_is_more = (squares > state["solved"]) & (curvature > FLAT * _dot(d, d))
        far = torch.where(there_is_more, squares / curvature, 0.0)
        x, r = x + far * d, r - far * curved
        d = r + _quotient(_dot(r, r), squares) * d
        return state | {"w": x, "x": x, "r": r, "d": d}, replies

    def _first_direction(self, federation: Federation, state: State, number: int, lr: float) -> tuple[State, Replies]:
        """d = r = b − H·w. Nothing is known of the curvature yet.

        In the first round the model goes one step, which is safe for all silos together. Later fewer may be left, and
        for these it need not be: the model stays as good as it was.
        """
        replies = federation.ask("regress", self.question(state, number, STRIDE * lr))
        x, silos = state["w"], sorted(replies.cost.silos)
        r = _downhill(replies, x)
        w = x if number else x + r
        return {"w": w, "x": x, "r": r, "d": r, "solved": SOLVED**2 * _dot(r, r), "silos": silos}, replies


def _downhill(replies: Replies, start: Tensor) -> Tensor:
    """b − H·start, from where a long step of everybody led."""
    return (replies.average("w") - start) / STRIDE


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """The inner product of each class's columns."""
    return (a * b).sum(0)


def _quotient(a: Tensor, b: Tensor) -> Tensor:
    """a/b, and zero where a class is solved."""
    return torch.where(b > 0, a / b, 0.0)
