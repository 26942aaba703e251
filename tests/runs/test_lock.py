"""Two processes never write to one run folder."""

import contextlib
import fcntl
import os
from pathlib import Path

import pytest

from fedtct import FedtctError
from fedtct.history import Checkpoint
from fedtct.runs import lock, plan
from fedtct.runs.compare import comparison
from fedtct.runs.config import RunConfig
from fedtct.runs.execute import execute
from fedtct.runs.folder import RunFolder

SMALL = {"dataset": "digits", "limit": 120, "silos": 3, "split": "iid", "local_epochs": 1, "batch_size": 16}
CONFIG = RunConfig.of(dataset="digits", method="fedavg", rounds=1)


@pytest.fixture
def taken(tmp_path: Path):  # type: ignore[no-untyped-def]
    """A folder that somebody else works in: a lock belongs to who opened the folder."""
    opened = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(opened, fcntl.LOCK_EX)
    yield tmp_path
    os.close(opened)


def test_a_folder_that_is_in_use_is_neither_begun_nor_gone_on_with(taken: Path) -> None:
    folder = RunFolder(taken, CONFIG)
    with pytest.raises(FedtctError, match="is in use by another process"):
        folder.begin("stage1", 1, 0)
    assert not list(taken.iterdir())
    (taken / "config.toml").write_text(CONFIG.to_toml())
    with pytest.raises(FedtctError, match="is in use"):
        RunFolder.resume(taken)


def test_who_holds_a_folder_may_hold_it_again_and_then_let_it_go(tmp_path: Path) -> None:
    lock.hold(tmp_path)
    lock.hold(tmp_path)
    other = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    lock.release(tmp_path)
    lock.release(tmp_path)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)


def test_another_process_may_be_given_time_to_end(taken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def end(seconds: float) -> None:
        pauses.append(seconds)
        monkeypatch.setattr(lock, "_locked", lambda opened: True)

    monkeypatch.setattr(lock.time, "sleep", end)
    lock.hold(taken, seconds=30.0)
    assert pauses == [lock.RETRY_SECONDS]
    lock.release(taken)


class Stopped(RunFolder):
    """Is stopped after some rounds."""

    rounds = 1

    def save(self, stage: str, checkpoint: Checkpoint) -> None:
        super().save(stage, checkpoint)
        if checkpoint.round == self.rounds:
            raise KeyboardInterrupt


@pytest.mark.parametrize("to_its_end", [True, False])
def test_of_two_runs_with_one_new_folder_the_second_to_begin_is_refused(to_its_end: bool, tmp_path: Path) -> None:
    """And takes nothing of the first for its own, however long it read its data."""
    slow = RunFolder.create(tmp_path / "a", RunConfig.of(**SMALL, method="fedavg", rounds=5, seed=1))
    fast = (RunFolder if to_its_end else Stopped).create(
        tmp_path / "a", RunConfig.of(**SMALL, method="fedavg", rounds=2)
    )
    with contextlib.nullcontext() if to_its_end else pytest.raises(KeyboardInterrupt):
        execute(fast)
    lock.release(tmp_path / "a")  # the process ends
    before = {path: path.read_bytes() for path in (tmp_path / "a").rglob("*") if path.is_file()}
    assert not slow.finished
    with pytest.raises(FedtctError, match="a exists: choose another folder with --out, or resume it with --resume"):
        execute(slow)
    assert {path: path.read_bytes() for path in (tmp_path / "a").rglob("*") if path.is_file()} == before
    assert lock.hold(tmp_path / "a")  # it is let go again
    lock.release(tmp_path / "a")


def test_of_two_plans_with_one_new_folder_the_second_to_begin_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (comparison(["fedavg"], ["iid"], [seed], SMALL | {"rounds": 1}) for seed in (0, 1))
    rehearse = plan.rehearse

    def while_the_first_runs(config: RunConfig) -> None:
        monkeypatch.setattr(plan, "rehearse", rehearse)
        first.execute(tmp_path / "a")

    monkeypatch.setattr(plan, "rehearse", while_the_first_runs)
    with pytest.raises(FedtctError, match="a exists: choose another folder"):
        second.execute(tmp_path / "a")
    assert plan.Plan.read(tmp_path / "a") == first


def test_a_plan_that_is_carried_out_is_not_gone_on_with(taken: Path) -> None:
    several = comparison(["fedavg"], ["iid"], [0], SMALL | {"rounds": 1})
    several.write(taken)
    with pytest.raises(FedtctError, match="is in use"):
        several.execute(taken, resume=True)
