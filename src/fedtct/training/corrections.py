"""What a silo remembers between rounds to correct its local gradient: SCAFFOLD's and FedDyn's terms.

``before`` gives the term that is added to the local gradient this round; ``after`` updates the silo's memory with what
the round did. Memory is a dict of tensors, so that any engine can store it.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from fedtct.errors import FedtctError

Memory = dict[str, Tensor]
REMEMBERING = ("scaffold", "feddyn")  # corrections that a silo must not have forgotten


class Correction(Protocol):
    """A silo's side of an algorithm with memory."""

    def before(self, memory: Memory, server: Tensor) -> Tensor:
        """The correction for a round that starts from the server's parameters."""

    def after(self, memory: Memory, server: Tensor, local: Tensor, steps: int) -> None:
        """Update the memory with the parameters that the round ended with."""


def correction_of(message: Mapping[str, Any]) -> Correction | None:
    """The correction that a question to train asks for."""
    if message["correction"] == "scaffold":
        return ScaffoldCorrection(message["lr"], message["server_steps"], message.get("mean_gradient"))
    if message["correction"] == "feddyn":
        return FedDynCorrection(message["prox"])
    if message["correction"] == "none":
        return None
    raise FedtctError(f"there is no correction '{message['correction']}'. Known: none, scaffold, feddyn")


class ScaffoldCorrection:
    """SCAFFOLD, option II, with one model sent a round (algorithm 1 of the TCT paper).

    The silo keeps c_k, its own mean gradient, which it computes from where its steps led. Everybody's mean gradient is
    computed from where the server went, c = (w_previous − w) / (server_steps·lr), unless ``mean_gradient`` is given.
    Parameters may be large, so results are built up in place. In stage 2, ``lr`` and ``server_steps`` may be rows of
    numbers, one for each column of W.
    """

    def __init__(self, lr: float | Tensor, server_steps: float | Tensor, mean_gradient: Tensor | None = None) -> None:
        self.lr = lr
        self.server_steps = server_steps
        self.mean_gradient = mean_gradient

    def before(self, memory: Memory, server: Tensor) -> Tensor:
        """c − c_k, with c_k = 0 in a silo's first round; zero if all silos are in theirs."""
        if self.mean_gradient is not None:
            memory["term"] = self.mean_gradient - memory.pop("own", 0.0)
        elif memory:
            mean_of_all = (memory.pop("server") - server).div_(self.server_steps * self.lr)
            memory["term"] = mean_of_all.sub_(memory.pop("own"))
        else:
            memory["term"] = torch.zeros_like(server)
        return memory["term"]

    def after(self, memory: Memory, server: Tensor, local: Tensor, steps: int) -> None:
        """Remember where the round began, and c_k."""
        self.remember(memory, server.clone(), (server - local).div_(steps * self.lr).sub_(memory["term"]))

    def remember(self, memory: Memory, server: Tensor, own: Tensor) -> None:
        """Remember where the round began, and c_k, the mean of the silo's gradients along its steps."""
        memory.clear()
        memory["server"], memory["own"] = server, own


class FedDynCorrection:
    """FedDyn's running gradient g_k of the silo's regularised loss."""

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha

    def before(self, memory: Memory, server: Tensor) -> Tensor:
        """−g_k."""
        memory.setdefault("g", torch.zeros_like(server))
        return -memory["g"]

    def after(self, memory: Memory, server: Tensor, local: Tensor, steps: int) -> None:
        """g_k ← g_k − α·(w_k − w)."""
        memory["g"] = memory["g"] - self.alpha * (local - server)
