"""FedDyn: regularise every silo's loss so that its optimum agrees with everybody's (Acar et al., 2021)."""

from dataclasses import dataclass

import torch

from fedtct.errors import check_not_negative
from fedtct.federation import Federation, Replies
from fedtct.history import State
from fedtct.models import Weights
from fedtct.stage1.base import Stage1


@dataclass(frozen=True, kw_only=True)
class FedDyn(Stage1):
    """Silos minimise L_k(w) − ⟨g_k, w⟩ + (α/2)·‖w − w_server‖² and update their g_k.

    The server keeps h = Σ (n_k/n)·g_k over all silos. A silo that does not answer keeps its g_k, and so its part of h:
    the others change h by their share only. With α = 0, both terms vanish and this is FedAvg.

    The model is the average w̄ of silos' weights, as in the code of FedDyn's authors. The point from which silos
    continue, w_server = w̄ − h/α, lies beyond w̄: if all silos answer, by as much as w̄ moved.

    ``alpha`` is α. For the other settings, see :class:`~fedtct.Stage1`.
    """

    alpha: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative(alpha=self.alpha)

    def start(self, weights: Weights) -> State:
        """h = 0."""
        return weights._asdict() | {"h": torch.zeros_like(weights.parameters), "total": 0}

    def round(self, federation: Federation, state: State, number: int) -> tuple[State, Replies]:
        """With w = w̄ − h/α:  h ← h − α·share·(w̄₊ − w),  w̄₊ the average of the weights of silos that answered."""
        w = state["parameters"] - state["h"] / (self.alpha or 1.0)  # h is zero if α is
        replies = federation.ask("train", self.question(state, number, start=w, prox=self.alpha, correction="feddyn"))
        mean = replies.average("parameters")
        grown = state["total"] / replies.total if replies.total and state["total"] else 1.0  # newcomers have g_k = 0
        h = grown * state["h"] - self.alpha * replies.share(federation) * (mean - w)
        return {"parameters": mean, "buffers": replies.average("buffers"), "h": h, "total": replies.total or 0}, replies
