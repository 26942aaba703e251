"""Fetching from a local server that can cut connections, ignore ranges, and send other bytes."""

import gzip
import hashlib
import importlib
import io
import random
import socket
import tarfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fedtct.data import fetch, verify
from fedtct.data.dataset_files import DataFile
from fedtct.data.layouts import CIFAR10_BINARY, FASHION_MNIST, LAYOUTS
from fedtct.errors import FedtctError

fetching = importlib.import_module("fedtct.data.fetch")  # the package's `fetch` is the function

PIXELS = random.Random(0).randbytes(600_000)  # larger than a chunk, and incompressible so that a cut is a cut
PACKED = gzip.compress(PIXELS)


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


class Site:
    """What the server holds, how it behaves, and what it was asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cuts: list[int] = []  # close the connection after so many bytes, once each
        self.ranges = True
        self.statuses: list[int] = []  # answer so, once each
        self.requests: list[tuple[str, str | None]] = []
        self.url = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        asked = request.headers["Range"]
        self.requests.append((request.path, asked))
        data = self.files.get(request.path)
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and self.ranges else 0
        if self.statuses or data is None:
            return request.send_error(self.statuses.pop() if self.statuses else 404)
        if start >= len(data):
            return request.send_error(416)
        request.send_response(206 if start else 200)
        request.send_header("Content-Length", str(len(data) - start))
        request.end_headers()
        request.wfile.write(data[start:][: self.cuts.pop(0) if self.cuts else None])


@pytest.fixture
def site(monkeypatch) -> Iterator[Site]:
    state = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.answer(self)

        def log_message(self, *arguments: object) -> None:
            pass

    monkeypatch.setattr(fetching, "BACK_OFF", (0.0, 0.0))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield state
        server.shutdown()
        thread.join()


@pytest.fixture
def one_file(site, monkeypatch) -> Callable[..., Path]:
    """Make "fashion-mnist" a dataset of one packed file on the site."""
    file = DataFile("FashionMNIST/raw/images.gz", len(PIXELS), md5(PIXELS))
    download = fetching.Download(f"{site.url}/images.gz", len(PACKED), md5(PACKED), (file,))
    monkeypatch.setitem(LAYOUTS, "fashion-mnist", (FASHION_MNIST._replace(train=(file,), test=()),))
    monkeypatch.setitem(fetching.SOURCES, "fashion-mnist", (download,))
    site.files["/images.gz"] = PACKED
    return lambda root: root / file.path


@pytest.fixture
def one_archive(site, monkeypatch) -> list[str]:
    """Make "cifar10" a dataset of two small files in an archive on the site."""
    contents = {"cifar-10-batches-bin/a.bin": b"a" * 5000, "cifar-10-batches-bin/b.bin": b"b" * 5000}
    files = tuple(DataFile(path, len(data), md5(data)) for path, data in contents.items())
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for path, data in {**contents, "cifar-10-batches-bin/readme.html": b"hello"}.items():
            member = tarfile.TarInfo(path)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    data = packed.getvalue()
    layout = CIFAR10_BINARY._replace(train=files[:1], test=files[1:])
    monkeypatch.setitem(LAYOUTS, "cifar10", (layout,))
    download = fetching.Download(f"{site.url}/cifar.tar.gz", len(data), md5(data), files)
    monkeypatch.setitem(fetching.SOURCES, "cifar10", (download,))
    site.files["/cifar.tar.gz"] = data
    return list(contents)


def tree(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_a_full_download_with_progress(site, one_file, tmp_path):
    calls = []
    assert fetch("fashion-mnist", tmp_path, progress=lambda *call: calls.append(call)) == [one_file(tmp_path)]
    assert one_file(tmp_path).read_bytes() == PACKED
    assert tree(tmp_path) == ["FashionMNIST/raw/images.gz"]
    assert [check.status for check in verify("fashion-mnist", tmp_path)] == ["ok"]
    assert len(calls) > 1
    assert [call[1] for call in calls] == sorted(call[1] for call in calls)
    assert calls[-1] == ("images.gz", len(PACKED), len(PACKED))


def test_a_cut_download_goes_on_where_it_stopped(site, one_file, tmp_path):
    site.cuts = [300_000, 100_000]
    calls = []
    fetch("fashion-mnist", tmp_path, progress=lambda *call: calls.append(call))
    assert one_file(tmp_path).read_bytes() == PACKED
    assert [asked for _, asked in site.requests] == [None, "bytes=300000-", "bytes=400000-"]
    assert {total for _, _, total in calls} == {len(PACKED)}


def test_a_download_that_stays_cut_is_resumed_by_the_next_fetch(site, one_file, tmp_path):
    site.cuts = [1000, 1000, 1000]
    with pytest.raises(FedtctError, match=r"images.gz \(the connection was cut\).*continues where it stopped"):
        fetch("fashion-mnist", tmp_path)
    assert tree(tmp_path) == ["FashionMNIST/raw/images.gz.part"]
    fetch("fashion-mnist", tmp_path)
    assert site.requests[-1] == ("/images.gz", "bytes=3000-")
    assert one_file(tmp_path).read_bytes() == PACKED


def test_a_server_without_ranges_starts_again(site, one_file, tmp_path):
    site.ranges, site.cuts = False, [300_000]
    fetch("fashion-mnist", tmp_path)
    assert [asked for _, asked in site.requests] == [None, "bytes=300000-"]
    assert one_file(tmp_path).read_bytes() == PACKED


@pytest.mark.parametrize("extra", [0, 5])
def test_a_part_that_is_already_long_enough(site, one_file, tmp_path, extra):
    part = one_file(tmp_path).with_name("images.gz.part")
    part.parent.mkdir(parents=True)
    part.write_bytes(PACKED + b"x" * extra)
    fetch("fashion-mnist", tmp_path)
    assert one_file(tmp_path).read_bytes() == PACKED
    assert len(site.requests) == (1 if extra else 0)
    assert not part.exists()


def test_a_range_beyond_the_servers_file_starts_again(site, one_file, tmp_path):
    site.files["/images.gz"] = PACKED[:1000]
    part = one_file(tmp_path).with_name("images.gz.part")
    part.parent.mkdir(parents=True)
    part.write_bytes(PACKED[:2000])
    with pytest.raises(FedtctError, match=f"expected {len(PACKED):,} bytes, found 1,000"):
        fetch("fashion-mnist", tmp_path)
    assert [asked for _, asked in site.requests] == ["bytes=2000-", None]
    assert tree(tmp_path) == []


def test_other_bytes_are_deleted_and_an_error(site, one_file, tmp_path):
    site.files["/images.gz"] = PACKED[:-1] + bytes([PACKED[-1] ^ 1])
    with pytest.raises(FedtctError, match=r"did not send the original.*deleted"):
        fetch("fashion-mnist", tmp_path)
    assert tree(tmp_path) == []


def test_not_found_is_an_error_at_once(site, one_file, tmp_path):
    del site.files["/images.gz"]
    with pytest.raises(FedtctError, match="answered 404 Not Found"):
        fetch("fashion-mnist", tmp_path)
    assert len(site.requests) == 1


def test_a_server_in_trouble_is_asked_again(site, one_file, tmp_path):
    site.statuses = [503, 500]
    fetch("fashion-mnist", tmp_path)
    assert len(site.requests) == 3
    assert one_file(tmp_path).is_file()


def test_an_unreachable_server(one_file, tmp_path, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (download,) = fetching.SOURCES["fashion-mnist"]
    nowhere = download._replace(url=f"http://127.0.0.1:{port}/images.gz")
    monkeypatch.setitem(fetching.SOURCES, "fashion-mnist", (nowhere,))
    with pytest.raises(FedtctError, match=r"could not download.*refused.*check the connection"):
        fetch("fashion-mnist", tmp_path)


def test_what_is_there_and_right_is_not_downloaded(site, one_file, tmp_path):
    path = one_file(tmp_path)
    path.parent.mkdir(parents=True)
    path.with_suffix("").write_bytes(PIXELS)
    assert fetch("fashion-mnist", tmp_path) == []
    assert site.requests == []


@pytest.mark.parametrize(
    ("data", "problem"),
    [(PACKED[:-9], "wrong size"), (gzip.compress(PIXELS[::-1]), "not the original")],
    ids=["cut", "other"],
)
def test_what_is_there_and_wrong_is_never_overwritten(site, one_file, tmp_path, data, problem):
    path = one_file(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    with pytest.raises(FedtctError, match=f"images.gz: {problem} .*delete it and fetch again"):
        fetch("fashion-mnist", tmp_path)
    assert path.read_bytes() == data
    assert site.requests == []


def test_an_archive_is_unpacked_and_removed(site, one_archive, tmp_path):
    site.cuts = [50]
    assert fetch("cifar10", tmp_path) == [tmp_path / path for path in one_archive]
    assert tree(tmp_path) == [*one_archive, "cifar-10-batches-bin/readme.html"]
    assert fetch("cifar10", tmp_path) == []
    assert len(site.requests) == 2


def test_an_archive_completes_a_folder(site, one_archive, tmp_path):
    fetch("cifar10", tmp_path)
    (tmp_path / one_archive[1]).unlink()
    (tmp_path / "cifar-10-batches-bin/readme.html").write_text("my notes")
    assert fetch("cifar10", tmp_path) == [tmp_path / one_archive[1]]
    assert (tmp_path / "cifar-10-batches-bin/readme.html").read_text() == "my notes"


def test_an_archive_that_is_there_already_is_used_if_right(site, one_archive, tmp_path):
    archive = tmp_path / "cifar.tar.gz"
    archive.write_bytes(b"another archive")
    with pytest.raises(FedtctError, match=r"cifar.tar.gz is not the original"):
        fetch("cifar10", tmp_path)
    assert archive.exists()
    archive.write_bytes(site.files["/cifar.tar.gz"])
    fetch("cifar10", tmp_path)
    assert site.requests == []
    assert not archive.exists()


def test_no_file_has_its_final_name_before_it_is_whole(site, one_archive, one_file, tmp_path):
    seen = []

    def progress(file: str, done: int, total: int | None) -> None:
        seen.extend(path for path in tree(tmp_path) if not path.endswith(".part"))

    fetch("fashion-mnist", tmp_path / "a", progress=progress)
    fetch("cifar10", tmp_path / "b", progress=progress)
    assert seen == ["a/FashionMNIST/raw/images.gz"] * len(seen)


def test_a_folder_that_cannot_be_written(one_file, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FedtctError, match=r"cannot write to .*FEDTCT_DATA"):
        fetch("fashion-mnist", tmp_path / "file")


def test_digits_needs_no_fetching():
    with pytest.raises(FedtctError, match="nothing to fetch"):
        fetch("digits")
    assert verify("digits") == []


def test_unknown_dataset():
    with pytest.raises(FedtctError, match="unknown dataset 'mnist'"):
        fetch("mnist")


def test_every_published_file_has_a_source():
    for name, downloads in fetching.SOURCES.items():
        assert tuple(file for download in downloads for file in download.files) == LAYOUTS[name][0].files
        assert all(len(download.md5) == 32 for download in downloads)
    first = fetching.SOURCES["fashion-mnist"][0]
    assert first.url.endswith("/train-images-idx3-ubyte.gz")
