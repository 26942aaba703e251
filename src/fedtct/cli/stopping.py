"""Ctrl-C: a run stops, stays as it is and can be gone on with."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from fedtct.cli.screen import Screen
from fedtct.errors import FedtctError

INTERRUPTED = 130


@contextmanager
def stoppable(screen: Screen, folder: Path | None, go_on: str) -> Iterator[None]:
    """After Ctrl-C, or when the disk is full, say which command goes on; if nothing was written yet, say that."""
    try:
        yield
    except KeyboardInterrupt:
        screen.bars.stop()
        screen.console.quiet = False
        screen.say(f"fedtct: stopped; {_how(folder, go_on)}")
        raise typer.Exit(INTERRUPTED) from None
    except OSError as error:
        if not (reason := reason_of(error)):
            raise
        raise FedtctError(f"{reason}; {_how(folder, go_on, 'nothing was started')}") from error


def _how(folder: Path | None, go_on: str, else_: str = "nothing was started: type the same command again") -> str:
    begun = folder is None or (folder.is_dir() and any(folder.iterdir()))
    return f"resume with `{go_on}`" if begun else else_


def reason_of(error: OSError) -> str:
    """What the system would not do, in words; empty if the error is a program's own."""
    if error.errno is None or isinstance(error, BrokenPipeError):
        return ""
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror}"
