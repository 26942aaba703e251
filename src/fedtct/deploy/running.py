"""Whether a silo is running on this machine: the process that the server let in holds a folder until it ends."""

import logging
import os
from contextlib import suppress
from pathlib import Path

from fedtct.errors import FedtctError
from fedtct.runs.lock import hold, release

LET_IN = "SuperNode ID"  # how Flower's log says that it was let in
PROCESS = "running"  # a file with the id of that process
LOOK_SECONDS = 5.0  # for other processes, which hold the folder only to look


class Entrance(logging.Handler):
    """Hears Flower say that this process was let in, and holds the silo's folder from then on."""

    def __init__(self, home: Path) -> None:
        super().__init__()
        self.home = home

    def emit(self, record: logging.LogRecord) -> None:
        """One line of Flower's log."""
        if record.getMessage().startswith(LET_IN):
            with suppress(FedtctError, OSError):  # only those who look need it: no reason to end
                hold(self.home, LOOK_SECONDS)
                (self.home / PROCESS).write_text(str(os.getppid()))  # the command: whoever ends it ends all


def process_of(home: Path, seconds: float = 0.0) -> str:
    """The id of the process that runs the silo; empty if there is none, or if it ends within so many seconds."""
    if not (home / PROCESS).is_file():
        return ""
    try:
        hold(home, seconds)
    except FedtctError:
        return (home / PROCESS).read_text()
    release(home)
    return ""
