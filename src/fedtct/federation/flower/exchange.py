"""When a round over a grid counts, and what came of asking some of its silos."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fedtct.errors import FedtctError, one_line
from fedtct.questions import Message

MOST_SAID = 1000  # letters of what a silo says went wrong


@dataclass(frozen=True)
class Terms:
    """When a round counts: how many silos it needs, and how many seconds it waits at most."""

    silos: int = 1  # how many a run waits for at its start
    min_silos: int = 1  # how many must answer for a round to count
    round_timeout: float = 600.0  # seconds for a silo to answer
    wait: float = 600.0  # seconds for missing silos to come, or to come back
    grace: float | None = None  # seconds for the others once min_silos have answered; none: all of round_timeout
    fp16: bool = False  # whether weights travel as float16 in rounds

    def __post_init__(self) -> None:
        if not 1 <= self.min_silos <= self.silos:
            raise FedtctError(f"min_silos must be from 1 to the number of silos, {self.silos}: it is {self.min_silos}")
        if self.round_timeout <= 0 or self.wait < 0 or (self.grace is not None and self.grace < 0):
            raise FedtctError("round_timeout must be positive, wait and grace not negative")


@dataclass
class Exchange:
    """What came of a question, by silo: its reply or why there is none, and bytes down and up."""

    question: str  # what was asked; others may have been asked on its behalf, to prepare silos
    replies: dict[str, Message] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    stated: dict[str, str] = field(default_factory=dict)  # those of the failures that the silo itself states
    cannot: set[int] = field(default_factory=set)  # the nodes of those silos
    unprepared: set[str] = field(default_factory=set)  # silos that must first be told what the question is about
    forgot: set[str] = field(default_factory=set)  # silos that replied, but lost their memory and began from nothing
    down: dict[str, int] = field(default_factory=dict)
    up: dict[str, int] = field(default_factory=dict)

    def fail(self, silo: str, reason: str, node: int | None = None) -> str:
        """Record why a silo does not answer; ``node`` is given if the silo itself states it. Returns it in words."""
        reason = one_line(reason.removeprefix(f"{silo}: "), MOST_SAID).rstrip(".")  # sentences go on after it
        self.failures[silo] = reason
        if node is not None:
            self.stated[silo] = reason
            self.cannot.add(node)
        return f"{silo} did not answer '{self.question}': {reason}"

    def then(self, later: "Exchange") -> "Exchange":
        """Both exchanges as one; a silo that answered in either has not failed.

        Nobody is unprepared in it: whoever was has been told and asked again, and has answered or failed.
        """
        replies = self.replies | later.replies
        return Exchange(
            self.question,
            replies=replies,
            failures={k: v for k, v in (self.failures | later.failures).items() if k not in replies},
            stated=self.stated | later.stated,
            cannot=self.cannot | later.cannot,
            forgot=self.forgot | later.forgot,
            down=_add(self.down, later.down),
            up=_add(self.up, later.up),
        )

    def without_replies(self) -> "Exchange":
        """What it cost and who failed, without the answers."""
        return replace(self, replies={})


def _add(one: Mapping[str, int], two: Mapping[str, int]) -> dict[str, int]:
    return dict(one) | {name: one.get(name, 0) + size for name, size in two.items()}
