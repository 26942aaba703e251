"""Someone who looks on as a run goes, a progress bar for example."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedtct.history import Row


class Watcher:
    """Is told what happens; this one takes no notice."""

    def begin(self, stage: str, rounds: int, done: int) -> None:
        """A stage begins, or goes on."""

    def reply(self, question: str, done: int, total: int) -> None:
        """A silo has replied."""

    def count(self, doing: str, done: int, total: int) -> None:
        """Something besides rounds is so far: reading data, or looking at what came out."""

    def say(self, text: str) -> None:
        """A line for people: what a run is about to do, or what went wrong without ending it."""

    def record(self, row: Row) -> None:
        """A row is complete."""
