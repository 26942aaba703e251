"""What a user sees while runs go: a bar a stage on a terminal, a line now and then elsewhere, nothing with --json."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn, track

from fedtct.runs.config import RunConfig
from fedtct.runs.watcher import Watcher

if TYPE_CHECKING:
    from fedtct.history import Row

SECONDS_BETWEEN_LINES = 10.0
Item = TypeVar("Item")
RATING = ("describe", "evaluate", "rate", "assess")  # questions that belong to no round of their own
STAGES = {"stage1": "stage 1", "convexify": "convexify", "stage2": "stage 2"}


class Screen:
    """Shows runs on stderr, so that stdout is left to results."""

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet, highlight=False)
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[rounds]}", justify="right"),
            TextColumn("{task.fields[accuracy]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            disable=quiet or not self.console.is_terminal,
        )

    def __enter__(self) -> Screen:
        self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bars.stop()

    def say(self, text: str) -> None:
        """A message."""
        self.console.print(text, markup=False, soft_wrap=True)

    def track(self, items: Sequence[Item], doing: str) -> Iterator[Item]:
        """Go through some items and show how far it is."""
        quiet = self.console.quiet or not self.console.is_terminal
        yield from track(items, doing, console=self.console, transient=True, disable=quiet)

    def watch(self, name: str, config: RunConfig) -> Watcher:
        """Someone who shows a run here; of the run before, a line is left."""
        if self.bars.tasks:
            last = self.bars.tasks[-1]
            self.say(f"{last.description}  {last.fields['accuracy']}")
        for task in self.bars.task_ids:
            self.bars.remove_task(task)
        if self.console.quiet:
            return Watcher()
        return _Bars(self, name) if self.console.is_terminal else _Lines(self, name)


class _Lines(Watcher):
    """A line when a stage begins and ends, and every few seconds in between."""

    def __init__(self, screen: Screen, name: str) -> None:
        self.screen, self.name = screen, name
        self.rounds, self.next_line = 0, 0.0

    def begin(self, stage: str, rounds: int, done: int) -> None:
        self.rounds, self.next_line = rounds, time.monotonic() + SECONDS_BETWEEN_LINES

    def record(self, row: Row) -> None:
        if row.round == self.rounds or time.monotonic() > self.next_line:
            self.next_line = time.monotonic() + SECONDS_BETWEEN_LINES
            accuracy = accuracies(row)
            done = f"{self.name}  {STAGES.get(row.stage, row.stage)}  round {row.round} of {self.rounds}"
            self.screen.say(f"{done}  {accuracy}".rstrip())


class _Bars(Watcher):
    """A bar a stage, that moves with every silo's reply."""

    def __init__(self, screen: Screen, name: str) -> None:
        self.bars, self.name = screen.bars, name
        self.task = TaskID(0)
        self.rounds, self.done = 0, 0.0

    def begin(self, stage: str, rounds: int, done: int) -> None:
        self.rounds, self.done = rounds, float(done)
        title = f"{self.name}  {STAGES.get(stage, stage)}"
        self.task = self.bars.add_task(title, total=rounds, completed=done, rounds="", accuracy="")
        self._show()

    def reply(self, question: str, done: int, total: int) -> None:
        if self.rounds and question not in RATING:
            self.done += 1 / total
            self._show()

    def record(self, row: Row) -> None:
        # A row is complete when the next round has been asked for. Counting replies went there bit by bit.
        self.done = float(min(row.round + 1, self.rounds))
        self._show(row)

    def _show(self, row: Row | None = None) -> None:
        done = min(self.done, self.rounds)
        self.bars.update(self.task, completed=done, rounds=f"{int(done + 1e-6)}/{self.rounds} rounds")
        if row is not None and (text := accuracies(row)):
            self.bars.update(self.task, accuracy=text)


def accuracies(row: Row) -> str:
    """The accuracies of a row, or R² of a regression, as far as there are any."""
    parts = {"test": row.rating("test"), "held-out": row.rating("holdout"), "train": row.rating("train")}
    found = {name: value for name, value in parts.items() if value is not None}
    return "  ".join(f"{name} {f'R² {v:.3f}' if row.regression else percent(v)}" for name, v in found.items())


def percent(share: float | None) -> str:
    """A share as people read it."""
    return "-" if share is None else f"{100 * share:.1f} %"
