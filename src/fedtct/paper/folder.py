"""Run folders of the paper's evaluation, which can be stopped at a round or a time."""

import shutil
import time
from dataclasses import asdict
from pathlib import Path

from fedtct.errors import FedtctError
from fedtct.history import Checkpoint
from fedtct.models import Weights
from fedtct.runs.checkpoint import write_checkpoint
from fedtct.runs.config import RunConfig
from fedtct.runs.folder import CONFIG, RunFolder

KEPT = "round-{}.safetensors"


class OutOfTime(Exception):
    """The time that was given is over; what was done so far is saved."""


class Paused(Exception):
    """A run has come as far as it is needed for now."""


class PaperRun(RunFolder):
    """A run folder that stops at a round or at a time, and keeps the weights of some rounds."""

    deadline = float("inf")
    pause_at = -1
    keep: frozenset[int] = frozenset()

    def save(self, stage: str, checkpoint: Checkpoint) -> None:
        """Keep what is needed later, and stop when it is time to."""
        if stage == "stage1" and checkpoint.round in self.keep:
            # Before the checkpoint: a run that is stopped between the two must come here again.
            weights = {name: checkpoint.state[name] for name in Weights._fields}
            path = self.path / KEPT.format(checkpoint.round)
            write_checkpoint(path, Checkpoint(checkpoint.round, weights, checkpoint.cost), rows=0)
        pause, late = self._pauses(stage, checkpoint), time.monotonic() > self.deadline
        super().save(stage, checkpoint)
        if pause:
            raise Paused
        if late and not checkpoint.finished:
            raise OutOfTime

    def due(self, stage: str, checkpoint: Checkpoint) -> bool:
        """Also where the run stops."""
        late = time.monotonic() > self.deadline
        return late or self._pauses(stage, checkpoint) or super().due(stage, checkpoint)

    def _pauses(self, stage: str, checkpoint: Checkpoint) -> bool:
        """Whether to stop at this round; not if weights are not finite, because only the next round reports that."""
        there = stage == "stage1" and checkpoint.round == self.pause_at
        return there and bool(checkpoint.state["parameters"].isfinite().all())


def begun(folder: Path) -> bool:
    """Whether there is a run in a folder to go on with."""
    return (folder / CONFIG).is_file()


def new_half(folder: Path) -> Path:
    """An empty place to make a folder in, which is renamed once it is whole: half of one must not pass for a run."""
    half = folder.with_name(f"{folder.name}.half")
    shutil.rmtree(half, ignore_errors=True)
    return half


def resumed(folder: Path, config: RunConfig) -> PaperRun:
    """The run in a folder; refused if it has another configuration."""
    run = PaperRun.resume(folder)
    wanted = {name: value for name, value in asdict(config).items() if name != "init_weights"}  # it may lie elsewhere
    if other := run.config.differences(wanted):
        raise FedtctError(f"{folder} is a run with another {' and '.join(other)}: remove it, or give another --state")
    return run
