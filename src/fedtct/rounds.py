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
    """The settings of a method that the loop over rounds needs."""

    @property
    def rounds(self) -> int:
        """How many rounds there are."""

    @property
    def evaluate_every(self) -> int:
        """Silos rate the model every so many rounds."""

    @property
    def patience(self) -> int | None:
        """How many rounds may pass without a better score; none: any number."""


@dataclass
class Rounds(ABC):
    """All rounds of a method in a session."""

    method: Paced
    session: Session
    name: ClassVar[str]

    @abstractmethod
    def round(self, state: State, number: int) -> tuple[State, Replies]:
        """The state that a round leads to, and silos' replies, with their ratings of the state that it began from."""

    @abstractmethod
    def evaluate(self, state: State) -> Replies | None:
        """Silos' ratings of a state, asked for without a round."""

    @abstractmethod
    def test(self, state: State) -> Score | None:
        """How good a state is on the test data, if there is any."""

    def run(self, state: State) -> State:
        """Run all rounds, from the last checkpoint if there is one.

        Silos rate a model when they receive it, so row r is complete once round r + 1 has been asked for: it describes
        the model after r rounds, with the cost of the r-th. Rating costs no message of its own, except after the last
        round. If rounds stop early, the last row has the cost of two rounds: its own, and the one that rated its model.
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
        """Run a round, which also rates the state it begins from; if the stage stops then, return to the best state."""
        state, replies = self.round(at.state, at.round)
        rated = at.round % self.method.evaluate_every == 0
        row = self._row(at, replies, self.test(at.state) if rated else None)
        stopping = EarlyStopping(self.method.patience, at.best)
        if rated:
            stopping.judge(at, row)
        if row.diverged:
            warnings.warn(f"{self.name} diverged by round {at.round}: stopped there. Lower lr.", stacklevel=3)
        if row.diverged or (rated and stopping.due):
            # The state that this round led to is thrown away, but its bytes were sent.
            self.session.journal.record(replace(row, **vars(at.cost + replies.cost)))
            return _finished(at, stopping)
        self.session.journal.record(row)
        return Checkpoint(at.round + 1, state, replies.cost, self.session.federation.snapshot(), stopping.best)

    def _last_rating(self, at: Checkpoint) -> Checkpoint:
        """Ask silos to rate the last state, which no later round does."""
        row = self._row(at, self.evaluate(at.state), self.test(at.state))
        self.session.journal.record(row)
        if row.diverged:
            warnings.warn(f"{self.name} diverged by round {at.round}. Lower lr.", stacklevel=3)
        stopping = EarlyStopping(self.method.patience, at.best)
        stopping.judge(at, row)
        return _finished(at, stopping)

    def _row(self, at: Checkpoint, replies: Replies | None, test: Score | None) -> Row:
        return Row.of(self.name, at.round, at.cost, self.session.spec.task, replies, test)


def checked_round(method: object, found: object, names: Iterable[str]) -> tuple[State, Replies]:
    """The new state and the replies that a method's round returned; refused if it lacks what it must hold."""
    if not isinstance(found, tuple) or len(found) != 2:
        who = type(method).__name__
        raise FedtctError(f"{who}.round must return a pair: the new state and the replies")
    averages = " and ".join(f"replies.average('{name}')" for name in names)
    check_state(method, "round", found[0], names, f"{averages}, say")
    return found


def check_state(method: object, made_by: str, state: State, names: Iterable[str], advice: str) -> None:
    """Refuse a state that lacks some of its weights: that they stay as they were would be a silent mistake."""
    for name in names:
        if name not in state:
            where = f"{type(method).__name__}.{made_by}"
            raise FedtctError(f"{where} returns a state without '{name}': it needs {advice}")


def _finished(at: Checkpoint, stopping: EarlyStopping) -> Checkpoint:
    return replace(at, state=stopping.best.get("state", at.state), silos={}, best={}, finished=True)
