"""Flower's commands that a federation consists of, with the options that fedtct needs."""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedtct.deploy.end_with_parent import ending_with_parent
from fedtct.deploy.keys import split_address
from fedtct.deploy.log_lines import SAYS, hear
from fedtct.deploy.silo_config import SiloConfig
from fedtct.errors import FedtctError
from fedtct.runs.lock import hold, release
from fedtct.runs.toml import as_toml
from fedtct.runs.watcher import Watcher

CONNECTION = "fedtct"
STARTED = re.compile(r"started run (\d+)")
ENDS_SECONDS = 30.0  # in which a run ends after its server was killed
STOP_SECONDS = 15.0  # in which processes that are told to end may do so by themselves
DATABASE = "superlink.db"  # Flower's, in the server's folder
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",  # what runs is what was installed, on every machine
}


def environment(home: Path) -> dict[str, str]:
    """The environment of Flower's processes; ``home`` is where they keep things."""
    # The processes start one another by name.
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return dict(os.environ) | QUIET | {"FLWR_HOME": str(home.absolute()), "PATH": programs}


def superlink(server: Path) -> list[str]:
    """The server's process: over TLS, it takes only silos with registered keys, and orders only from this machine."""
    host, port = split_address(address_of(server))
    bind = "127.0.0.1" if host in ("127.0.0.1", "localhost") else "0.0.0.0"
    files = {"ca": server / "ca.crt", "cert": server / "server.crt", "key": server / "server.key"}
    for file in files.values():
        _need(file, "make it with fedtct deploy keys")
    _program("flower-superlink")  # says what to install if it is not there
    return [
        *(sys.executable, "-m", "fedtct.deploy.superlink"),
        *("--host", bind, "--port", str(port)),
        *("--ssl-ca-certfile", str(files["ca"]), "--ssl-certfile", str(files["cert"])),
        *("--ssl-keyfile", str(files["key"]), "--enable-supernode-auth"),
        *("--database", str(server / DATABASE), "--isolation", "subprocess"),
    ]


def supernode(silo: SiloConfig, file: Path, port: int) -> list[str]:
    """A silo's process; its own parts talk to each other over ``port``, on this machine alone."""
    ca, key = silo.path(silo.ca), silo.path(silo.key)
    _need(ca, "it comes from whoever made the federation's keys")
    _need(key, "it comes from whoever made the federation's keys")
    _program("flower-supernode")  # says what to install if it is not there
    return [
        *(sys.executable, "-m", "fedtct.deploy.supernode"),
        *("--superlink", silo.server, "--root-certificates", str(ca), "--auth-supernode-private-key", str(key)),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--node-config", f"silo={as_toml(str(file.absolute()))}"),
    ]


def flwr(*words: str) -> list[str]:
    """Flower's own command line."""
    return [*_program("flwr"), *words]


def write_connection(server: Path) -> None:
    """Tell Flower's command line how to reach the server, which is this machine."""
    _, port = split_address(address_of(server))
    home = server / "flwr"
    home.mkdir(parents=True, exist_ok=True)
    certificate = as_toml(str((server / "ca.crt").absolute()))
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
        f'address = "127.0.0.1:{port}"\nroot-certificates = {certificate}\n',
        encoding="utf-8",
    )


def submit(server: Path, app: Path, settings: Mapping[str, str]) -> list[str]:
    """The command that starts a run and shows how it goes; refused where there is no server to start it on."""
    _, port = split_address(address_of(server))
    if not listens(port):
        raise FedtctError(
            f"no server listens on port {port}: start it with `fedtct deploy server {shlex.quote(str(server))}`"
        )
    if "resume" in settings:
        _wait_until_free(Path(settings["resume"]))
    write_connection(server)
    overrides = [part for key, value in settings.items() for part in ("-c", f"{key}={as_toml(value)}")]
    return flwr("run", str(app), CONNECTION, "--stream", *overrides)


def _wait_until_free(run: Path) -> None:
    """Wait until no process works on a run, as one does for seconds after its server was killed; else refuse."""
    try:
        hold(run)
    except FedtctError:
        warnings.warn(f"{run} is in use: waiting {ENDS_SECONDS:g} s at most for the other process to end", stacklevel=2)
        hold(run, ENDS_SECONDS)
    release(run)


def address_of(server: Path) -> str:
    """Where silos find the server."""
    inner = server / "server"  # of the folder that `deploy keys` made
    hint = f"did you mean {inner}?" if (inner / "address").is_file() else "make it with fedtct deploy keys"
    _need(server / "address", hint)
    return (server / "address").read_text().strip()


def free_port() -> int:
    """A port that nobody uses at the moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_for_port(port: int, seconds: float, process: "subprocess.Popen[bytes]") -> None:
    """Return once something listens on a port; refused if the process ends or time runs out before."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        if listens(port):
            return
        time.sleep(0.2)
    raise FedtctError(f"the server did not start on port {port}: its log says why")


def listens(port: int) -> bool:
    """Whether something listens on a port of this machine."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def start(
    command: list[str], home: Path, folder: Path | None = None, output: Any = None, threads: int = 0
) -> "subprocess.Popen[bytes]":
    """Start one of Flower's processes as the first of a group, so that ending it ends all that it starts.

    ``threads`` limits those of its arithmetic, unless the user has set how many.
    """
    more = {"OMP_NUM_THREADS": str(threads)} if threads and "OMP_NUM_THREADS" not in os.environ else {}
    # If it outlived this process, it would bar the next one in its place.
    where, end = environment(home) | more, ending_with_parent()
    return subprocess.Popen(
        command, env=where, cwd=folder, stdout=output, stderr=output, start_new_session=True, preexec_fn=end
    )


def attend(process: "subprocess.Popen[bytes]") -> int:
    """Wait for a process, and end it when this one is told to end; returns its exit code."""
    with as_ctrl_c():
        try:
            return process.wait()
        finally:
            stop([process])


@contextmanager
def as_ctrl_c() -> Iterator[None]:
    """Treat being told to end, or losing the terminal, like Ctrl-C, so that what was started is ended too."""

    def leave(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    heeded = [number for number, handler in before.items() if handler != signal.SIG_IGN]  # not under nohup
    for number in heeded:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in heeded:
            signal.signal(number, before[number])


def follow(command: list[str], home: Path, tell: Callable[[str], None], watcher: Watcher | None = None) -> int:
    """Run a command that shows how a run goes; ``tell`` hears what the server says. Returns an exit code.

    Flower's command line ends well even if the run did not, so what the server said last counts: 0 if the run finished,
    2 if the server refused it or could not go on, 1 if something broke. After Ctrl-C the run is stopped at the server
    too: else it would go on, and going on with it would be a second one.
    """
    process = subprocess.Popen(
        command, env=_talking(home), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    assert process.stdout is not None
    last, number, rest = "", "", deque[str](maxlen=30)
    try:
        for line in process.stdout:
            if hear(line, watcher or Watcher()):
                continue
            if not line.startswith(SAYS):
                rest.append(line.rstrip())
                number = started[1] if (started := STARTED.search(line)) else number
                continue
            last = line.strip()
            if not last.startswith(f"{SAYS}finished"):
                tell(last)
    except KeyboardInterrupt:
        if number:
            subprocess.run(flwr("stop", number, CONNECTION), env=environment(home), capture_output=True)
        raise
    finally:
        stop([process])
    if last.startswith(f"{SAYS}finished"):
        return 0
    if last.startswith(f"{SAYS}stopped"):
        return 2
    for line in rest:  # something else went wrong: Flower tells what
        tell(line)
    return 1


def _talking(home: Path) -> dict[str, str]:
    """The environment of a command whose output is read line by line, at once."""
    return environment(home) | {"PYTHONUNBUFFERED": "1"}


def stop(processes: Sequence["subprocess.Popen[Any]"]) -> None:
    """End processes, gently at first, and then all that is left of what they started."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + STOP_SECONDS
    for process in processes:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        with suppress(ProcessLookupError):  # nothing is left, or it was not started as the first of a group
            os.killpg(process.pid, signal.SIGKILL)


def _program(name: str) -> list[str]:
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        raise FedtctError(f"{name} is not installed: pip install 'fedtct[flower]'")
    return [found]


def _need(file: Path, hint: str) -> None:
    if not file.is_file():
        raise FedtctError(f"{file} is missing: {hint}")
