"""Files that are written whole or not at all, and strict JSON."""

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

HALF = ".half"  # the ending of a file until it is whole; killed processes leave such files behind
HALVES = f"*.{'[0-9a-f]' * 8}{HALF}"
LITTER = ("thumbs.db", "desktop.ini", "__macosx")  # what systems leave in folders and in zip files
ABANDONED_SECONDS = 3600.0  # a half this old is abandoned: its writer may be on another machine, and cannot be asked


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file to write, which replaces ``path`` once it is whole; after an error nothing of it is left.

    Each writer has a file of its own: of several at the same time one wins, as a whole.
    """
    drop_halves(path.parent)
    half = path.with_name(f"{path.name}.{secrets.token_hex(4)}{HALF}")
    try:
        yield half
        sync(half)  # power may fail: the content must be on the disk before the name
        half.replace(path)
    except BaseException as error:
        with suppress(OSError):
            half.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None:  # a full disk's error does not name the file
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def drop_halves(folder: Path, seconds: float = ABANDONED_SECONDS) -> None:
    """Remove the halves that killed processes left in a folder, if they are so many ``seconds`` old.

    Zero seconds are right where nobody else can be writing.
    """
    for half in folder.glob(HALVES):
        with suppress(OSError):  # another process may have just removed it, or made it whole
            if time.time() - half.stat().st_mtime >= seconds:
                half.unlink()


def sync(path: Path) -> None:
    """Return once a file's content is on the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def write_text(path: Path, text: str) -> None:
    """Write a text, whole or not at all."""
    with replacing(path) as half:
        half.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write strict JSON, whole or not at all."""
    write_text(path, json.dumps(strict(value), indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """The content of a JSON file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FedtctError(f"{path} cannot be read: {error}") from error


def fingerprint(path: Path) -> str:
    """A digest of a file, or of all files in a folder with their names; it guards against accidents."""
    found = hashlib.sha256()
    for file in files_of(path):
        if file.is_file():
            found.update(f"{file.relative_to(path)}\0{file.stat().st_size}\0".encode())
            with file.open("rb") as content:
                found.update(hashlib.file_digest(content, "sha256").digest())
    return found.hexdigest()[:16]


def glance(path: Path) -> str:
    """A digest of the sizes and times of a file, or of all in a folder: while it is the same, so is their content."""
    found = hashlib.sha256()
    for file in files_of(path):
        if file.is_file():
            look = file.stat()
            times = f"{look.st_mtime_ns}\0{look.st_ctime_ns}"
            found.update(f"{file.relative_to(path)}\0{look.st_ino}\0{look.st_size}\0{times}\0".encode())
    return found.hexdigest()[:16]


def files_of(path: Path) -> list[Path]:
    """A file, or all files below a folder, also through links, in order of their names."""
    return sorted(_files_below(path)) if path.is_dir() else [path]


def is_hidden(name: str) -> bool:
    """Whether a file or folder of this name is hidden on some system; Excel's names for open files begin with ~$."""
    return name.startswith((".", "~$")) or name.lower() in LITTER


def _files_below(folder: Path, above: tuple[Path, ...] = ()) -> Iterator[Path]:
    here = folder.resolve()
    if here in above:  # a link led back here: it would never end
        return
    with suppress(PermissionError):  # such as lost+found
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
