"""The law of resuming: stopped anywhere and gone on with, a run ends as if it had never been stopped."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtct.cli import main
from fedtct.errors import FedtctError
from fedtct.files import HALF
from fedtct.history import Checkpoint, Row
from fedtct.least_squares import closed_form
from fedtct.runs import folder as folder_module
from fedtct.runs.checkpoint import rows_at
from fedtct.runs.config import RunConfig
from fedtct.runs.execute import execute
from fedtct.runs.folder import RunFolder
from fedtct.runs.metrics import METRICS

SMALL = {"dataset": "digits", "limit": 120, "silos": 3, "split": "iid", "local_epochs": 1, "batch_size": 16}
TCT = SMALL | {"method": "tct", "p": 300, "d": 200, "steps": 20}
PATIENT = {"holdout": 0.2, "patience": 2}
RUNS: dict[str, dict[str, Any]] = {
    "fedavg": SMALL | {"method": "fedavg", "rounds": 3},
    "scaffold": SMALL | {"method": "scaffold", "rounds": 3},
    "feddyn": SMALL | {"method": "feddyn", "rounds": 3},
    "fedadam that runs out of patience": SMALL | PATIENT | {"method": "fedadam", "rounds": 8, "server_lr": 1.0},
    "fedavg, rated every other round": SMALL | {"method": "fedavg", "rounds": 3, "evaluate_every": 2},
    "fedavg of the last layer": SMALL | {"method": "fedavg-last-layer", "rounds": 3},
    "tct by scaffold": TCT | {"rounds": (2, 3)},
    "tct by scaffold with patience": TCT | PATIENT | {"rounds": (2, 3), "patience": 1},
    "tct by ridge": TCT | {"rounds": 2, "stage2": "ridge"},
    "tct by conjugate gradients": TCT | {"rounds": (1, 4), "stage2": "conjugate-gradient"},
    "tct without labels": TCT | {"rounds": (2, 1), "pretext": "rotations"},
}


class Stop(Exception):
    """The run is killed."""


class Doomed(RunFolder):
    """Is killed at the n-th moment: before or after a row is written, or a checkpoint."""

    left = 10**9

    def _moment(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Stop

    def record(self, row: Row) -> None:
        self._moment()
        super().record(row)
        self._moment()

    def save(self, stage: str, checkpoint: Checkpoint) -> None:
        self._moment()
        super().save(stage, checkpoint)
        self._moment()


def run(folder: RunFolder) -> dict[str, Any]:
    execute(folder)
    return outcome(folder.path)


def outcome(path: Path) -> dict[str, Any]:
    """All that must not depend on stops."""
    rows = [json.loads(line) for line in (path / METRICS).read_text().splitlines()]
    model = {file.name: file.read_bytes() for file in sorted((path / "model").iterdir())}
    return {"rows": [{k: v for k, v in row.items() if k != "seconds"} for row in rows], "model": model}


class Watched(Doomed):
    """Goes on at every moment, and keeps a copy of what is on the disk: what a kill would leave there."""

    def _moment(self) -> None:
        self.left -= 1
        shutil.copytree(self.path, self.path.parent / f"{self.left}")


@pytest.mark.parametrize("share", [1.0, 0.05], ids=["every round saved", "some rounds saved"])
@pytest.mark.parametrize("name", RUNS)
def test_a_run_killed_at_any_moment_and_resumed_ends_the_same(
    name: str, share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_module, "CHECKPOINT_SHARE", share)
    expected = run(Watched.create(tmp_path / "whole", RunConfig.of(**RUNS[name])))
    stopped = [path for path in sorted(tmp_path.iterdir(), reverse=True) if path.name != "whole"]
    assert len(stopped) >= 8
    for moment, path in enumerate(stopped):
        assert run(RunFolder.resume(path)) == expected, f"stopped at moment {moment} of {len(stopped)}"


def test_a_run_may_be_killed_again_and_again(tmp_path: Path) -> None:
    config = RunConfig.of(**RUNS["tct by scaffold"])
    expected = run(RunFolder.create(tmp_path / "whole", config))
    path, stops = tmp_path / "stopped", 0
    folder: RunFolder = Doomed.create(path, config)
    while not folder.finished:
        folder.left = 5 if stops < 100 else 10**9  # type: ignore[attr-defined]
        try:
            run(folder)
        except Stop:
            stops += 1
            folder = Doomed.resume(path)
    assert 2 < stops < 100
    assert outcome(path) == expected


@pytest.mark.filterwarnings("ignore:the Gram matrix")
@pytest.mark.parametrize("shares", [(1.0, 0.0), (0.0, 1.0)], ids=["decomposed, then not", "not, then decomposed"])
def test_a_run_goes_on_where_less_or_more_memory_is_left(
    shares: tuple[float, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = RunConfig.of(**RUNS["tct by scaffold"] | {"p": 25, "steps": 100})  # more samples than features
    execute(RunFolder.create(tmp_path / "whole", config))
    doomed = Doomed.create(tmp_path / "stopped", config)
    doomed.left = 27  # in stage 2, with two rounds saved
    monkeypatch.setattr(folder_module, "CHECKPOINT_SHARE", 1.0)
    monkeypatch.setattr(closed_form, "GRAM_SHARE", shares[0])
    with pytest.raises(Stop):
        execute(doomed)
    assert rows_at(tmp_path / "stopped" / "checkpoints" / "stage2.safetensors") == 7
    monkeypatch.setattr(closed_form, "GRAM_SHARE", shares[1])
    execute(RunFolder.resume(tmp_path / "stopped"))
    whole, resumed = (RunFolder.read(tmp_path / name).fit() for name in ("whole", "stopped"))
    assert resumed.model.linear.w.numpy() == pytest.approx(whole.model.linear.w.numpy(), abs=1e-4)  # type: ignore[attr-defined]


def test_half_a_line_and_half_a_checkpoint_are_dropped(tmp_path: Path) -> None:
    config = RunConfig.of(**RUNS["scaffold"])
    expected = run(RunFolder.create(tmp_path / "whole", config))
    doomed = Doomed.create(tmp_path / "stopped", config)
    doomed.left = 9  # type: ignore[attr-defined]
    with pytest.raises(Stop):
        run(doomed)
    with (doomed.path / METRICS).open("a") as file:
        file.write('{"stage": "stage1", "rou')
    (doomed.path / "checkpoints" / "stage1.safetensors.half").write_bytes(b"half")
    (doomed.path / "model.half").mkdir()
    left = [doomed.path / part / f"x.safetensors.0123abcd{HALF}" for part in ("checkpoints", "model")]
    for file in left:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"half")
    resumed = RunFolder.resume(doomed.path)
    assert not [file for file in left if file.exists()]
    left[0].write_bytes(b"half")
    assert run(resumed) == expected
    assert not left[0].exists()


def test_a_process_that_is_killed_by_the_system_can_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--limit", "200", "--silos", "4", "--method", "scaffold", "--rounds", "30", "--local-epochs", "2"]

    def fedtct(*words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "fedtct", "run", "--json", *words]
        return subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )

    monkeypatch.chdir(tmp_path)
    assert main(["run", "--json", *options, "--out", "whole"]) == 0
    process = fedtct(*options, "--out", "stopped")
    metrics, deadline = tmp_path / "stopped" / METRICS, time.monotonic() + 120
    while not (metrics.is_file() and metrics.read_bytes().count(b"\n") > 3):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait(60) == -signal.SIGKILL
    assert not (tmp_path / "stopped" / "model").exists()
    assert fedtct("--resume", "stopped").wait(120) == 0
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "whole")


def test_a_run_that_goes_on_with_other_data_says_so(tmp_path: Path) -> None:
    def write(samples: int) -> None:
        (tmp_path / "silos").mkdir(exist_ok=True)
        np.savez(tmp_path / "silos" / "north.npz", x=np.eye(samples, 5), y=np.arange(samples) % 2)

    write(20)
    config = RunConfig.of(data=str(tmp_path / "silos"), method="fedavg", rounds=2)
    doomed = Doomed.create(tmp_path / "a", config)
    doomed.left = 4
    with pytest.raises(Stop):
        run(doomed)
    write(10)
    with pytest.warns(UserWarning, match="north now trains on 8 samples, not on 16 as when the run began"):
        execute(RunFolder.resume(tmp_path / "a"))


def test_a_run_goes_on_with_its_own_silos_alone(tmp_path: Path) -> None:
    data = tmp_path / "silos"
    data.mkdir()
    draws = np.random.default_rng(0)
    for name in ("east", "north", "south"):
        np.savez(data / f"{name}.npz", x=draws.normal(size=(16, 3)), y=np.arange(16) % 2)
    folder = Doomed.create(tmp_path / "run", RunConfig.of(data=str(data), method="scaffold", rounds=3))
    folder.left = 8
    with pytest.raises(Stop):
        execute(folder)
    (data / "east.npz").rename(data / "west.npz")  # others' corrections would be taken for theirs
    with pytest.raises(FedtctError, match="lacks 'east', which the run was started with and holds 'west', which"):
        execute(RunFolder.resume(tmp_path / "run"))
    (data / "west.npz").rename(data / "east.npz")
    execute(RunFolder.resume(tmp_path / "run"))


def test_where_all_data_is_in_one_place_there_are_no_silos_to_miss(tmp_path: Path) -> None:
    folder = Doomed.create(tmp_path / "run", RunConfig.of(**SMALL, method="centralized", rounds=2))
    folder.left = 5
    with pytest.raises(Stop):
        execute(folder)
    execute(RunFolder.resume(tmp_path / "run"))


def test_what_is_shown_of_stage_2_is_of_the_steps_that_it_took(tmp_path: Path) -> None:
    class Stopped(RunFolder):
        def record(self, row: Row) -> None:
            if row.stage == "stage2":  # its step size is written down, and nothing of it saved
                raise Stop
            super().record(row)

    folder = Stopped.create(tmp_path / "run", RunConfig.of(**TCT | {"rounds": (1, 2), "stage2_lr": 1e-6}))
    with pytest.raises(Stop):
        execute(folder)
    finding = folder.finding("stage2")
    assert finding is not None
    assert finding["step_size"] == 1e-6
    resumed = RunFolder.resume(tmp_path / "run", {"stage2_lr": "auto"})
    execute(resumed)
    finding = resumed.finding("stage2")
    assert finding is not None
    assert finding["step_size"] == pytest.approx(0.95 * finding["diverges_from"])
