"""One process at a time writes to a run folder: a second would mix its rows and checkpoints with the first's."""

import os
import time
from pathlib import Path

from fedtct.errors import FedtctError

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

RETRY_SECONDS = 0.5
_held: dict[tuple[int, int], int] = {}  # this process's open folders, which may have been renamed


def hold(folder: Path, seconds: float = 0.0) -> bool:
    """Keep other processes out of a folder until it is released or this process ends, however it does.

    Waits so many seconds for another process to end. Returns whether the folder was not held by this one already.
    """
    if fcntl is None or _identity(folder) in _held:
        return False
    opened, deadline = os.open(folder, os.O_RDONLY), time.monotonic() + seconds
    while not _locked(opened):
        if time.monotonic() >= deadline:
            os.close(opened)
            raise FedtctError(f"{folder} is in use by another process: stop that process, or wait until it ends")
        time.sleep(RETRY_SECONDS)
    _held[_identity(folder)] = opened
    return True


def release(folder: Path) -> None:
    """Let others write to the folder again."""
    if (opened := _held.pop(_identity(folder), None)) is not None:
        os.close(opened)


def _locked(opened: int) -> bool:
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network disks have no locks
        pass
    return True


def _identity(folder: Path) -> tuple[int, int]:
    found = folder.stat()
    return found.st_dev, found.st_ino
