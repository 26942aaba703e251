"""Two processes never write to one run folder."""

import fcntl
import os
from pathlib import Path

import pytest

from fedtct import FedtctError
from fedtct.runs import lock
from fedtct.runs.config import RunConfig
from fedtct.runs.folder import RunFolder

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
    with pytest.raises(FedtctError, match="is in use: another process"):
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
