"""Downloading datasets from their own sites: resumed when cut, verified, and put in place whole."""

import os
import ssl
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Callable
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple, TypeAlias
from urllib.error import HTTPError, URLError

from fedtct.data.dataset_files import DataFile, FileCheck, examine, md5
from fedtct.data.datasets import DATASETS, resolve_data_dir, unknown_dataset
from fedtct.data.layouts import CIFAR10_BINARY, CIFAR100_BINARY, FASHION_MNIST, LAYOUTS, choose_layout
from fedtct.errors import FedtctError

Progress: TypeAlias = Callable[[str, int, int | None], None]

BACK_OFF = (1.0, 2.0, 4.0, 8.0)  # seconds to wait before each further attempt
TIMEOUT = 30.0  # seconds without an answer
CHUNK = 1 << 18

# What a connection that is refused, silent or cut raises; other OSErrors come from the disk.
_CUT = (URLError, ConnectionError, TimeoutError, HTTPException, ssl.SSLError)


class Download(NamedTuple):
    """A file to download, and the dataset files it provides; a tar archive is unpacked."""

    url: str
    size: int
    md5: str
    files: tuple[DataFile, ...]

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self.url.rsplit("/", 1)[-1]

    @property
    def is_archive(self) -> bool:
        """Whether it is to be unpacked."""
        return self.name.endswith(".tar.gz")


_FASHION_SITE = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
_CIFAR_SITE = "https://www.cs.toronto.edu/~kriz"

_FASHION_PACKED = (  # size and digest as published: packed, unlike those in the layout
    (26_421_880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
    (29_515, "25c81989df183df01b3e8a0aad5dffbe"),
    (4_422_102, "bef4ecab320f06d8554ea6380940ec79"),
    (5_148, "bb300cfdad3c16e7a12a480ee83cd310"),
)

SOURCES: dict[str, tuple[Download, ...]] = {
    "fashion-mnist": tuple(
        Download(f"{_FASHION_SITE}/{Path(file.path).name}", size, digest, (file,))
        for file, (size, digest) in zip(FASHION_MNIST.files, _FASHION_PACKED, strict=True)
    ),
    "cifar10": (
        Download(
            f"{_CIFAR_SITE}/cifar-10-binary.tar.gz",
            170_052_171,
            "c32a1d4ab5d03f1284b67883e8d87530",
            CIFAR10_BINARY.files,
        ),
    ),
    "cifar100": (
        Download(
            f"{_CIFAR_SITE}/cifar-100-binary.tar.gz",
            168_513_733,
            "03b5dce01913d631647c71ecec9e9cb8",
            CIFAR100_BINARY.files,
        ),
    ),
}


def verify(name: str, data_dir: str | Path | None = None) -> list[FileCheck]:
    """Compare each file of the dataset `name` with the original; empty if it needs no files."""
    if name not in DATASETS:
        raise unknown_dataset(name)
    if name not in LAYOUTS:
        return []
    root = resolve_data_dir(data_dir)
    return [examine(file, root)[0] for file in choose_layout(name, root).files]


def fetch(name: str, data_dir: str | Path | None = None, *, progress: Progress | None = None) -> list[Path]:
    """Download what is missing of the dataset `name`; returns the files written, none if all were there.

    `progress(file, bytes done, total)` is called as bytes arrive. A file that is there already is never
    overwritten: if it is not right, the error says so.
    """
    checks = verify(name, data_dir)
    if name not in SOURCES:
        raise FedtctError(f"{name} comes with fedtct: there is nothing to fetch")
    if all(check.status == "ok" for check in checks):
        return []
    root = resolve_data_dir(data_dir)
    written: list[Path] = []
    try:
        for download in SOURCES[name]:
            missing = [c.path for c in _check_usable(download, root) if c.status == "missing"]
            if missing:
                _install(download, root, progress or (lambda file, done, total: None))
                _check_usable(download, root)
                written += missing
    except OSError as error:
        raise FedtctError(
            f"cannot write to {root} ({error}): free some space, allow writing there, or set FEDTCT_DATA to another "
            "folder"
        ) from error
    return written


def _check_usable(download: Download, root: Path) -> list[FileCheck]:
    checks = [examine(file, root)[0] for file in download.files]
    for check in checks:
        if check.status not in ("ok", "missing"):
            raise FedtctError(f"{check.path}: {check.status} ({check.detail}); delete it and fetch again")
    return checks


def _install(download: Download, root: Path, progress: Progress) -> None:
    """Download and put in place: every file gets its final name once it is whole."""
    if not download.is_archive:
        _obtain(download, root / Path(download.files[0].path).parent, progress)
        return
    archive = _obtain(download, root, progress)
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=root) as folder:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        for unpacked in sorted(path for path in Path(folder).rglob("*") if path.is_file()):
            target = root / unpacked.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                os.replace(unpacked, target)
    archive.unlink()


def _obtain(download: Download, folder: Path, progress: Progress) -> Path:
    """The verified file in `folder`, downloaded unless it is there already."""
    folder.mkdir(parents=True, exist_ok=True)
    final, part = folder / download.name, folder / f"{download.name}.part"
    if final.is_file():  # an archive from an unpacking that was interrupted, or put there by hand
        if problem := _difference(download, final):
            raise FedtctError(f"{final} is not the original ({problem}): delete it and fetch again")
        return final
    _download(download, part, progress)
    if problem := _difference(download, part):
        part.unlink()
        raise FedtctError(
            f"{download.url} did not send the original ({problem}); what it sent was deleted: try again later"
        )
    os.replace(part, final)
    return final


def _difference(download: Download, path: Path) -> str:
    """How the file at `path` differs from the published one; empty if it does not."""
    data = path.read_bytes()
    if len(data) != download.size:
        return f"expected {download.size:,} bytes, found {len(data):,}"
    digest = md5(data)
    return "" if digest == download.md5 else f"MD5 {digest}, original {download.md5}"


def _download(download: Download, part: Path, progress: Progress) -> None:
    """Fill `part`, going on where the last attempt was cut."""
    for pause in (*BACK_OFF, None):
        try:
            if _receive(download, part, progress):
                return
            reason = "the connection was cut"
        except HTTPError as error:
            if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                part.unlink(missing_ok=True)  # the server's file is shorter than what is there
            elif error.code < HTTPStatus.INTERNAL_SERVER_ERROR:
                raise FedtctError(
                    f"{download.url} answered {error.code} {error.reason}: "
                    f"get the file elsewhere and put it into {part.parent}"
                ) from error
            reason = f"it answered {error.code} {error.reason}"
        except _CUT as error:
            reason = str(error)
        if pause is not None:
            time.sleep(pause)
    raise FedtctError(
        f"could not download {download.url} ({reason}): check the connection and fetch again; it continues where it "
        "stopped"
    )


def _receive(download: Download, part: Path, progress: Progress) -> bool:
    """One attempt to append the rest to `part`; whether all of it is there now."""
    done = part.stat().st_size if part.exists() else 0
    if done == download.size:
        return True
    if done > download.size:
        done = 0  # not a beginning of this file
    request = urllib.request.Request(download.url, headers={"Range": f"bytes={done}-"} if done else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        if response.status != HTTPStatus.PARTIAL_CONTENT:
            done = 0  # the server ignores ranges and sends it all
        length = response.headers.get("Content-Length")
        total = done + int(length) if length else None
        with part.open("ab" if done else "wb") as file:
            while chunk := response.read(CHUNK):
                file.write(chunk)
                done += len(chunk)
                progress(download.name, done, total)
    return done >= (total or download.size)
