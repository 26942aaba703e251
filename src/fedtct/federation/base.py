"""Ask every silo a question and collect the replies: algorithms know no more of silos, wherever these are."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from fedtct.errors import FedtctError, quoted
from fedtct.models import NetworkSpec
from fedtct.questions import Message
from fedtct.tasks import Score


@dataclass(frozen=True)
class Cost:
    """What a round took: bytes of the mean silo, seconds, and the names and bytes of the silos that answered.

    The mean is over all silos, those that did not take part included: so it adds up over rounds.
    """

    bytes_down: int = 0
    bytes_up: int = 0
    seconds: float = 0.0
    silos: tuple[str, ...] = ()
    silo_bytes_down: tuple[int, ...] = ()
    silo_bytes_up: tuple[int, ...] = ()

    @classmethod
    def of(cls, down: Mapping[str, int], up: Mapping[str, int], seconds: float, silos: int) -> "Cost":
        """The cost of a round from the bytes of those who answered, of so many silos."""
        ways = (tuple(down[name] for name in up), tuple(up.values()))
        return cls(sum(ways[0]) // max(1, silos), sum(ways[1]) // max(1, silos), seconds, tuple(up), *ways)

    def __add__(self, other: "Cost") -> "Cost":
        """What two exchanges took together."""
        down, up = Counter[str](), Counter[str]()
        for cost in (self, other):
            down.update(dict(zip(cost.silos, cost.silo_bytes_down, strict=True)))
            up.update(dict(zip(cost.silos, cost.silo_bytes_up, strict=True)))
        mean = (self.bytes_down + other.bytes_down, self.bytes_up + other.bytes_up)
        return Cost(*mean, self.seconds + other.seconds, tuple(up), tuple(down.values()), tuple(up.values()))


@dataclass(frozen=True)
class Replies:
    """What the silos answered, in the order of the silos, and what it cost.

    ``total`` counts the samples of all silos, including those that were not asked or did not answer. If all answered,
    it may be None.
    """

    messages: list[Message]
    cost: Cost
    total: int | None = None

    def values(self, key: str) -> list[Any]:
        """The entry of this name in every reply."""
        if lacking := [message for message in self.messages if key not in message]:
            raise FedtctError(f"replies have no '{key}': they have {quoted(lacking[0])}")
        return [message[key] for message in self.messages]

    def weights(self) -> list[float]:
        """Each silo's share of the samples."""
        counts = self.values("n")
        return [n / sum(counts) for n in counts]

    def share(self, federation: "Federation") -> float:
        """The share of all samples that belongs to the silos that replied: 1 if everybody did."""
        if not self.total and len(self.messages) < len(federation):
            raise FedtctError(
                f"{len(self.messages)} of {len(federation)} silos replied, and their share of all samples is "
                "not known: a federation that asks only some silos must give Replies the total"
            )
        return sum(self.values("n")) / self.total if self.total else 1.0

    def average(self, key: str) -> Tensor:
        """The mean of a tensor over silos, weighted by their samples."""
        return weighted_sum(self.weights(), self.values(key))

    def scores(self, prefix: str = "") -> list[Score] | None:
        """How each silo rates the model it was sent; none if it was not asked to."""
        if f"{prefix}samples" not in self.messages[0]:
            return None
        return [Score(*(m.get(prefix + field, 0) for field in Score._fields)) for m in self.messages]


def weighted_sum(weights: list[float], tensors: list[Tensor]) -> Tensor:
    """Σ weight·tensor."""
    total = tensors[0] * weights[0]
    for weight, tensor in zip(weights[1:], tensors[1:], strict=True):
        total.add_(tensor, alpha=weight)
    return total


class Federation(ABC):
    """The silos of a run, which answer questions."""

    begins_anew: ClassVar[bool] = False  # whether SCAFFOLD's corrections begin anew when a silo misses a round
    per_round: int | None = None  # how many silos, drawn anew for each round, train in it; none: all of them
    on_reply: Callable[[str, int, int], None] | None = None  # called with the question, replies so far, silos asked

    @abstractmethod
    def __len__(self) -> int:
        """How many silos there are."""

    def names(self) -> list[str]:
        """What the silos are called, in their order."""
        return [f"silo {index}" for index in range(len(self))]

    def expect(self, silos: Mapping[str, int]) -> None:  # noqa: B027 (silos of this process are all there)
        """Take these silos, with their numbers of samples, as those the run began with: they keep their places."""

    def leave_out(self, reasons: Mapping[str, str]) -> None:
        """Go on without silos that cannot, for these reasons; by default refused."""
        told = "; ".join(f"{name} cannot continue this run: {reason}" for name, reason in reasons.items())
        raise FedtctError(f"{told}. Use what the run was started with.")

    @abstractmethod
    def use(self, spec: NetworkSpec) -> None:
        """Tell the silos which network they will work with."""

    @abstractmethod
    def ask(self, question: str, message: Message) -> Replies:
        """One round: the question goes to every silo; those that answer, by default all, are in the replies."""

    @abstractmethod
    def snapshot(self) -> dict[str, Tensor]:
        """What silos of this process remember between rounds; empty where they keep it themselves."""

    @abstractmethod
    def restore(self, snapshot: dict[str, Tensor]) -> None:
        """Put back what a snapshot holds."""
