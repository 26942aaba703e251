"""FedAvg: average what the silos learnt (McMahan et al., 2017)."""

from dataclasses import dataclass
from typing import ClassVar

from fedtct.federation import Federation, Replies
from fedtct.history import State
from fedtct.stage1.base import Stage1


@dataclass(frozen=True)
class FedAvg(Stage1):
    """Every silo trains from the server's weights; the server averages the results, weighted by samples.

    BatchNorm's running statistics are averaged like weights. For the settings, see :class:`~fedtct.Stage1`.

    >>> import torch
    >>> import fedtct
    >>> x, y = torch.eye(6).repeat(20, 1), torch.arange(6).repeat(20) // 2
    >>> silos = [fedtct.Silo(x[y == k], y[y == k]) for k in range(3)]
    >>> fit = fedtct.FedAvg("linear", rounds=30).fit(silos)
    >>> fit.model.predict(torch.eye(6))
    tensor([0, 0, 1, 1, 2, 2])
    """

    takes_noise: ClassVar[bool] = True

    def round(self, federation: Federation, state: State, number: int) -> tuple[State, Replies]:
        """w ← Σ (n_k/n)·w_k."""
        replies = federation.ask("train", self.question(state, number))
        return {"parameters": replies.average("parameters"), "buffers": replies.average("buffers")}, replies
