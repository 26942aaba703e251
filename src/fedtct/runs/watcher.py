"""The interface for whoever follows a run, such as a progress bar."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedtct.history import Row


class Watcher:
    """Is told what happens in a run; this one ignores it."""

    def begin(self, stage: str, rounds: int, done: int) -> None:
        """A stage begins, or goes on."""

    def reply(self, question: str, done: int, total: int) -> None:
        """A silo has replied."""

    def count(self, doing: str, done: int, total: int) -> None:
        """Work besides rounds, such as reading data or rating a model, is so far."""

    def say(self, text: str) -> None:
        """A line for people: what the run is about to do, or what went wrong without ending it."""

    def record(self, row: Row) -> None:
        """A row is complete."""
