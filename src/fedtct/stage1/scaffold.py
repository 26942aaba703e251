"""SCAFFOLD: correct every silo's gradient by how it differs from everybody's (Karimireddy et al., 2020)."""

from dataclasses import dataclass
from typing import ClassVar

from fedtct.federation import Federation, Replies, weighted_sum
from fedtct.history import State
from fedtct.stage1.base import Stage1


@dataclass(frozen=True)
class Scaffold(Stage1):
    """Option II with one model sent a round: silos infer the mean gradient from where the server went.

    Silos with more samples take more steps. Averaging what each did in a step, and going as many steps as silos took on
    average, keeps Σ (n_k/n)·h_k = 0 and the optimum that of the pooled loss. With equal steps it is the plain average.
    """

    private: ClassVar[bool] = False

    def round(self, federation: Federation, state: State, number: int) -> tuple[State, Replies]:
        """w ← w − τ·Σ (n_k/n)·(w − w_k)/M_k  with  τ = Σ (n_k/n)·M_k."""
        replies = federation.ask("train", self.question(state, number, correction="scaffold"))
        shares, steps, w = replies.weights(), replies.values("steps"), state["parameters"]
        server_steps = sum(share * m for share, m in zip(shares, steps, strict=True))
        per_step = [server_steps * share / m for share, m in zip(shares, steps, strict=True)]
        moved = weighted_sum(per_step, [local - w for local in replies.values("parameters")])
        return {
            "parameters": w + moved,
            "buffers": replies.average("buffers"),
            "server_steps": server_steps,
        }, replies
