"""SCAFFOLD: correct every silo's gradient by how it differs from everybody's (Karimireddy et al., 2020)."""

from dataclasses import dataclass

from fedtct.federation import Federation, Replies, weighted_sum
from fedtct.history import State
from fedtct.stage1.base import Stage1


@dataclass(frozen=True)
class Scaffold(Stage1):
    """SCAFFOLD (option II): silos correct their gradients by how these differ from the average.

    The server sends one model per round: silos infer the mean gradient from how it moved.

    Silos with more samples take more steps. The server averages what each did in one step, and takes as many steps as
    silos did on average. This keeps Σ (n_k/n)·h_k = 0, and the optimum is that of the pooled loss. With equal steps it
    is the plain average.

    If only some silos train in a round, the others cannot infer the mean gradient c. The server then keeps it, as
    SCAFFOLD's authors do: c moves by the share of all samples that took part, and is sent after such a round.
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
