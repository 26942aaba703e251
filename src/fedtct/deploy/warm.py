"""A process that has loaded PyTorch, Flower and fedtct, copied for every answer: python -m fedtct.deploy.warm PID

Flower has every message answered by a new process, which would spend seconds on imports. A copy of a process that has
imported everything and done nothing else is as good as new: the app is loaded in the copy alone.
"""

import atexit
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from fedtct.deploy.end_with_parent import ending_with_parent
from fedtct.deploy.hand_over import PROGRAM, SOCKET

LOOK_SECONDS = 1.0  # how often to look whether the parent is still there


def main() -> None:
    """Wait for messages, and have a copy of this process answer each with Flower's program."""
    serve(_load_flower, int(sys.argv[1]))


def _load_flower() -> Any:
    # What every copy would otherwise import for itself; Flower imports httpcore and numpy.ma late.
    import httpcore  # noqa: F401 (for copies)
    import numpy.ma  # noqa: F401 (for copies)

    import fedtct.deploy.client_app  # noqa: F401 (for copies)
    from fedtct.deploy.flower_log import tidy_log
    from fedtct.deploy.polling import pull_sooner

    tidy_log()
    pull_sooner()
    return entry_points(group="console_scripts")[PROGRAM].load()


def serve(load: Callable[[], Callable[[], object]], parent: int) -> None:
    """Wait for work while the process ``parent`` is there, which started this one; in a copy, do the work.

    Everything is loaded when work comes for the first time, so that a silo whose server is away costs nothing. Copies
    end with this process, whatever they are waiting for.
    """
    program, me, end_with_me = None, os.getpid(), ending_with_parent()
    atexit.register(_leave)  # registered first, so that it runs last at the end
    with _listener(Path(os.environ["FLWR_HOME"])) as listener:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system removes copies that have ended
        while os.getppid() == parent:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            program = program or load()
            if os.fork() == 0:
                break
            connection.close()
        else:
            return
    if end_with_me:
        end_with_me()
    if os.getppid() != me:  # the parent ended before that call
        return
    _become(connection)
    program()


def _leave() -> None:
    """End at once: freeing every object that was copied would take longer than most answers."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _listener(home: Path) -> socket.socket:
    """The socket that work comes from; only this user can reach it."""
    listener, here, mask = socket.socket(socket.AF_UNIX), Path.cwd(), os.umask(0o077)
    os.chdir(home)
    Path(SOCKET).unlink(missing_ok=True)
    listener.bind(SOCKET)
    os.chdir(here)
    os.umask(mask)
    listener.listen()
    listener.settimeout(LOOK_SECONDS)
    return listener


def _become(connection: socket.socket) -> None:
    """Take over the arguments, environment, folder and output of the process that asks, and tell it so."""
    import numpy as np

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    np.random.seed()  # noqa: NPY002  as a new process does: copies must not draw the same numbers
    with connection:
        connection.settimeout(None)
        _, outputs, _, _ = socket.recv_fds(connection, 1, 2)
        text = b"".join(iter(lambda: connection.recv(65536), b""))
        words, environment, folder = json.loads(text)
        for number, output in enumerate(outputs, start=1):
            os.dup2(output, number)
            os.close(output)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        sys.argv = [PROGRAM, *words]
        connection.sendall(b"!")


if __name__ == "__main__":
    main()
