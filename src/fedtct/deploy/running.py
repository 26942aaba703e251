"""Whether a silo is running on this machine: the one process that the server let in holds a folder, until it ends."""

import logging
import os
from contextlib import suppress
from pathlib import Path

from fedtct.errors import FedtctError
from fedtct.runs.lock import hold, release

LET_IN = "SuperNode ID"  # what Flower logs then
PROCESS = "running"  # whose folder it is
LOOK_SECONDS = 5.0  # for others who only look


class Entrance(logging.Handler):
    """Hears Flower say that this process was let in, and holds the silo's folder from then on."""

    def __init__(self, home: Path) -> None:
        super().__init__()
        self.home = home

    def emit(self, record: logging.LogRecord) -> None:
        """One line of Flower's log."""
        if record.getMessage().startswith(LET_IN):
            with suppress(FedtctError, OSError):  # it is for those who look, and nothing to end for
                hold(self.home, LOOK_SECONDS)
                (self.home / PROCESS).write_text(str(os.getppid()))  # the command that one ends to end it all


def process_of(home: Path, seconds: float = 0.0) -> str:
    """The number of the process that runs the silo; empty if none does, or it ends within so many seconds."""
    if not (home / PROCESS).is_file():
        return ""
    try:
        hold(home, seconds)
    except FedtctError:
        return (home / PROCESS).read_text()
    release(home)
    return ""
