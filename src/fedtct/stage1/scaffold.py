"""SCAFFOLD: correct every silo's gradient by how it differs from everybody's (Karimireddy et al., 2020)."""

from dataclasses import dataclass

from fedtct.federation import Federation, Replies, weighted_sum
from fedtct.history import State
from fedtct.stage1.base import Stage1


@dataclass(frozen=True)
class Scaffold(Stage1):
    """Option II with one model sent a round: silos infer the mean gradient from where the server went.

    Silos with more samples take more steps. Averaging what each did in a step, and going as many steps as silos took on
    average, keeps Σ (n_k/n)·h_k = 0 and the optimum that of the pooled loss. With equal steps it is the plain average.

    Where only some silos train in a round, those that were away cannot infer the mean gradient c. The server then keeps
    it, as the authors do: it moves by the part of all samples that took part, and is sent after such a round.
    """

    def round(self, federation: Federation, state: State, number: int) -> tuple[State, Replies]:
        """w ← w − τ·Σ (n_k/n)·(w − w_k)/M_k  with  τ = Σ (n_k/n)·M_k;  c ← c + share·((w − w₊)/(τ·lr) − c)."""
        question = self.question(state, number, correction="scaffold")
        if not state.get("everyone", True):
            question["mean_gradient"] = state["c"]
        replies = federation.ask("train", question)
        shares, steps, w = replies.weights(), replies.values("steps"), state["parameters"]
        server_steps = sum(share * m for share, m in zip(shares, steps, strict=True))
        per_step = [server_steps * share / m for share, m in zip(shares, steps, strict=True)]
        moved = weighted_sum(per_step, [local - w for local in replies.values("parameters")])
        after = {"parameters": w + moved, "buffers": replies.average("buffers"), "server_steps": server_steps}
        if federation.begins_anew:
            return after, replies
        share = replies.share(federation)
        c = (1 - share) * state.get("c", 0.0) - share / (server_steps * self.lr) * moved
        return after | {"c": c, "everyone": share == 1}, replies
