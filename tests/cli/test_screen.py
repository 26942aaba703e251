"""What a user sees while a command works: how far it is, how long it will take, and how to go on if it stops."""

import errno
import io
import re
import sys
from pathlib import Path

import pytest
from rich.console import Console

from fedtct.cli import main
from fedtct.cli import screen as module
from fedtct.cli.screen import Screen, percent
from fedtct.history import RATED_ON, Row
from fedtct.runs.folder import RunFolder

SMALL = ["--limit", "100", "--silos", "3", "--split", "iid", "--method", "fedavg", "--rounds", "3"]


def test_bars_and_reports_choose_the_rating_that_counts_in_the_same_order() -> None:
    assert list(module.TITLES) == list(RATED_ON)


def test_counting_tells_how_far_it_is_and_how_long_it_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 4.0, 20.0, 32.0, 40.0])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    tell = Screen().count("predicting")
    for done in (10, 50, 80, 100):
        tell(done, 100)
    assert capsys.readouterr().err.splitlines() == [
        "predicting  50 of 100  about 20 s left",
        "predicting  80 of 100  about 8 s left",
    ]


def test_lines_tell_the_round_that_is_asked_and_how_long_the_rest_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    lines = Screen().watch("fedavg")
    lines.begin("stage1", 4, 0)
    for number in range(3):  # a row is complete after the replies of the round that follows it
        now += 20
        lines.reply("train", 1, 3)
        lines.record(Row("stage1", number, 0, 0, 0.0))
    now += 20
    lines.reply("calibrate", 1, 3)
    assert capsys.readouterr().err.splitlines() == [
        "fedavg  stage 1  round 1 of 4  silo 1 of 3",
        "fedavg  stage 1  round 2 of 4  silo 1 of 3  about 2 min left",
        "fedavg  stage 1  round 3 of 4  silo 1 of 3  about 60 s left",
    ]


@pytest.mark.parametrize("width", [80, 100, 130, 200])
@pytest.mark.parametrize("ratings", ["accuracy", "r2"])
def test_bars_fit_the_terminal_and_tell_the_stage_and_the_time_that_is_left(
    width: int, ratings: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"COLUMNS": str(width), "FORCE_COLOR": "1", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    screen = Screen()
    bars = screen.watch("12/24 fedavg-last-layer dirichlet:0.1 seed 1")
    bars.begin("stage1", 100, 0)
    bars.record(Row("stage1", 100, **{f"{of}_{ratings}": 0.987 for of in ("test", "holdout", "train")}))  # type: ignore[arg-type]
    shown = Console(width=width, force_terminal=False)
    shown.print(screen.bars.make_tasks_table(screen.bars.tasks))
    (line,) = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"12/24 fed.*  stage 1 ━+ 100/100 rounds test [R²]* ?[\d.]+.* left \d:\d\d:\d\d", line.rstrip())


def test_a_full_disk_is_said_in_a_line_and_the_run_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    record = RunFolder.record

    def full(self: RunFolder, row: Row) -> None:
        if row.round == 2:
            raise OSError(errno.ENOSPC, "No space left on device", "a/metrics.jsonl")
        record(self, row)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "record", full)
        assert main(["run", *SMALL, "--out", "a"]) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert told == "fedtct: a/metrics.jsonl: No space left on device; resume with `fedtct run --resume a`"
    assert main(["run", "--resume", "a"]) == 0


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_what_a_terminal_has_no_letter_for_does_not_end_a_command(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, name, io.TextIOWrapper(written, encoding="latin-1", write_through=True))
    private = ["--method", "tct", "--rounds", "0,1", "--stage2", "ridge", "--d", "20", "--epsilon", "8"]
    assert main(["run", *SMALL[:6], *private, "--out", str(tmp_path / "a")]) == 0
    assert main(["export", str(tmp_path / "a"), "--out", str(tmp_path / "model.safetensors")]) == 0
    assert "? = 8 at ? = 1e-05" in written.getvalue().decode("latin-1")


@pytest.mark.parametrize(
    ("share", "text"),
    [(None, "-"), (0.0, "0.0 %"), (1e-9, "<0.1 %"), (0.0004, "<0.1 %"), (0.0006, "0.1 %"), (1, "100.0 %")],
)
def test_a_share_that_is_not_zero_is_not_shown_as_zero(share: float | None, text: str) -> None:
    assert percent(share) == text
