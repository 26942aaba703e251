"""Paths for something new, checked before any work is done."""

import os
import shlex
from collections.abc import Collection
from pathlib import Path

from fedtct.errors import FedtctError
from fedtct.files import HALF

CONFIG, PLAN = "config.toml", "plan.json"  # of a run, and of several


def resuming(command: str, folder: str | Path) -> str:
    """The command that resumes what is in a folder, quoted for a shell."""
    return f"{command} --resume {shlex.quote(str(folder))}"


def next_free(path: Path, ending: str = "") -> Path:
    """The path with this ending, or the first of path-2, path-3 and so on that is not taken."""
    number, free = 1, path.with_name(path.name + ending)
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}{ending}")
    return free


def check_begun(path: Path) -> None:
    """Refuse a path where neither a run nor several were begun."""
    if not any((path / name).is_file() for name in (CONFIG, PLAN)):
        raise FedtctError(f"{path} is not a run: there is no {CONFIG} in it")


def free_folder(path: str | Path, todo: str = "", but: Collection[str] = ()) -> Path:
    """The path of a new folder; refused, with what ``todo``, if something is there, or if it cannot be made.

    Files that a killed process left half-written do not count, nor do those with one of the names in ``but``.
    """
    path = Path(path)
    if path.exists() and (not path.is_dir() or any(e.suffix != HALF and e.name not in but for e in path.iterdir())):
        todo = todo or f"choose another folder with --out, or {resuming('resume it with', path)}"
        raise FedtctError(f"{path} exists: {todo}")
    check_place(path)
    return path


def free_file(path: Path) -> Path:
    """The path of a new file; refused if something is there, or if it cannot be made."""
    if path.exists():
        raise FedtctError(f"{path} exists: choose another file with --out")
    if not path.absolute().parent.is_dir() or not os.access(path.absolute().parent, os.W_OK):
        raise FedtctError(f"{path} cannot be made: {path.absolute().parent} is not a folder you can write to")
    return path


def check_place(path: Path) -> None:
    """Refuse a path where nothing can be written, also in folders that would be made for it."""
    above = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if above != path and (not above.is_dir() or not os.access(above, os.W_OK)):
        raise FedtctError(f"{path} cannot be made: {above} is not a folder you can write to")
    if above == path and not os.access(path, os.W_OK):
        raise FedtctError(f"you have no permission to write to {path}")
