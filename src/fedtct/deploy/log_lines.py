"""A run's progress as lines of the server's log: the app writes them, the command that follows the run reads them."""

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fedtct.errors import one_line
from fedtct.files import strict
from fedtct.history import Row, as_plain
from fedtct.remarks import each_once
from fedtct.runs.watcher import Watcher

SAYS, EVENT = "fedtct: ", "fedtct> "


def say(text: str) -> None:
    """Write a line for people. It may hold silos' words, which must not pass for lines of their own."""
    print(SAYS + one_line(text), flush=True)


@contextmanager
def warnings_said(say: Callable[[str], None]) -> Iterator[None]:
    """While this lasts, warnings are said, each once: Python would write them where nobody looks."""
    with warnings.catch_warnings():
        warnings.showwarning = each_once(say)
        yield


class Speaker(Watcher):
    """Writes what it is told to the log, for a watcher on the other side."""

    def begin(self, stage: str, rounds: int, done: int) -> None:
        """A stage begins."""
        _write("begin", stage, rounds, done)

    def reply(self, question: str, done: int, total: int) -> None:
        """A silo has replied."""
        _write("reply", question, done, total)

    def say(self, text: str) -> None:
        """A line for people."""
        say(text)

    def record(self, row: Row) -> None:
        """A row is complete; its entries for single silos, who may be many, are left out."""
        plain = strict(as_plain(row))
        _write("record", {name: value for name, value in plain.items() if not isinstance(value, list)})


def hear(line: str, watcher: Watcher) -> bool:
    """Tell a watcher what a line says. Returns whether the line was for a watcher."""
    if not line.startswith(EVENT):
        return False
    try:
        what, *told = json.loads(line.removeprefix(EVENT))
    except ValueError:  # Flower cut it in two: the next one tells more
        return True
    if what == "record":
        watcher.record(Row(**told[0]))
    else:
        getattr(watcher, what)(*told)
    return True


def _write(what: str, *told: object) -> None:
    print(EVENT + json.dumps([what, *told]), flush=True)
