"""What tests of the runner share."""

import math

import pytest

from fedtct.stage1 import FedAvg


def let_jump(monkeypatch: pytest.MonkeyPatch, lr: float, last: int) -> None:
    """FedAvg at this learning rate has weights that are no numbers after so many rounds."""
    train_round = FedAvg.round

    def jump(self, federation, state, number):
        after, replies = train_round(self, federation, state, number)
        jumps = self.lr == lr and number + 1 == last
        return (after | {"parameters": after["parameters"] * math.nan} if jumps else after), replies

    monkeypatch.setattr(FedAvg, "round", jump)
