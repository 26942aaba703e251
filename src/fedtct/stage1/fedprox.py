"""FedProx: keep local training near the server's weights (Li et al., 2020)."""

from dataclasses import dataclass
from typing import ClassVar

from fedtct.errors import check_not_negative
from fedtct.federation import Federation, Replies
from fedtct.history import State
from fedtct.stage1.base import Stage1


@dataclass(frozen=True, kw_only=True)
class FedProx(Stage1):
    """FedAvg with (μ/2)·‖w − w_server‖² added to every silo's loss.

    ``mu`` is μ. For the other settings, see :class:`~fedtct.Stage1`.
    """

    takes_noise: ClassVar[bool] = True

    mu: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative(mu=self.mu)

    def round(self, federation: Federation, state: State, number: int) -> tuple[State, Replies]:
        """w ← Σ (n_k/n)·w_k, each w_k held back by the proximal term."""
        replies = federation.ask("train", self.question(state, number, prox=self.mu))
        return {"parameters": replies.average("parameters"), "buffers": replies.average("buffers")}, replies
