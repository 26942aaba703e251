"""FedAdam: the server takes the silos' mean change as a gradient for Adam (Reddi et al., 2021)."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from fedtct.errors import FedtctError, check_positive
from fedtct.federation import Federation, Replies
from fedtct.history import State
from fedtct.models import Weights
from fedtct.stage1.base import Stage1


@dataclass(frozen=True, kw_only=True)
class FedAdam(Stage1):
    """FedAvg whose server takes Adam's steps, with momenta and τ as its authors recommend.

    ``server_lr``, ``beta1``, ``beta2`` and ``tau`` are Adam's. For the other settings, see :class:`~fedtct.Stage1`.
    """

    takes_noise: ClassVar[bool] = True

    server_lr: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(server_lr=self.server_lr, tau=self.tau)
        if not (0 <= self.beta1 < 1 and 0 <= self.beta2 < 1):
            raise FedtctError("FedAdam needs betas from 0 to below 1")

    def start(self, weights: Weights) -> State:
        """m = 0 and v = τ²."""
        zero = torch.zeros_like(weights.parameters)
        return weights._asdict() | {"m": zero, "v": zero + self.tau**2}

    def round(self, federation: Federation, state: State, number: int) -> tuple[State, Replies]:
        """m ← β₁m + (1−β₁)Δ,  v ← β₂v + (1−β₂)Δ²,  w ← w + η·m/(√v + τ),  Δ the mean change."""
        replies = federation.ask("train", self.question(state, number))
        change = replies.average("parameters") - state["parameters"]
        m = self.beta1 * state["m"] + (1 - self.beta1) * change
        v = self.beta2 * state["v"] + (1 - self.beta2) * change.square()
        w = state["parameters"] + self.server_lr * m / (v.sqrt() + self.tau)
        return {"parameters": w, "buffers": replies.average("buffers"), "m": m, "v": v}, replies
