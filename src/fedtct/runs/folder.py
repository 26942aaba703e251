"""A run as a folder: its configuration, a row a round, checkpoints to go on from, and the model it ended with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

import torch

from fedtct.classifier import MODEL_FILE, Classifier, Fit
from fedtct.errors import Diverged, FedtctError
from fedtct.files import drop_halves, read_json, sync, write_json, write_text
from fedtct.hardware.devices import pick_device
from fedtct.history import Checkpoint, Finding, Journal, Record, Row
from fedtct.models import Model
from fedtct.runs.checkpoint import CHECKPOINTS, checkpoint_of, read_checkpoint, write_checkpoint
from fedtct.runs.config import RunConfig
from fedtct.runs.finding_types import DIVERGED, STAGE2, read_finding
from fedtct.runs.lock import hold, release
from fedtct.runs.metrics import METRICS, read_rows, to_line
from fedtct.runs.places import CONFIG as CONFIG
from fedtct.runs.places import free_folder, resuming
from fedtct.runs.provenance import Provenance
from fedtct.runs.rewind import rewind
from fedtct.runs.settings import as_value, read_toml
from fedtct.runs.toml import as_toml
from fedtct.runs.watcher import Watcher

AGREEMENT, MODEL, FINDINGS = "agreement.json", "model", "findings"
CHECKPOINT_SHARE = 0.1  # the largest part of a run's time for checkpoints; lost rounds are computed again


class RunFolder(Journal):
    """A journal on disk. Nothing is written before the first stage begins, so that bad input leaves nothing behind."""

    engine: ClassVar[str] = "fedtct run"  # the command that begins and resumes such a run
    lock_seconds: ClassVar[float] = 0.0  # how long to wait for another process with this folder to end
    early: ClassVar[tuple[str, ...]] = ()  # names that may be in the folder before the run begins

    def __init__(self, path: Path, config: RunConfig, watcher: Watcher | None = None) -> None:
        super().__init__()
        self.path, self.config, self.watcher = path, config, watcher or Watcher()
        self.provenance = Provenance(path, config)
        self._opened = False
        self._new = False  # not on disk yet: whatever is in the folder is another process's
        self._agreement: Record | None = None  # a new run's, to be written when it begins
        self._next_save = 0.0  # by the clock of time.monotonic

    @classmethod
    def create(cls, path: str | Path, config: RunConfig, watcher: Watcher | None = None) -> Self:
        """A new run; the folder must not be in use."""
        folder = cls(free_folder(path), config, watcher)
        folder._new, folder.provenance = True, Provenance(folder.path, config, new=True)
        return folder

    @classmethod
    def resume(
        cls, path: str | Path, overrides: Mapping[str, Any] | None = None, watcher: Watcher | None = None
    ) -> Self:
        """A stopped run, at its last checkpoint; ``overrides`` must not contradict its settings."""
        path = Path(path)
        if not (path / CONFIG).is_file():
            raise FedtctError(f"{path} is not a run that can be resumed: there is no {CONFIG} in it")
        there, given = read_settings(path), dict(overrides or {})
        check_same(path, RunConfig.of(**there), given)
        folder = cls(path, RunConfig.of(**there | given), watcher)
        if not folder.finished:
            folder._check_engine()
            hold(path, cls.lock_seconds)
            folder._drop_halves()
        if not folder.finished:  # asked again: the process that held the folder may have come to the end
            rewind(path)
            if not checkpoint_of(path, "stage2").is_file():  # stage 2 begins anew, perhaps with other steps
                folder._finding(STAGE2).unlink(missing_ok=True)
        folder.history = read_rows(path)
        return folder

    @classmethod
    def read(cls, path: str | Path) -> RunFolder:
        """A run as it is, to look at: nothing is changed, even if somebody is running it."""
        path = Path(path)
        if not (path / CONFIG).is_file():
            raise FedtctError(f"{path} is not a run: there is no {CONFIG} in it")
        folder = cls(path, RunConfig.of(**read_settings(path)))
        folder.history = read_rows(path)
        return folder

    @property
    def finished(self) -> bool:
        """Whether the run came to its end: the model is the last thing it writes."""
        return self._has(self.path / MODEL / MODEL_FILE)

    def fit(self) -> Fit:
        """What a finished run ended with."""
        return Fit(Classifier.load(self.path / MODEL, own_model(self.config), self.config.device), self.history)

    def agreement(self) -> Record | None:
        """What the silos agreed on when the run began; none if it is new."""
        path = self.path / AGREEMENT
        found: Record | None = read_json(path) if self._has(path) else None
        return found

    def keep_agreement(self, agreement: Record) -> None:
        """Keep the agreement, to be written when the first stage begins."""
        self._agreement = agreement

    def begin(self, stage: str, rounds: int, done: int) -> None:
        """Open the folder for writing, once."""
        if not self._opened:
            self.path.mkdir(parents=True, exist_ok=True)
            self._take()
            write_text(self.path / CONFIG, self.config.to_toml())  # first: a run with it can be resumed
            if self._agreement is not None:
                write_json(self.path / AGREEMENT, self._agreement)
            (self.path / CHECKPOINTS).mkdir(exist_ok=True)
            self.provenance.add_sitting(self.engine)
            self._finding(DIVERGED).unlink(missing_ok=True)  # training is tried again
            self._opened = True
            if promise := self.config.promise():  # not earlier: silos or settings might have been refused
                self.watcher.say(promise)
        self.watcher.begin(stage, rounds, done)

    def record(self, row: Row) -> None:
        """Append the row to metrics.jsonl."""
        super().record(row)
        with (self.path / METRICS).open("a", encoding="utf-8") as file:
            file.write(to_line(row))
        self.watcher.record(row)

    def save(self, stage: str, checkpoint: Checkpoint) -> None:
        """Replace the stage's checkpoint, if it is time to."""
        if not self.due(stage, checkpoint):
            return
        start = time.monotonic()
        if self.history:
            sync(self.path / METRICS)  # rows must not reach the disk after the checkpoint that counts them
        write_checkpoint(checkpoint_of(self.path, stage), checkpoint, rows=len(self.history))
        end = time.monotonic()
        self._next_save = end + (end - start) * (1 / CHECKPOINT_SHARE - 1)

    def due(self, stage: str, checkpoint: Checkpoint) -> bool:
        """Whether to save: a stage's end always, else if not too much time has gone to checkpoints already."""
        return checkpoint.finished or time.monotonic() >= self._next_save

    def restore(self, stage: str) -> Checkpoint | None:
        """The stage's checkpoint."""
        path = checkpoint_of(self.path, stage)
        return read_checkpoint(path, self.device) if self._has(path) else None

    @property
    def device(self) -> torch.device:
        """The device for the server's part of the work."""
        return pick_device(self.config.device)

    def find_out(self, name: str, find: Callable[[], Finding]) -> None:
        """Find something out and keep it in ``findings``, if it is not there yet."""
        path = self._finding(name)
        if not path.is_file():
            path.parent.mkdir(exist_ok=True)
            write_json(path, find())

    def finding(self, name: str) -> Finding | None:
        """What was found out under this name; none if nothing was."""
        path = self._finding(name)
        return read_finding(path) if self._has(path) else None

    def finish(self, fit: Fit) -> None:
        """Write the model; it appears whole or not at all."""
        fit.model.save(self.path / MODEL)
        self._drop_halves()
        release(self.path)

    @contextmanager
    def telling_why(self) -> Iterator[None]:
        """Around a fit: if training leads to no model, the reason is kept."""
        try:
            yield
        except Diverged as error:
            if not self._new and self.failure != str(error):  # else it is there, and the folder may be read-only
                (self.path / FINDINGS).mkdir(exist_ok=True)
                write_json(self._finding(DIVERGED), {"reason": str(error)})
            release(self.path)
            raise

    @property
    def failure(self) -> str:
        """Why the run has no model, if training led to none."""
        found = None if self.finished else self.finding(DIVERGED)
        return found["reason"] if found else ""

    @property
    def way_out(self) -> str:
        """What to do if stage 2 refused its step size: stage 1 is not lost. Empty for other failures."""
        if not self.failure or not self._has(checkpoint_of(self.path, "convexify")):
            return ""
        return f" Stage 1 is kept: set another stage2_lr (--stage2-lr auto) and resume with `{self.go_on}`"

    def _has(self, path: Path) -> bool:
        """Whether a file of this run is there."""
        return not self._new and path.is_file()

    def _take(self) -> None:
        """Hold the folder. If the run is new, refuse a folder that another process has taken since."""
        taken = hold(self.path, self.lock_seconds)
        try:
            if self._new:
                free_folder(self.path, but=self.early)
        except FedtctError:
            if taken:
                release(self.path)
            raise
        self._new = False

    def _drop_halves(self) -> None:
        """Remove what killed processes left, in the parts where only the holder of the folder writes."""
        for part in (CHECKPOINTS, MODEL):
            drop_halves(self.path / part, seconds=0.0)

    def _finding(self, name: str) -> Path:
        return self.path / FINDINGS / f"{name}.json"

    @property
    def go_on(self) -> str:
        """The command that resumes the run."""
        return resuming(self.begun_with, self.path)

    @property
    def begun_with(self) -> str:
        """The command that the run was begun, or last gone on, with."""
        return self.provenance.engine() or self.engine

    def _check_engine(self) -> None:
        """Refuse a run that another engine began: its silos keep their memory elsewhere."""
        if self.begun_with != self.engine:
            raise FedtctError(f"{self.path} was started with another command: resume it with `{self.go_on}`")


def read_settings(path: Path) -> dict[str, Any]:
    """The settings of the run at a path; refused without a method, as every run's config.toml has one."""
    settings = read_toml(path / CONFIG)
    if "method" not in settings:
        raise FedtctError(f"{path / CONFIG} is damaged: it names no method")
    return settings


def check_same(path: Path, config: RunConfig, given: Mapping[str, Any]) -> None:
    """Refuse settings that are not those of the run at a path.

    Only stage 2's steps may change before it has taken any: else a step size that it refuses would cost stage 1.
    """
    open_to_change = () if checkpoint_of(path, "stage2").is_file() else ("stage2_lr", "steps")
    if different := [name for name in config.differences(given) if name not in open_to_change]:
        pairs = ((name, as_toml(getattr(config, name)), as_toml(as_value(name, given[name]))) for name in different)
        told = "; ".join(f"{name} was {there}, now it is {here}" for name, there, here in pairs)
        raise FedtctError(f"{path} was started with other settings: {told}")


def own_model(config: RunConfig) -> Model | None:
    """The user's own function that makes the model; none if the model is one of fedtct's."""
    model = config.network()
    return None if isinstance(model, str) else model
