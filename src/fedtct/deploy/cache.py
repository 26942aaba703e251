"""What a silo keeps on its own disk between questions, as a new process answers each: memory, features, images.

Files are safetensors with a checksum, replaced whole. A file that cannot be read, or whose checksum is wrong, counts as
missing, and is built again.
"""

import os
import shutil
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fedtct.errors import FedtctError
from fedtct.files import drop_halves, read_json, replacing, write_json
from fedtct.training import Memory

FEATURES, FROZEN, CHECKSUM = "features.safetensors", "frozen.safetensors", "checksum"
SAMPLES, DATA = "samples.safetensors", "data.json"
KEEP_SECONDS = 30 * 24 * 3600.0  # what is kept for a run whose end the silo never heard of


class DataMarks(NamedTuple):
    """Fingerprints of a silo's data; empty if unknown."""

    begun: str  # when the silo first heard of the run
    now: str
    glance: str  # of the files' sizes and times, now
    before: str  # at the question before this one

    @property
    def is_other(self) -> bool:
        """Whether the data is not what it was when the run began."""
        return self.now != "" and self.now != self.begun


class RunCache:
    """One run's part of a silo's cache. All runs together take ``limit`` bytes at most: the oldest make room."""

    def __init__(self, root: Path, run: str, limit: int) -> None:
        self.root, self.folder, self.limit = root, root / run, limit

    def memory(self, position: int) -> dict[str, Memory]:
        """What the silo remembered after a round; empty if nothing."""
        tensors, _ = _read(self._round(position)) or ({}, {})
        memory: dict[str, Memory] = {}
        for key, tensor in tensors.items():
            stage, name = key.split("/")
            memory.setdefault(stage, {})[name] = tensor
        return memory

    def remember(self, position: int, memory: Mapping[str, Memory], last: int) -> None:
        """Keep the memory after a round, and that after round ``last``: this round may not count, or be asked again.

        Memory of later rounds stays, because this answer may be late. Should the run have gone on from an earlier round
        since, it does no harm: a silo goes on only from rounds that it has answered, and so overwritten, after that.
        Every round removes the memory of those before it, so that nothing piles up.
        """
        tensors = {f"{stage}/{name}": t for stage, part in memory.items() for name, t in part.items()}
        if tensors:
            self._write(self._round(position), tensors, {})
        else:
            self._round(position).unlink(missing_ok=True)
        for number in self._rounds():
            if number < position and number != last:
                self._round(number).unlink(missing_ok=True)

    def features(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """Features and which ones they are; empty if there are none."""
        return _read(self.folder / FEATURES) or ({}, {})

    def keep_features(self, tensors: Mapping[str, Tensor], which: Mapping[str, str]) -> None:
        """Replace the features."""
        self._write(self.folder / FEATURES, tensors, which)

    def drop_features(self) -> None:
        """Remove the features."""
        (self.folder / FEATURES).unlink(missing_ok=True)

    def drop_all_of_the_data(self) -> None:
        """Remove features and memory: the data that they were made of has changed."""
        self.drop_features()
        for number in self._rounds():
            self._round(number).unlink(missing_ok=True)

    def frozen(self) -> dict[str, Tensor]:
        """The weights that are not trained; empty if there are none."""
        tensors, _ = _read(self.folder / FROZEN) or ({}, {})
        return tensors

    def keep_frozen(self, tensors: Mapping[str, Tensor]) -> None:
        """Replace the weights that are not trained."""
        self._write(self.folder / FROZEN, tensors, {})

    def samples(self, data: str) -> list[Any]:
        """The parts of the samples of data with this fingerprint; none if they are not kept."""
        tensors, which = _read(self.folder / SAMPLES) or ({}, {})
        parts = [tensors[name] for name in sorted(tensors)] if which.get("data") == data else []
        return [_as_names(part) if part.dtype == torch.int32 else part for part in parts]

    def keep_samples(self, parts: Sequence[Any], data: str) -> None:
        """Keep images and their answers if there is room; if not, they are read again."""
        tensors = {str(n): part if isinstance(part, Tensor) else _as_numbers(part) for n, part in enumerate(parts)}
        if _size(self.root) + sum(tensor.nbytes for tensor in tensors.values()) <= self.limit:
            with suppress(FedtctError, OSError):
                self._write(self.folder / SAMPLES, tensors, {"data": data})

    def data(self, glance: str, fingerprint: Callable[[], str]) -> DataMarks:
        """Which data the silo has now. The fingerprint is computed only if the ``glance`` has changed."""
        file = self.folder / DATA
        known = _read_marks(file)
        now = known["now"] if known and glance and glance == known["glance"] else fingerprint()
        marks = {"begun": known.get("begun", now), "now": now, "glance": glance}
        if now and marks != known:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_json(file, marks)
        return DataMarks(**marks, before=known.get("now", now))

    def forget(self) -> None:
        """Remove all that was kept for the run: it is over."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _round(self, number: int) -> Path:
        return self.folder / f"memory-{number}.safetensors"

    def _rounds(self) -> list[int]:
        return [int(path.stem.removeprefix("memory-")) for path in self.folder.glob("memory-*.safetensors")]

    def _write(self, path: Path, tensors: Mapping[str, Tensor], which: Mapping[str, str]) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_room(sum(tensor.nbytes for tensor in tensors.values()))
        parts = _apart({name: t.detach().cpu().contiguous() for name, t in tensors.items()})
        try:
            with replacing(path) as half:
                save_file(parts, half, metadata=dict(which) | {CHECKSUM: _checksum(parts, which)})
        except SafetensorError as error:  # also if the disk is full
            raise FedtctError(f"cannot write to the silo's cache in {self.root}: is the disk full?", error) from error

    def _make_room(self, size: int) -> None:
        """Remove what killed processes left and old runs; then, until there is room, images and the oldest runs."""
        drop_halves(self.folder)
        drop_old_runs(self.root)
        for samples in self.root.glob(f"*/{SAMPLES}"):  # they can be read again
            if _size(self.root) + size > self.limit:
                samples.unlink(missing_ok=True)
        others = sorted((f for f in self.root.iterdir() if f.is_dir() and f != self.folder), key=_touched)
        for folder in others:
            if _size(self.root) + size > self.limit:
                shutil.rmtree(folder, ignore_errors=True)
        if _size(self.folder) + size > self.limit:
            raise FedtctError(
                f"the cache in {self.root} would grow to {(_size(self.folder) + size) / 1e9:.3g} GB: "
                "raise cache_gb in silo.toml, or use fewer features (p)"
            )


def drop_old_runs(root: Path) -> None:
    """Remove what was kept for runs without a question for long."""
    for folder in root.iterdir() if root.is_dir() else ():
        if folder.is_dir() and time.time() - _touched(folder) > KEEP_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]] | None:
    """A file's tensors and what it says about them; none if it is not there or damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (one cannot go through it)
            which = file.metadata() or {}
    except (SafetensorError, OSError):
        return None
    return (tensors, which) if which.pop(CHECKSUM, "") == _checksum(tensors, which) else None


def _read_marks(path: Path) -> dict[str, str]:
    try:
        return dict(read_json(path))
    except (FedtctError, ValueError, TypeError):
        return {}


def _as_numbers(names: NDArray[np.str_]) -> Tensor:
    """Texts as whole numbers, one for each letter, a row for each text."""
    return torch.from_numpy(names.view(np.int32).reshape(len(names), names.itemsize // 4))


def _as_names(letters: Tensor) -> NDArray[np.str_]:
    return letters.numpy().view(f"U{letters.shape[1]}").ravel()


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, with copies of those that share memory, which safetensors refuses; others are too large to copy."""
    apart: dict[str, Tensor] = {}
    whose: set[int] = set()
    for name, tensor in tensors.items():
        memory = tensor.untyped_storage()
        shares = memory.data_ptr() in whose or memory.nbytes() != tensor.nbytes
        whose.add(memory.data_ptr())
        apart[name] = tensor.clone() if shares else tensor
    return apart


def _checksum(tensors: Mapping[str, Tensor], which: Mapping[str, str]) -> str:
    """A checksum, to notice flipped bits."""
    total = zlib.crc32(repr(sorted(which.items())).encode())
    for name, tensor in sorted(tensors.items()):
        total = zlib.crc32(name.encode(), total)
        if len(values := tensor.reshape(-1)):  # torch has no bytes of an empty tensor
            total = zlib.crc32(values.view(torch.uint8).numpy().data, total)
    return f"{total:08x}"


def _touched(folder: Path) -> float:
    with suppress(FileNotFoundError):
        return max((file.st_mtime for file in _files(folder)), default=folder.stat().st_mtime)
    return 0.0


def _size(folder: Path) -> int:
    return sum(file.st_size for file in _files(folder))


def _files(folder: Path) -> Iterator[os.stat_result]:
    """Sizes and times of all files in a folder, of which other processes may be replacing and removing some."""
    for where, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                yield os.stat(Path(where, name))
