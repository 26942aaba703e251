"""Which silos are let in: Flower keeps a list of keys, and we keep the names of their silos."""

import os
import re
import subprocess
from pathlib import Path

from fedtct.deploy.processes import CONNECTION, DATABASE, environment, flwr, write_connection
from fedtct.errors import FedtctError
from fedtct.files import read_json, write_json

REGISTERED = re.compile(r"SuperNode (\d+) registered")
REMOVED = "removed"


def forget_if_lost(server: Path) -> None:
    """Called before the server starts: if Flower's database is gone, it knows no keys, so our list must go too."""
    if not (server / DATABASE).is_file():
        _registered(server).unlink(missing_ok=True)


def register(server: Path) -> list[str]:
    """Let in the silos whose public keys are there and who are not let in yet; returns their names."""
    write_connection(server)
    known, new = _known(server), []
    for public in sorted((server / "silos").glob("*.pub")):
        mark = _mark(public)
        if known.get(mark, [""])[0] == REMOVED:
            raise FedtctError(f"{public.stem} was removed, and Flower accepts no key twice: make a new key for it")
        if mark in known:
            continue
        command = flwr("supernode", "register", str(public), CONNECTION)
        result = subprocess.run(command, env=environment(server / "flwr"), capture_output=True, text=True)
        node = REGISTERED.search(result.stdout)
        if result.returncode and "already" in result.stdout + result.stderr:
            raise FedtctError(f"{public.stem} was let in, but its node was not recorded: {_anew(server)}")
        if result.returncode or not node:
            last = (result.stderr or result.stdout).strip().splitlines()[-1:]
            raise FedtctError(f"{public.stem} could not be let in: {' '.join(last)}")
        known[mark] = [node[1], public.stem]
        new.append(public.stem)
        write_json(_registered(server), known)
    return new


def unregister(server: Path) -> list[str]:
    """Refuse the silos that were let in and whose public keys are no longer there; returns their names."""
    write_connection(server)
    known, gone = _known(server), []
    there = {_mark(public) for public in (server / "silos").glob("*.pub")}
    for mark, (node, name) in known.items():
        if mark in there or node == REMOVED:
            continue
        command = flwr("supernode", "unregister", node, CONNECTION)
        if subprocess.run(command, env=environment(server / "flwr"), capture_output=True).returncode:
            raise FedtctError(f"{name} could not be removed: {_anew(server)}")
        known[mark] = [REMOVED, name]
        gone.append(name)
        write_json(_registered(server), known)
    return gone


def _anew(server: Path) -> str:
    return f"stop the server, delete {server / DATABASE}, and start it again; start the silos again, too"


def whose_keys() -> dict[int, str]:
    """For each node of the server that started this process, the silo that its key was made for, if known."""
    home = Path(os.environ.get("FLWR_HOME", ""))
    return {int(node): name for node, name in _known(home.parent).values() if node.isdecimal()}


def _registered(server: Path) -> Path:
    """The file that says whom Flower let in: by the mark of a key, its node and the silo's name."""
    return server / "flwr" / "registered.json"


def _known(server: Path) -> dict[str, list[str]]:
    file = _registered(server)
    known: dict[str, list[str]] = read_json(file) if file.is_file() else {}
    return known


def _mark(public: Path) -> str:
    words = public.read_text(encoding="utf-8", errors="replace").split()
    if len(words) < 2 or not words[0].startswith("ecdsa-"):
        raise FedtctError(
            f"{public} is not a public key that fedtct deploy keys made: put that one back, or delete the file"
        )
    return words[1][-40:]
