"""Dataset files on disk: find one, read it, and compare it with the published original."""

import gzip
import hashlib
import warnings
import zlib
from pathlib import Path
from typing import Literal, NamedTuple

from fedtct.errors import FedtctError

Status = Literal["ok", "missing", "wrong size", "not the original"]


class DataFile(NamedTuple):
    """A file of a published dataset; `size` and `md5` are None where the original's are not known.

    For a `.gz` file both describe the unpacked content: that is what matters, and packing the same
    pixels again changes the outer file.
    """

    path: str
    size: int | None = None
    md5: str | None = None

    def locate(self, root: Path) -> Path:
        """Where the file is under `root` (a `.gz` file may lie there unpacked), or where it should be."""
        published, unpacked = root / self.path, root / self.path.removesuffix(".gz")
        return unpacked if unpacked.is_file() and not published.is_file() else published


class FileCheck(NamedTuple):
    """What was found in place of a dataset's file; `detail` says more when the status is not "ok".

    Where the original's digest is not known, "ok" means that the size is right.
    """

    path: Path
    status: Status
    detail: str = ""


class Content(NamedTuple):
    """The (unpacked) bytes of a file, with its path for error messages."""

    path: Path
    data: bytes


def examine(file: DataFile, root: Path) -> tuple[FileCheck, Content]:
    """Read `file` under `root` and compare it with the original."""
    path = file.locate(root)
    empty = Content(path, b"")
    if not path.is_file():
        return FileCheck(path, "missing"), empty
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return FileCheck(path, "wrong size", "the gzip file is cut off or damaged"), empty
    except OSError as error:
        raise FedtctError(f"cannot read {path}: {error.strerror}; check its permissions") from error
    content = Content(path, data)
    if file.size is not None and len(data) != file.size:
        detail = f"expected {file.size:,} bytes, found {len(data):,}"
        return FileCheck(path, "wrong size", detail), content
    if file.md5 is not None and (digest := md5(data)) != file.md5:
        return FileCheck(path, "not the original", f"MD5 {digest}, original {file.md5}"), content
    return FileCheck(path, "ok"), content


def read_checked(file: DataFile, root: Path, dataset: str) -> Content:
    """The content of `file`: an error if missing or of the wrong size, a warning if not the original."""
    check, content = examine(file, root)
    if check.status == "missing":
        raise FedtctError(
            f"{check.path} is missing: run `fedtct data fetch {dataset}`, "
            "or set FEDTCT_DATA to the folder which holds the datasets"
        )
    if check.status == "wrong size":
        raise FedtctError(
            f"{check.path} has the wrong size ({check.detail}): "
            f"delete it and fetch again with `fedtct data fetch {dataset}`"
        )
    if check.status == "not the original":
        warnings.warn(f"{check.path} is not the original file ({check.detail})", stacklevel=2)
    return content


def md5(data: bytes) -> str:
    """The digest the datasets' own sites publish; it guards against accidents, not against attackers."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
