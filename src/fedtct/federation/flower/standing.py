"""Where a run over a grid stands, and from which of its rounds each silo's memory is."""

import torch
from torch import Tensor

from fedtct.errors import FedtctError


class Standing:
    """Counts rounds over both stages of a run, and keeps each silo's last one."""

    def __init__(self) -> None:
        self.position = 0  # rounds so far
        self.since = 0  # memory of rounds before this one is no longer valid
        self.counted: dict[str, int] = {}  # the last round that a silo took part in

    def last(self) -> dict[str, int]:
        """The round whose memory each silo goes on from; silos that are not in it begin from nothing."""
        return {silo: position for silo, position in self.counted.items() if position >= self.since}

    def move_on(self, present: set[str], forgot: set[str], correction: str) -> None:
        """Count a round, which these silos took part in, and of which some ``forgot`` their memory.

        SCAFFOLD's corrections sum to zero over the silos that made them: if one is missing or lost, all begin anew.
        """
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
    """Whole numbers in the form that checkpoints hold."""
    return {key: torch.tensor(value) for key, value in values.items()}


def under(prefix: str, snapshot: dict[str, Tensor]) -> dict[str, int]:
    """The numbers of a checkpoint whose names have this prefix, by their names without it."""
    return {key.removeprefix(prefix): int(value) for key, value in snapshot.items() if key.startswith(prefix)}
