"""A whole federation on this machine: a SuperLink and SuperNodes on loopback, with TLS and keys as usual."""

import os
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType

from fedtct.deploy import processes, registration
from fedtct.deploy.keys import make_keys
from fedtct.deploy.silo_config import SiloConfig
from fedtct.runs.toml import as_toml
from fedtct.runs.watcher import Watcher

START_SECONDS = 60.0


class LocalDeployment:
    """Processes under ``folder``: ``server/``, and a folder for each silo with its silo.toml and log.

    ``data`` says where each silo's data is. A federation that is there already is started again: silos have their
    caches, and the server knows nothing of earlier runs.
    """

    def __init__(self, folder: Path, data: Mapping[str, str]) -> None:
        self.folder, self.server = folder.absolute(), folder.absolute() / "server"
        self.port = processes.free_port()
        address = f"127.0.0.1:{self.port}"
        if (self.server / "address").is_file():
            self._move(data, address)
        else:
            make_keys(self.folder, list(data), address)
            for name, where in data.items():
                replace_text(self.silo_file(name), 'data = "data.npz"', f"data = {as_toml(where)}")
        self.silos = len(data)
        self.link: subprocess.Popen[bytes] | None = None
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}

    def silo_file(self, name: str) -> Path:
        """A silo's silo.toml."""
        return self.folder / name / "silo.toml"

    def __enter__(self) -> "LocalDeployment":
        try:
            self.start_server()
            registration.register(self.server)
            for name in [file.stem for file in sorted((self.server / "silos").glob("*.pub"))]:
                self.start_silo(name)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start_server(self) -> None:
        """Start the SuperLink and wait until it listens."""
        registration.forget_if_lost(self.server)
        self.link = self._start(processes.superlink(self.server), self.server, "superlink.log")
        processes.wait_for_port(self.port, START_SECONDS, self.link)

    def start_silo(self, name: str) -> None:
        """Start a silo's SuperNode."""
        file = self.silo_file(name)
        command = processes.supernode(SiloConfig.read(file), file, processes.free_port())
        self.nodes[name] = self._start(command, file.parent, "supernode.log")

    def submit(self, app: Path, settings: Mapping[str, str], log: Path) -> "subprocess.Popen[bytes]":
        """Start a run; what it prints goes to ``log``."""
        command = processes.submit(self.server, app, settings)
        with log.open("ab") as output:
            return subprocess.Popen(
                command, env=processes.environment(self.server / "flwr"), stdout=output, stderr=subprocess.STDOUT
            )

    def run(
        self,
        app: Path,
        settings: Mapping[str, str],
        tell: Callable[[str], None],
        watcher: Watcher | None = None,
    ) -> bool:
        """Run to the end; ``tell`` hears what the server says. Returns whether the run finished."""
        command = processes.submit(self.server, app, settings)
        return processes.follow(command, self.server / "flwr", tell, watcher) == 0

    def close(self) -> None:
        """End everything."""
        link = [self.link] if self.link else []
        processes.stop([*self.nodes.values(), *link])

    def _move(self, silos: Iterable[str], address: str) -> None:
        """Move to another port, as the old one may be taken, and drop Flower's database: it would bar the new nodes."""
        before = processes.address_of(self.server)
        for file in (self.server / "address", *map(self.silo_file, silos)):
            replace_text(file, before, address)
        for path in self.server.glob(f"{processes.DATABASE}*"):
            path.unlink()

    def _start(self, command: list[str], folder: Path, log: str) -> "subprocess.Popen[bytes]":
        # All silos work at the same time: with more threads than cores they would mostly wait for each other.
        threads = max(1, (os.cpu_count() or 1) // self.silos)
        with (folder / log).open("ab") as output:
            return processes.start(command, folder / "flwr", folder, output, threads)


def replace_text(file: Path, old: str, new: str) -> None:
    """Put another text in the place of one."""
    file.write_text(file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
