"""A stage 2 of the user's own, named as module:Class, is run, compared, resumed and reported on as fedtct's are."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fedtct.cli import main
from fedtct.history import Row, as_plain
from fedtct.runs import folder as folder_module
from fedtct.runs.config import RunConfig
from fedtct.runs.folder import RunFolder

MODULE = """
from dataclasses import dataclass

import fedtct


class Same(fedtct.ScaffoldRegression):
    pass


class Network(fedtct.FedAvg):
    pass


class OneStep(fedtct.GradientDescent):
    pass


@dataclass(frozen=True, kw_only=True)
class HeavyBall(fedtct.IterativeRegression):
    beta: float = 0.9

    def round(self, federation, state, number, lr):
        after, replies = super().round(federation, state, number, lr)
        v = self.beta * state.get("v", 0.0) + after["w"] - state["w"]
        return {"w": state["w"] + v, "v": v}, replies


def lighter(**settings):
    return HeavyBall(beta=0.5, **settings)


def nothing(**settings):
    return settings


def picky():
    return HeavyBall()
"""
SMALL = ["--limit", "200", "--local-epochs", "1"]
FEW = [*SMALL, "--split", "classes:2", "--silos", "5", "--rounds", "1,4", "--p", "200", "--steps", "10"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stage 2 of one's own in the folder of the commands."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_stage2", raising=False)
    (tmp_path / "my_stage2.py").write_text(MODULE)
    return tmp_path


def run(out: str, *words: str) -> list[dict[str, object]]:
    """A run of TCT on the command line; its rows."""
    assert main(["run", *FEW, *words, "--out", out, "--json"]) == 0
    return rows(out)


def rows(path: str) -> list[dict[str, object]]:
    return [{k: v for k, v in as_plain(row).items() if k != "seconds"} for row in RunFolder.read(path).history]


def test_what_changes_nothing_gives_what_its_parent_gives_with_the_settings_of_the_run() -> None:
    settings = ("--stage2-lr", "0.0001", "--evaluate-every", "2")
    usual = run("a", *settings)
    assert run("b", "--stage2", "my_stage2:Same", *settings) == usual != run("c", "--stage2", "my_stage2:Same")
    steps = ("--steps", "20")
    assert run("d", "--stage2", "my_stage2:Same", *settings, *steps) == run("e", *settings, *steps) != usual
    descent = run("f", "--stage2", "gradient-descent")
    assert run("g", "--stage2", "my_stage2:OneStep") == descent
    assert run("h", "--stage2", "my_stage2:HeavyBall") != run("i", "--stage2", "my_stage2:lighter")


def test_it_goes_on_with_what_it_keeps_between_rounds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "CHECKPOINT_SHARE", 1.0)
    own = ("--stage2", "my_stage2:HeavyBall")
    whole = run("whole", *own)
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "record", stopped_at(3))
        assert main(["run", *FEW, *own, "--out", "stopped", "--json"]) == 130
    assert len(RunFolder.read("stopped").history) == len(whole) - 2
    assert 'stage2 = "my_stage2:HeavyBall"' in (folder / "stopped" / "config.toml").read_text()
    assert main(["run", "--resume", "stopped", "--json"]) == 0
    assert rows("stopped") == whole


def stopped_at(number: int) -> Callable[[RunFolder, Row], None]:
    """What keeps rows until a round of stage 2, where somebody presses Ctrl-C."""
    record = RunFolder.record

    def until(folder: RunFolder, row: Row) -> None:
        if (row.stage, row.round) == ("stage2", number):
            raise KeyboardInterrupt
        record(folder, row)

    return until


@pytest.mark.drawn
def test_it_has_its_name_in_tables_plots_and_reports_even_where_it_cannot_be_imported(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ("--stage2", "my_stage2:HeavyBall")
    assert main(["compare", "--methods", "fedavg,tct", *FEW, *own, "--out", "both"]) == 0
    assert "tct by my_stage2:HeavyBall" in capsys.readouterr().out
    assert "TCT by HeavyBall" in next((folder / "both" / "plots").rglob("*.svg")).read_text()
    assert main(["run", *FEW, *own, "--stage1", "scaffold", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["method"] == "tct after scaffold by my_stage2:HeavyBall"
    there = "runs/digits-tct-after-scaffold-by-my_stage2HeavyBall-classes2-seed0"
    assert "my_stage2" in json.loads((folder / there / "environment.json").read_text())[0]["own_code"]
    run("usual")
    (folder / "my_stage2.py").unlink()
    del sys.modules["my_stage2"]
    assert main(["report", "both", there, "usual", "--out", "all.html"]) == 0
    page = (folder / "all.html").read_text()
    assert "--stage2 my_stage2:HeavyBall" in page
    for label in ("TCT takes", "TCT by HeavyBall takes", "TCT after SCAFFOLD by HeavyBall takes"):
        assert label in page
    assert re.search(r"TCT by HeavyBall takes steps of [\d.]+\.[ <]", page)  # nobody knows where they would diverge


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("newton", "unknown stage2 'newton'"),
        ("my_stage2:Nobody", "there is no my_stage2:Nobody to import"),
        ("my_stage2:nothing", "my_stage2:nothing is not a method: it must be, or return, a fedtct.Stage2, not dict"),
        ("my_stage2:fedtct", "my_stage2:fedtct is not a function but module"),
        ("my_stage2:Network", "my_stage2:Network is not a method: it must be, or return, a fedtct.Stage2, not Network"),
        ("my_stage2:picky", "my_stage2:picky does not work with the settings steps, lr, rounds, evaluate_every"),
        ("my_stage2:Same --epsilon 1", "leave it out with a method of yours"),
        ("my_stage2:Same --rounds 2", "tct has two stages"),
        ("my_stage2:Same --stage2-lr -1", "lr, if not 'auto', must be positive"),
    ],
)
def test_what_is_wrong_with_it_is_said_before_any_work(
    words: str, told: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *FEW, "--out", "a", "--stage2", *words.split()]) == 2
    assert told in capsys.readouterr().err
    assert not (folder / "a").exists()


def test_what_it_may_read_is_not_called_unread(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--stage2-lr", "0.0001", "--evaluate-every", "2", "--ridge", "1")
    run("a", "--stage2", "my_stage2:Same", *words)
    said = capsys.readouterr().err
    assert "--ridge has no effect here: it is for stage 2 by ridge" in said
    assert said.count("has no effect here") == 1
    assert (
        main(
            ["run", "--method", "fedavg", "--rounds", "1", *SMALL, "--stage2", "my_stage2:Same", "--out", "b", "--json"]
        )
        == 0
    )
    assert "--stage2 has no effect here: it is for tct" in capsys.readouterr().err


def test_it_takes_as_many_rounds_as_others_if_nobody_says() -> None:
    assert RunConfig.of(stage2="my_stage2:Same").rounds == RunConfig.of(stage2="scaffold").rounds == (100, 100)
