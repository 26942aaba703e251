"""What a user sees while runs go: a bar a stage on a terminal, a line now and then elsewhere, nothing with --json."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedtct.runs.watcher import Watcher

if TYPE_CHECKING:
    from fedtct.history import Row

SECONDS_BETWEEN_LINES = 10.0
Item = TypeVar("Item")
RATING = ("describe", "evaluate", "rate", "assess", "calibrate")  # questions that belong to no round of their own
TITLES = {"test": "test", "holdout": "held-out", "train": "train"}  # history.RATED_ON where there is little room
WIDE = 130  # columns of a terminal: in fewer, bars show one accuracy, and no time but what is left
OTHERS = {True: 92, False: 50}  # columns that all but the title of a bar takes, in a wide terminal and in others
DOING = {"stage1": "stage 1", "stage2": "stage 2", "alone": "each silo alone"}  # what bars and lines say is done now


class Screen:
    """Shows runs on stderr, so that stdout is left to results."""

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet, highlight=False)
        wide = self.console.width >= WIDE
        self._room = max(12, self.console.width - OTHERS[wide])
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[rounds]}", justify="right"),
            TextColumn("{task.fields[accuracy]}" if wide else "{task.fields[rating]}"),
            *([TimeElapsedColumn()] if wide else []),
            TextColumn("{task.fields[left]}"),
            TimeRemainingColumn(),
            console=self.console,
            disable=quiet or not self.console.is_terminal,
        )
        self._waiting: TaskID | None = None
        self._runs, self._total, self._all = 0, 1, TaskID(-1)

    def __enter__(self) -> Screen:
        self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.done_waiting()
        self.bars.stop()

    def say(self, text: str) -> None:
        """A message."""
        self.console.print(text, markup=False, soft_wrap=True)

    def expect(self, runs: int) -> None:
        """Several runs are to come: show how many of them are over."""
        self._total = runs

    def wait(self, doing: str) -> None:
        """Say what is done now, if nobody can tell how long it takes; the next thing that is shown takes its place."""
        self.done_waiting()
        self._waiting = self._add(doing, None)

    def done_waiting(self) -> None:
        """What was waited for is over."""
        if self._waiting is not None:
            self.bars.remove_task(self._waiting)
            self._waiting = None

    def _count(self) -> None:
        """A run begins: those before it are over."""
        if self._total > 1 and not self._runs:
            self._all = self._add("all runs", self._total)
        if self._all in self.bars.task_ids:
            self.bars.update(self._all, completed=self._runs, rounds=f"{self._runs}/{self._total} runs")
        self._runs += 1

    def show_bar(self, title: str, total: int, done: int) -> TaskID:
        """A new bar, below those that are there."""
        self.done_waiting()
        return self._add(title, total, done)

    def _add(self, title: str, total: int | None, done: int = 0) -> TaskID:
        """A bar; of a title that is too long the middle is left out, because its end says what is done now."""
        end = 2 * self._room // 3
        short = title if len(title) <= self._room else f"{title[: self._room - 1 - end]}…{title[-end:]}"
        texts: dict[str, Any] = dict.fromkeys(("rounds", "accuracy", "rating"), "")
        texts |= {"title": title, "left": "" if total is None else "left"}
        return self.bars.add_task(short, total=total, completed=done, **texts)

    def track(self, items: Sequence[Item], doing: str) -> Iterator[Item]:
        """Go through some items and show how far it is."""
        bar = self.show_bar(doing, len(items), 0)
        for number, item in enumerate(items, 1):
            yield item
            self.bars.update(bar, completed=number, rounds=f"{number}/{len(items)}")

    def count(self, doing: str) -> Callable[[int, int], None]:
        """Someone to tell how many of how many are done: a bar on a terminal, a line now and then elsewhere."""
        started = time.monotonic()
        next_line, bar = started + SECONDS_BETWEEN_LINES, None

        def tell(done: int, total: int) -> None:
            nonlocal next_line, bar
            bar = self.show_bar(doing, total, done) if bar is None else bar
            self.bars.update(bar, completed=done, rounds=f"{done:,}/{total:,}")
            now = time.monotonic()
            if not self.console.is_terminal and now > next_line and done < total:
                left = f"  about {duration((now - started) / done * (total - done))} left" if done else ""
                self.say(f"{doing}  {done:,} of {total:,}{left}")
                next_line = now + SECONDS_BETWEEN_LINES

        return tell

    def watch(self, name: str) -> Watcher:
        """Someone who shows a run here; of the run before, a line is left."""
        if rated := [task for task in self.bars.tasks if task.fields["accuracy"]]:
            self.say(f"{rated[-1].fields['title']}  {rated[-1].fields['accuracy']}")
        for task in self.bars.task_ids:
            if task not in (self._waiting, self._all):
                self.bars.remove_task(task)
        self._count()
        if self.console.quiet:
            return Watcher()
        return _Bars(self, name) if self.console.is_terminal else _Lines(self, name)


class _Shown(Watcher):
    """Shows what is counted as the screen does."""

    def __init__(self, screen: Screen, name: str) -> None:
        self.screen, self.name = screen, name
        self.counting: dict[str, Callable[[int, int], None]] = {}

    def count(self, doing: str, done: int, total: int) -> None:
        self.counting.setdefault(doing, self.screen.count(f"{self.name}  {doing}"))(done, total)

    def say(self, text: str) -> None:
        self.screen.say(f"{self.name}  {text}")


class _Lines(_Shown):
    """A line when a stage begins and ends, and every few seconds in between."""

    def __init__(self, screen: Screen, name: str) -> None:
        super().__init__(screen, name)
        self.stage, self.rounds, self.first, self.done = "", 0, 0, 0
        self.started = self.next_line = 0.0

    def begin(self, stage: str, rounds: int, done: int) -> None:
        self.stage, self.rounds = DOING.get(stage, stage), rounds
        self.first = self.done = done
        self.started = time.monotonic()
        self.next_line = self.started + SECONDS_BETWEEN_LINES

    def reply(self, question: str, done: int, total: int) -> None:
        if question not in RATING and time.monotonic() > self.next_line:
            now = f"round {min(self.done + 1, self.rounds)} of {self.rounds}"
            self._say(now, f"silo {done} of {total}", self._left())

    def record(self, row: Row) -> None:
        self.done = min(row.round + 1, self.rounds)  # a row is complete when the next round has been asked for
        if row.round == self.rounds or time.monotonic() > self.next_line:
            self._say(f"round {row.round} of {self.rounds}", accuracies(row), self._left())

    def _left(self) -> str:
        done, missing = self.done - self.first, self.rounds - self.done
        return f"about {duration((time.monotonic() - self.started) / done * missing)} left" if done and missing else ""

    def _say(self, *parts: str) -> None:
        self.next_line = time.monotonic() + SECONDS_BETWEEN_LINES
        self.screen.say("  ".join(part for part in (self.name, self.stage, *parts) if part))


class _Bars(_Shown):
    """A bar a stage, that moves with every silo's reply."""

    def __init__(self, screen: Screen, name: str) -> None:
        super().__init__(screen, name)
        self.bars = screen.bars
        self.task = TaskID(0)
        self.rounds, self.done, self.silos = 0, 0.0, ""

    def begin(self, stage: str, rounds: int, done: int) -> None:
        self.rounds, self.done, self.silos = rounds, float(done), ""
        self.task = self.screen.show_bar(f"{self.name}  {DOING.get(stage, stage)}", rounds, done)
        self._show()

    def reply(self, question: str, done: int, total: int) -> None:
        if self.rounds and question not in RATING:
            self.done += 1 / total
            self.silos = f"{done}/{total} silos" if self.rounds == 1 else ""
            self._show()

    def record(self, row: Row) -> None:
        self.done = float(min(row.round + 1, self.rounds))  # counting replies went there bit by bit
        self._show(row)

    def _show(self, row: Row | None = None) -> None:
        done = min(self.done, self.rounds)
        self.bars.update(self.task, completed=done, rounds=self.silos or f"{int(done + 1e-6)}/{self.rounds} rounds")
        if row is not None and (text := accuracies(row)):
            self.bars.update(self.task, accuracy=text, rating=text.partition("  ")[0])


def accuracies(row: Row) -> str:
    """The accuracies of a row, or R² of a regression, as far as there are any."""
    found = {name: value for of, name in TITLES.items() if (value := row.rating(of)) is not None}
    return "  ".join(f"{name} {f'R² {v:.3f}' if row.regression else percent(v)}" for name, v in found.items())


def duration(seconds: float) -> str:
    """How long something takes, as people say it."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def percent(share: float | None) -> str:
    """A share as people read it: what is there at all is not shown as none."""
    if share is None:
        return "-"
    return "<0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"
