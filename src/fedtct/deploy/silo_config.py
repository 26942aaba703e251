"""What a silo says about itself, in a silo.toml of its own: its name, where its data is, how to reach the server."""

import os
import re
import secrets
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from fedtct.agreement import check_private
from fedtct.data.image_files import check_image_size
from fedtct.data.samples import TASKS
from fedtct.data.sources import Reading, read_silo, unread
from fedtct.data.texts import composed
from fedtct.deploy.privacy_budget import Budget
from fedtct.deploy.settings import check_settings
from fedtct.errors import FedtctError, check_one_of, check_positive
from fedtct.files import fingerprint, glance
from fedtct.hardware.devices import pick_device, pick_precision
from fedtct.importing import import_function, is_function_name
from fedtct.privacy import check_budget
from fedtct.runs.places import check_place
from fedtct.runs.settings import DELTA, HOLDOUT
from fedtct.runs.toml import parse_toml
from fedtct.silo import Silo

SECRET, SECRET_BYTES = "noise.key", 32
RUNS = "fedtct-runs"  # in the cache


@dataclass(frozen=True)
class SiloConfig:
    """A silo. Paths are relative to the file that it was read from."""

    name: str
    data: str  # an .npz, .csv or .parquet file, a folder of class-named image folders, or module:function
    target: str = ""  # for tables: the column that is to be learnt
    task: str = "auto"  # or classification, regression
    holdout: float = HOLDOUT
    classes: tuple[str, ...] = ()  # for image folders: refuse any other class; silos agree on the union in any case
    image_size: tuple[int, ...] = ()  # (channels,) height, width that images are made to have
    texts: tuple[str, ...] = ()  # for tables: columns whose numbers are codes
    ignore: tuple[str, ...] = ()  # for tables: columns to leave out
    group: str = ""  # for tables: the column that says whose a row is; all rows of one are held out or none
    epsilon: float = 0.0  # differential privacy that this silo insists on, in all runs together; 0: what runs say
    delta: float = DELTA
    server: str = "127.0.0.1:8000"
    ca: str = "ca.crt"
    key: str = ""  # this silo's private key
    device: str = "auto"
    precision: str = "auto"  # of networks: fp32, bf16, or auto, bf16 on a GPU but for rows of numbers
    cache: str = "cache"
    cache_gb: float = 50.0
    folder: Path = Path()

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w-]+", self.name):
            raise FedtctError(f"'{self.name}' cannot be a silo's name: use letters, digits, - and _")
        check_one_of(TASKS, task=self.task)
        check_positive(cache_gb=self.cache_gb)
        if self.epsilon:
            check_budget(self.epsilon, self.delta)
        check_image_size(self.image_size)

    @classmethod
    def read(cls, path: str | Path) -> "SiloConfig":
        """The silo that a file describes."""
        path = Path(path).expanduser()
        return cls.of(parse_toml(path), path)

    @classmethod
    def of(cls, values: dict[str, Any], path: Path) -> "SiloConfig":
        """The silo of these settings, checked by name and kind."""
        usual = {spec.name: spec.default for spec in fields(cls) if spec.name != "folder"}
        needed = ("name", "data")
        check_settings(values, usual | dict.fromkeys(needed, ""), str(path))
        for name in needed:
            if name not in values:
                raise FedtctError(f"{path} does not set {name}")
        given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return replace(cls(**given), folder=path.absolute().parent)

    def path(self, text: str) -> Path:
        """A path that this file gives, which may be relative to it."""
        return self.folder / Path(text).expanduser()

    def runs(self) -> Path:
        """The folder for what is kept during runs; all in it is this silo's, while ``cache`` may be shared."""
        return self.path(self.cache) / RUNS / self.name

    def secret(self) -> str:
        """What this silo's noise is drawn with: made once, and known to nobody else."""
        file = self.path(SECRET)
        if not file.exists():
            _make_secret(file)
        secret = file.read_text().strip()
        if len(secret) < 2 * SECRET_BYTES:
            raise FedtctError(
                f"{file} is empty or cut off, and noise drawn with it could be guessed: delete it, and start a new run"
            )
        return secret

    def fingerprint(self) -> str:
        """A digest of the data's files and how they are read; empty if a function returns the data."""
        return self._name_of_data(fingerprint)

    def glance(self) -> str:
        """A digest of the files' sizes and times: while it is the same, so is the fingerprint."""
        return self._name_of_data(glance)

    def _name_of_data(self, name_of: Callable[[Path], str]) -> str:
        path, how = self.path(self.data), (*Reading.of(self), self.holdout, self.classes)
        try:
            return f"{name_of(path)}, read by {how}" if path.exists() else ""
        except OSError:  # reading the data will fail, too, and say why
            return ""

    def budget(self) -> Budget | None:
        """The limit on what this silo tells about its samples, if it has set one."""
        return Budget(self.epsilon, self.delta, self.folder) if self.epsilon else None

    def load(self) -> Silo:
        """The silo with its data; refused where it could not work with it."""
        pick_precision(self.precision, pick_device(self.device))
        for place in (self.folder, self.path(self.cache)):
            check_place(place)
        try:
            x, y, groups = self._samples()
            self._warn_of_unread(self.path(self.data))
            silo = Silo(x, y, task=self.task, holdout=self.holdout, groups=groups, name=self.name)
            if self.epsilon:
                check_private(told := silo.describe(private=True))
                _refuse_tokens(told["kind"])
            return silo
        except FedtctError:
            raise
        except Exception as error:  # what the silo's own function, or a library, says of the data stays here
            raise FedtctError(f"{self.name}: its data, {self.data}, cannot be loaded", error) from error

    def _samples(self) -> tuple[Any, Any, Any]:
        path = self.path(self.data)
        if path.is_file() or path.is_dir() or path.suffix == ".npz":
            if self.classes and path.is_dir():
                self._check_classes(path)
            return read_silo(path, Reading.of(self))
        if not is_function_name(self.data):
            raise FedtctError(
                f"{self.name}: there is no data at {path}; give an .npz, .csv or .parquet file, a folder of images, "
                "or module:function"
            )
        samples = import_function(self.data, self.folder)()
        if not isinstance(samples, tuple | list) or len(samples) != 2:
            raise FedtctError(f"{self.data}() must return two things, samples and labels")
        if self.group:
            raise FedtctError(
                f"{self.name}: group names a column of a .csv or .parquet file, not of what a function returns"
            )
        return samples[0], samples[1], None

    def _warn_of_unread(self, path: Path) -> None:
        """Warn of settings that are for another kind of data, and do nothing here."""
        others = unread([path]) | ({} if path.is_dir() else {"classes": "folders of images"})
        for name, what in others.items():
            if getattr(self, name):
                warnings.warn(f"{name} in silo.toml has no effect here: it is for {what}", stacklevel=2)

    def _check_classes(self, folder: Path) -> None:
        known = set(map(composed, self.classes))
        if unknown := sorted(f.name for f in folder.iterdir() if f.is_dir() and composed(f.name) not in known):
            raise FedtctError(f"{folder / unknown[0]} is not one of the classes in silo.toml")


def _refuse_tokens(kind: str) -> None:
    """Refuse tokens where there is a budget: whether a model can take them would tell which there are."""
    if kind == "int64":
        raise FedtctError("a silo with an epsilon of its own takes real numbers and pixels, not tokens")


def _make_secret(file: Path) -> None:
    """Make the file whole or not at all, readable by its owner alone; if two processes do, the first prevails."""
    descriptor, whole = tempfile.mkstemp(dir=file.parent, prefix=file.name)
    try:
        with os.fdopen(descriptor, "w") as new:
            new.write(secrets.token_hex(SECRET_BYTES))
            new.flush()
            os.fsync(new.fileno())
        with suppress(FileExistsError):
            os.link(whole, file)
    finally:
        os.unlink(whole)
