"""Ctrl-C: a run stops, stays as it is and can be gone on with."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from fedtct.cli.screen import Screen

INTERRUPTED = 130


@contextmanager
def stoppable(screen: Screen, folder: Path | None, go_on: str) -> Iterator[None]:
    """After Ctrl-C, say which command goes on; if nothing was written yet to the folder, say that."""
    try:
        yield
    except KeyboardInterrupt:
        how = f"go on with `{go_on}`" if folder is None or folder.exists() else "nothing was written"
        screen.bars.stop()
        screen.console.quiet = False
        screen.say(f"fedtct: stopped; {how}")
        raise typer.Exit(INTERRUPTED) from None
