"""The loop over rounds, which both stages share."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from fedtct.early_stopping import EarlyStopping
from fedtct.errors import FedtctError
from fedtct.federation import Replies
from fedtct.history import Checkpoint, Row, State
from fedtct.session import Session
from fedtct.tasks import Score


class Paced(Protocol):
    """A method's settings that the loop goes by."""

    @property
    def rounds(self) -> int:
        """How many there are."""

    @property
    def evaluate_every(self) -> int:
        """After how many of them silos rate."""

    @property
    def patience(self) -> int | None:
        """How many of them may pass without a better score."""


@dataclass
class Rounds(ABC):
    """A method's rounds in a session."""

    method: Paced
    session: Session
    name: ClassVar[str]

    @abstractmethod
    def round(self, state: State, number: int) -> tuple[State, Replies]:
        """Where a round leads, and what silos replied, with their ratings of where it began."""

    @abstractmethod
    def evaluate(self, state: State) -> Replies | None:
        """What silos say about a state, without a round."""

    @abstractmethod
    def test(self, state: State) -> Score | None:
        """How good a state is on the test data, if there is any."""

    def run(self, state: State) -> State:
        """Run all rounds, from the last checkpoint if there is one.

        Silos rate a model when they receive it, so row r is complete once round r + 1 has been asked for: it describes
        the model after r rounds, with the cost of the r-th. Rating costs no message of its own, except after the last
        round. If rounds stop early, the last row has the cost of two: the one after it rated the model, no more.
        """
        journal = self.session.journal
        at = journal.restore(self.name) or Checkpoint(0, state)
        if at.finished:
            return at.state
        self.session.federation.restore(at.silos)
        journal.begin(self.name, self.method.rounds, at.round)
        while not at.finished:
            at = self._next_round(at) if at.round < self.method.rounds else self._last_rating(at)
            journal.save(self.name, at)
        return at.state

    def _next_round(self, at: Checkpoint) -> Checkpoint:
        """Where a round leads from a state that it rates; if the stage stops, to the best state so far."""
        state, replies = self.round(at.state, at.round)
        rated = at.round % self.method.evaluate_every == 0
        row = self._row(at, replies, self.test(at.state) if rated else None)
        stopping = EarlyStopping(self.method.patience, at.best)
        if rated:
            stopping.judge(at, row)
        if row.diverged:
            warnings.warn(f"{self.name} diverged after {at.round} rounds: stopped there. Lower lr.", stacklevel=3)
        if row.diverged or (rated and stopping.due):
            # Where this round led is thrown away, but what it sent was sent.
            self.session.journal.record(replace(row, **vars(at.cost + replies.cost)))
            return _finished(at, stopping)
        self.session.journal.record(row)
        return Checkpoint(at.round + 1, state, replies.cost, self.session.federation.snapshot(), stopping.best)

    def _last_rating(self, at: Checkpoint) -> Checkpoint:
        """No round is left that would rate the last state: silos are asked for that alone."""
        row = self._row(at, self.evaluate(at.state), self.test(at.state))
        self.session.journal.record(row)
        if row.diverged:
            warnings.warn(f"{self.name} diverged after {at.round} rounds. Lower lr.", stacklevel=3)
        stopping = EarlyStopping(self.method.patience, at.best)
        stopping.judge(at, row)
        return _finished(at, stopping)

    def _row(self, at: Checkpoint, replies: Replies | None, test: Score | None) -> Row:
        return Row.of(self.name, at.round, at.cost, self.session.spec.task, replies, test)


def checked_round(method: object, found: object, names: Iterable[str]) -> tuple[State, Replies]:
    """What a round of a method gave, whoever wrote it: the new state, with what must be in it, and the replies."""
    if not isinstance(found, tuple) or len(found) != 2:
        who = type(method).__name__
        raise FedtctError(f"{who}.round returns no pair: it needs the new state and the replies")
    averages = " and ".join(f"replies.average('{name}')" for name in names)
    check_state(method, "round", found[0], names, f"{averages}, say")
    return found


def check_state(method: object, made_by: str, state: State, names: Iterable[str], advice: str) -> None:
    """Weights that are left out do not stay as they were: nobody wants running statistics of no data by mistake."""
    for name in names:
        if name not in state:
            where = f"{type(method).__name__}.{made_by}"
            raise FedtctError(f"{where} returns a state without '{name}': it needs {advice}")


def _finished(at: Checkpoint, stopping: EarlyStopping) -> Checkpoint:
    return replace(at, state=stopping.best.get("state", at.state), silos={}, best={}, finished=True)
