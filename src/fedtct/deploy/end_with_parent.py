"""A process that is killed cannot end those it started: these have the system end them when their parent is gone."""

import ctypes
import signal
import sys
from collections.abc import Callable

PR_SET_PDEATHSIG = 1  # of Linux's prctl


def ending_with_parent() -> Callable[[], object] | None:
    """What a new process must call for that; none where the system cannot do it.

    It is made by the parent: between its beginning and its program a process must not load anything.
    """
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # told to end, a server waits for whoever listens to it
