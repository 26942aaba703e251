"""Ctrl-C: a run stops, stays as it is and can be gone on with."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from fedtct.cli.screen import Screen

INTERRUPTED = 130


@contextmanager
def stoppable(screen: Screen, folder: Path, command: str) -> Iterator[None]:
    """Say how to go on after Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        how = f"go on with `{command} --resume {folder}`" if folder.exists() else "nothing was written"
        screen.console.quiet = False
        screen.say(f"fedtct: stopped; {how}")
        raise typer.Exit(INTERRUPTED) from None
