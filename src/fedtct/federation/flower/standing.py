"""Where a run over a grid stands, and which of its rounds a silo's memory may be of."""

import torch
from torch import Tensor

from fedtct.errors import FedtctError


class Standing:
    """Rounds are counted as long as a run lasts, over both stages."""

    def __init__(self) -> None:
        self.position = 0  # rounds so far
        self.since = 0  # what silos remember of rounds before this one no longer holds
        self.counted: dict[str, int] = {}  # the last round that a silo took part in

    def last(self) -> dict[str, int]:
        """The round that each silo goes on from; who is not in it begins from nothing."""
        return {silo: position for silo, position in self.counted.items() if position >= self.since}

    def move_on(self, present: set[str], forgot: set[str], correction: str) -> None:
        """SCAFFOLD's corrections sum to zero over those who made them: when one is missing or lost, all begin anew."""
        if forgot and correction == "feddyn":
            raise FedtctError(
                f"{min(forgot)} has lost its part of FedDyn's sum of gradients: its cache was removed or damaged. "
                "Put the cache back and resume the run, or begin a new one"
            )
        before = {name for name, position in self.counted.items() if position == self.position - 1}
        self.counted |= dict.fromkeys(present, self.position)
        self.position += 1
        if correction == "scaffold" and (before - present or forgot):
            self.since = self.position

    def snapshot(self) -> dict[str, Tensor]:
        """All of it, for a checkpoint."""
        numbers = {"position": self.position, "since": self.since}
        return as_tensors(numbers | {f"counted/{name}": position for name, position in self.counted.items()})

    def restore(self, snapshot: dict[str, Tensor]) -> None:
        """Go on after a snapshot; an empty one means that nothing is remembered."""
        self.position = int(snapshot.get("position", self.position))
        self.since = int(snapshot.get("since", self.position))
        self.counted = under("counted/", snapshot)


def as_tensors(values: dict[str, int]) -> dict[str, Tensor]:
    """Numbers as checkpoints hold them."""
    return {key: torch.tensor(value) for key, value in values.items()}


def under(prefix: str, snapshot: dict[str, Tensor]) -> dict[str, int]:
    """The numbers of a checkpoint whose names begin so, without that beginning."""
    return {key.removeprefix(prefix): int(value) for key, value in snapshot.items() if key.startswith(prefix)}
