"""Time several ways of doing the same work, each in a process of its own, turn by turn.

Taking turns makes them share whatever else the machine does meanwhile; a process each makes their memory known.
"""

import multiprocessing
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

Work = Callable[[], float]  # does the work once and tells how much it was: images, steps, …


@dataclass(frozen=True)
class Way:
    """A function of a module that prepares the work, and its arguments."""

    prepare: Callable[..., Work]
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Timing:
    """What a way took."""

    seconds: float  # for one unit of work, in the best of its turns
    turns: list[float]
    peak_bytes: int  # that the process ever held, the libraries it imported included

    @property
    def rate(self) -> float:
        """Units a second."""
        return 1 / self.seconds


def side_by_side(ways: dict[str, Way], *, turns: int = 5, warm_up: int = 1) -> dict[str, Timing]:
    """Time the ways turn by turn."""
    with ExitStack() as stack:
        workers = {name: stack.enter_context(_Worker(way)) for name, way in ways.items()}
        taken = [{name: worker.turn() for name, worker in workers.items()} for _ in range(warm_up + turns)]
        peaks = {name: worker.stop() for name, worker in workers.items()}
    times = {name: [turn[name] for turn in taken[warm_up:]] for name in ways}
    return {name: Timing(min(times[name]), times[name], peaks[name]) for name in ways}


class _Worker:
    """A process that waits for its turns."""

    def __init__(self, way: Way) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, way), daemon=True)

    def __enter__(self) -> Self:
        self.process.start()
        self.connection.recv()  # it is ready
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill() if error[0] else self.process.join(30)

    def turn(self) -> float:
        """Seconds for a unit of work."""
        self.connection.send("go")
        seconds: float = self.connection.recv()
        return seconds

    def stop(self) -> int:
        """End the process; the most memory that it held."""
        self.connection.send("stop")
        peak: int = self.connection.recv()
        return peak


def _serve(connection: Connection, way: Way) -> None:
    work = way.prepare(**way.arguments)
    connection.send("ready")
    while connection.recv() == "go":
        start = time.perf_counter()
        amount = work()
        connection.send((time.perf_counter() - start) / amount)
    connection.send(peak_bytes())


def peak_bytes() -> int:
    """The most memory that this process has held; getrusage would count what its parent held when it started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
