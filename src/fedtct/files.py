"""Files that are there whole or not at all, and strict JSON in them."""

import hashlib
import json
import math
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedtct.errors import FedtctError

HALF = ".half"  # ends the name of a file until it is whole; a process that is killed may leave one behind
HALVES = f"*.{'[0-9a-f]' * 8}{HALF}"
LITTER = ("thumbs.db", "desktop.ini", "__macosx")  # that systems leave in folders, and in zip files
ABANDONED_SECONDS = 3600.0  # that nobody has written to a half for; a process elsewhere cannot be asked if it lives


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file to write, that takes the place of ``path`` when it is whole; if it fails, nothing of it is left.

    Each writer has its own, so that of several at once one wins, with all that it wrote.
    """
    drop_halves(path.parent)
    half = path.with_name(f"{path.name}.{secrets.token_hex(4)}{HALF}")
    try:
        yield half
        sync(half)  # its name must not reach the disk before what is in it: power can fail
        half.replace(path)
    except BaseException as error:
        with suppress(OSError):
            half.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None:  # which file it was, a full disk does not say
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def drop_halves(folder: Path, seconds: float = ABANDONED_SECONDS) -> None:
    """Remove what processes that were killed left in a folder: each has a name of its own, so they would pile up.

    Where nobody else can be writing, ``seconds`` may be none.
    """
    for half in folder.glob(HALVES):
        with suppress(OSError):  # another process may have just removed it, or made it whole
            if time.time() - half.stat().st_mtime >= seconds:
                half.unlink()


def sync(path: Path) -> None:
    """Return once what is in a file is on the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def write_text(path: Path, text: str) -> None:
    """Text, whole or not at all."""
    with replacing(path) as half:
        half.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Strict JSON, whole or not at all."""
    write_text(path, json.dumps(strict(value), indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """What a JSON file of a run holds."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FedtctError(f"{path} cannot be read: {error}") from error


def fingerprint(path: Path) -> str:
    """Of a file, or of all in a folder and their names; it guards against accidents."""
    found = hashlib.sha256()
    for file in files_of(path):
        if file.is_file():
            found.update(f"{file.relative_to(path)}\0{file.stat().st_size}\0".encode())
            with file.open("rb") as content:
                found.update(hashlib.file_digest(content, "sha256").digest())
    return found.hexdigest()[:16]


def glance(path: Path) -> str:
    """Of how a file, or all in a folder, look from outside: while that stays the same, nobody has to read them."""
    found = hashlib.sha256()
    for file in files_of(path):
        if file.is_file():
            look = file.stat()
            times = f"{look.st_mtime_ns}\0{look.st_ctime_ns}"
            found.update(f"{file.relative_to(path)}\0{look.st_ino}\0{look.st_size}\0{times}\0".encode())
    return found.hexdigest()[:16]


def files_of(path: Path) -> list[Path]:
    """A file, or all files of a folder and of its folders, those that are linked too, in order of their names."""
    return sorted(_files_below(path)) if path.is_dir() else [path]


def is_hidden(name: str) -> bool:
    """Whether a file or folder of this name is hidden, or would be where it comes from; ~$ is before what is open."""
    return name.startswith((".", "~$")) or name.lower() in LITTER


def _files_below(folder: Path, above: tuple[Path, ...] = ()) -> Iterator[Path]:
    here = folder.resolve()
    if here in above:  # a link led back: there would be no end
        return
    with suppress(PermissionError):  # as lost+found is nobody's
        for path in folder.iterdir():
            if path.is_dir():
                yield from _files_below(path, (*above, here))
            else:
                yield path


def strict(value: Any) -> Any:
    """The value with NaN and infinities, which JSON does not have, as None."""
    if isinstance(value, Mapping):
        return {key: strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
