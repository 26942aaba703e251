"""The commands as a user types them: what they print, write and return."""

import errno
import json
import re
from pathlib import Path
from typing import Any

import pytest

from fedtct import __version__
from fedtct.cli import main
from fedtct.report.page import write
from fedtct.runs.config import RunConfig
from fedtct.runs.settings import read_toml
from fedtct.tangent import gradients

FEW = ["--limit", "150", "--silos", "3", "--local-epochs", "1", "--p", "200", "--steps", "10"]
SMALL = [*FEW, "--split", "iid"]


class Terminal:
    """Types commands in an empty folder."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capture = folder, capture
        self.out = self.err = ""

    def __call__(self, *words: str) -> int:
        code = main(words)
        self.out, self.err = self.capture.readouterr()
        return code

    def run(self, *words: str) -> dict[str, Any]:
        """A run with --json: its one object."""
        assert self("run", *SMALL, *words, "--json") == 0, self.err
        result: dict[str, Any] = json.loads(self.out)
        return result

    def tree(self) -> dict[str, bytes]:
        return {str(f.relative_to(self.folder)): f.read_bytes() for f in self.folder.rglob("*") if f.is_file()}


@pytest.fixture
def fedtct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDTCT_DATA", raising=False)
    return Terminal(tmp_path, capsys)


@pytest.mark.drawn
def test_a_run_writes_a_folder_and_prints_a_table(fedtct: Terminal) -> None:
    assert fedtct("run", *SMALL, "--method", "tct", "--rounds", "2,2", "--out", "runs/a") == 0
    header, line, where = fedtct.out.splitlines()
    assert header.split()[:3] == ["method", "split", "test"]
    assert line.split()[:2] == ["tct", "iid"]
    assert "2+2+2" in line
    assert where == "everything is in runs/a: look at runs/a/report.html"
    written = set(map(str, fedtct.tree()))
    pictures = {f"runs/a/plots/{name}" for name in ("accuracy-by-round", "accuracy-by-megabyte", "split")}
    assert written > {f"{picture}.{kind}" for picture in pictures for kind in ("png", "svg")}
    assert written > {"runs/a/config.toml", "runs/a/metrics.jsonl", "runs/a/model/model.safetensors"}
    assert "tct  stage 2  round 2 of 2  test" in fedtct.err


def test_json_is_one_object_and_nothing_else(fedtct: Terminal) -> None:
    result = fedtct.run("--method", "fedavg", "--rounds", "2")
    assert [line.split()[2] for line in fedtct.err.splitlines()] == ["--p", "--steps"]  # tct reads them
    assert len(fedtct.out.splitlines()) == 1
    assert (result["method"], result["stage"], result["rounds"]) == ("fedavg", "stage1", "2")
    assert 0 < result["test_accuracy"] < 1
    assert result["bytes_up"] > 0 < result["bytes_down"]


def test_an_option_that_nothing_reads_is_not_ignored_silently(fedtct: Terminal) -> None:
    few = ["--limit", "60", "--silos", "2", "--split", "iid", "--rounds", "1", "--json"]
    assert fedtct("run", *few, "--method", "fedavg", "--mu", "3") == 0
    assert fedtct.err == "fedtct: warning: --mu has no effect here: it is for fedprox\n"
    assert fedtct("compare", *few, "--methods", "fedavg,fedprox", "--mu", "3") == 0
    assert fedtct.err == ""


def test_a_warning_is_shown_once_a_command(fedtct: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "why_not_by_layers", lambda *given: "a test says so")
    few = [*SMALL, "--limit", "60", "--rounds", "1,1", "--out"]
    assert fedtct("run", *few, "a") == 0
    assert fedtct.err.count("a test says so") == 1
    assert fedtct("compare", *few, "b", "--methods", "tct", "--seeds", "2") == 0
    assert fedtct.err.count("a test says so") == 1


def test_folders_are_named_after_runs_and_never_reused(fedtct: Terminal) -> None:
    options = ["--method", "fedavg", "--rounds", "1", "--seed", "4"]
    folders = [fedtct.run(*options)["folder"] for _ in range(3)]
    assert folders == [f"runs/digits-fedavg-iid-seed4{end}" for end in ("", "-2", "-3")]


def test_options_override_the_file(fedtct: Terminal) -> None:
    (fedtct.folder / "run.toml").write_text('method = "fedavg"\nrounds = 3\nlr = 0.5\n')
    result = fedtct.run("--config", "run.toml", "--lr", "0.25", "--no-normalize")
    config = RunConfig.of(**read_toml(Path(result["folder"]) / "config.toml"))
    assert (config.rounds, config.lr, config.normalize, config.limit) == ((3,), 0.25, False, 150)


def test_a_finished_run_is_not_run_again(fedtct: Terminal) -> None:
    first = fedtct.run("--method", "fedavg", "--rounds", "1", "--out", "a")
    before = fedtct.tree()
    assert fedtct("run", "--resume", "a") == 0
    assert "a is finished already" in fedtct.err
    assert fedtct("run", "--resume", "a", "--json") == 0
    assert json.loads(fedtct.out) == first
    assert fedtct.tree() == before


@pytest.mark.parametrize("there", ['model = "elsewhere:build"', 'device = "cuda:99"'])
def test_a_finished_run_shows_its_table_where_its_model_cannot_be_made(there: str, fedtct: Terminal) -> None:
    first = fedtct.run("--method", "fedavg", "--rounds", "1", "--out", "a")
    name = there.split(" = ")[0]
    config = Path("a/config.toml")
    config.write_text(re.sub(rf"(?m)^{name} = .*$", there, config.read_text()))
    assert fedtct("run", "--resume", "a", "--json") == 0, fedtct.err
    assert json.loads(fedtct.out)["test_accuracy"] == first["test_accuracy"]


def test_a_finished_run_shows_its_table_where_nothing_can_be_written(
    fedtct: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    fedtct.run("--method", "fedavg", "--rounds", "1", "--out", "a")
    before = fedtct.tree()

    def refuse(path: Path, text: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(write, "write_text", refuse)
    assert fedtct("run", "--resume", "a") == 0
    assert "the report was not written again: a/report.html: Permission denied" in fedtct.err
    assert fedtct.out.splitlines()[-1] == "everything is in a: look at a/report.html"
    assert fedtct.tree() == before


def test_a_finished_run_without_a_report_points_to_its_numbers(fedtct: Terminal) -> None:
    fedtct.run("--method", "fedavg", "--rounds", "1", "--out", "a")
    Path("a/report.html").unlink()
    Path("a/report.html").mkdir()  # so that no file can be written there, whoever tries
    assert fedtct("run", "--resume", "a") == 0
    assert fedtct.out.splitlines()[-1] == "everything is in a: look at a/metrics.jsonl"


def test_several_learning_rates_are_chosen_from(fedtct: Terminal) -> None:
    options = ["--method", "fedavg", "--rounds", "2", "--lr", "0.1,1e-6", "--holdout", "0.2", "--out", "c"]
    result = fedtct.run(*options)
    assert (result["chosen"], result["folder"]) == ("lr-0.1", "c/lr-0.1")
    assert result["candidates"].keys() == {"lr-0.1", "lr-1e-06"}
    assert fedtct("run", "--resume", "c") == 0
    assert "lr-0.1 (chosen)" in fedtct.out
    (fedtct.folder / "run.toml").write_text("lr = [0.1, 1e-6]\n")
    assert fedtct("run", *SMALL, "--config", "run.toml") == 2
    assert "choosing lr needs held-out samples" in fedtct.err


@pytest.mark.drawn
def test_a_comparison_ends_with_a_table(fedtct: Terminal) -> None:
    options = [*FEW, "--split", "iid,classes:2", "--methods", "fedavg", "--seeds", "2", "--rounds", "2"]
    assert fedtct("compare", *options, "--out", "c") == 0
    lines = [line.split() for line in fedtct.out.splitlines() if "%" in line]
    assert [line[:2] for line in lines] == [["iid", "fedavg"], ["classes:2", "fedavg"]]
    assert all("±" in line for line in lines)
    assert "4/4 fedavg classes:2 seed 1  stage 1  round 2 of 2" in fedtct.err
    for path in (
        "summary.csv",
        "summary.json",
        "plots/iid/accuracy-by-round.pdf",
        "fedavg-iid-seed1/findings/split.json",
    ):
        assert (fedtct.folder / "c" / path).is_file()
    assert not (fedtct.folder / "c" / "fedavg-iid-seed1" / "plots").exists()
    before = fedtct.tree()
    assert fedtct("compare", "--resume", "c", "--json") == 0
    assert len(json.loads(fedtct.out)["table"]) == 2
    assert {
        name for name, content in fedtct.tree().items() if before.get(name) != content and "/plots/" not in name
    } == set()


def test_a_comparison_shows_what_to_choose_by(fedtct: Terminal) -> None:
    options = [*SMALL, "--methods", "fedavg,scaffold", "--seeds", "2", "--rounds", "2"]
    assert fedtct("compare", *options, "--holdout", "0.2", "--out", "c") == 0
    assert "held-out" in fedtct.out
    found = json.loads((fedtct.folder / "c" / "summary.json").read_text())
    for line in found["table"]:
        own = [run["holdout_accuracy"] for run in found["runs"].values() if run["method"] == line["method"]]
        assert line["holdout_accuracy"] == pytest.approx(sum(own) / 2)
    assert "holdout_accuracy" in (fedtct.folder / "c" / "summary.csv").read_text().splitlines()[0]


def test_a_comparison_chooses_a_learning_rate_for_each_method_and_seed(fedtct: Terminal) -> None:
    options = [*SMALL, "--methods", "fedavg,scaffold", "--seeds", "2", "--rounds", "2"]
    assert fedtct("compare", *options, "--lr", "0.1,1e-9", "--holdout", "0.2", "--out", "c") == 0
    title, *lines = [line for line in fedtct.out.splitlines() if "%" in line or "chosen lr" in line]
    assert "chosen lr" in title
    assert [line.split()[1] for line in lines] == ["fedavg", "scaffold"]
    assert all("±" in line for line in lines)
    assert "8/8 scaffold iid seed 1 lr-1e-09  stage 1  round 2 of 2" in fedtct.err
    (line, _) = json.loads((fedtct.folder / "c" / "summary.json").read_text())["table"]
    rates = [json.loads(Path(f"c/fedavg-iid-seed{seed}/choice.json").read_text())["best"] for seed in (0, 1)]
    assert [f"lr-{rate}" for rate in line["chosen_lr"]] == rates
    page = Path("c/report.html").read_text()
    assert "FedAvg (lr" not in page
    assert fedtct("report", "c") == 0
    assert Path("c/report.html").read_text() == page
    before = fedtct.tree()
    assert fedtct("compare", "--resume", "c", "--json") == 0
    assert json.loads(fedtct.out)["table"][0] == line
    assert {
        name for name, content in fedtct.tree().items() if before.get(name) != content and "/plots/" not in name
    } == set()


def test_a_comparison_takes_its_split_from_a_file_unless_it_is_given(fedtct: Terminal) -> None:
    (fedtct.folder / "run.toml").write_text('split = "iid"\nlimit = 100\nsilos = 3\n')
    options = ["compare", "--config", "run.toml", "--methods", "fedavg", "--rounds", "1", "--json"]
    assert fedtct(*options) == 0
    assert [line["split"] for line in json.loads(fedtct.out)["table"]] == ["iid"]
    assert fedtct(*options, "--split", "classes:4") == 0
    assert [line["split"] for line in json.loads(fedtct.out)["table"]] == ["classes:4"]


def test_datasets_are_listed_and_verified(fedtct: Terminal) -> None:
    assert fedtct("data", "list", "--data-dir", "nowhere") == 0
    assert "digits         comes with fedtct" in fedtct.out
    assert "cifar10        not here: fedtct data fetch cifar10" in fedtct.out
    assert fedtct("data", "verify", "--data-dir", "nowhere") == 0
    assert fedtct.out.startswith("nothing to compare: digits comes with fedtct")
    assert fedtct("data", "verify", "cifar10", "--data-dir", "nowhere") == 2
    assert "cifar10        missing" in fedtct.out
    assert fedtct("data", "verify", "digits") == 0
    assert fedtct.out.startswith("nothing to compare")


def test_without_a_command_there_is_help(fedtct: Terminal) -> None:
    assert fedtct() == 0
    assert "demo" in fedtct.out


def test_the_version_can_be_asked_for(fedtct: Terminal) -> None:
    assert fedtct("--version") == 0
    assert fedtct.out == f"fedtct {__version__}\n"


@pytest.mark.drawn
def test_the_card_of_a_run_that_diverged_rates_nobody(fedtct: Terminal) -> None:
    fedtct.run("--method", "fedavg", "--lr", "1e30", "--rounds", "2", "--out", "a")
    assert fedtct("export", "a") == 0
    assert "**Accuracy:** none: training diverged" in fedtct.out
    assert "| silo |" not in fedtct.out


def test_a_step_size_that_stage_2_refuses_can_be_changed_as_is_told(fedtct: Terminal) -> None:
    way_out = "Stage 1 is kept: set another stage2_lr (--stage2-lr auto) and resume with `fedtct run --resume a`\n"
    assert fedtct("run", *SMALL, "--method", "tct", "--rounds", "1,1", "--stage2-lr", "1e9", "--out", "a") == 2
    assert fedtct.err.endswith(way_out)
    assert fedtct("predict", "a", "--input", "b.npz") == 2
    assert fedtct.err.startswith("fedtct: a has no model: stage 2 diverges with lr=1e+09")
    assert fedtct.err.endswith(way_out)
    assert fedtct("run", "--resume", "a", "--stage2-lr", "auto") == 0
    assert fedtct("run", *SMALL, "--method", "tct", "--rounds", "2,1", "--lr", "1e30", "--out", "b") == 2
    assert "stage 1 diverged" in fedtct.err
    assert "go on" not in fedtct.err


@pytest.mark.drawn
def test_the_card_of_a_private_run_tells_how_private_it_is(fedtct: Terminal) -> None:
    spent = fedtct.run("--method", "fedavg", "--epsilon", "5", "--rounds", "2", "--out", "a")["epsilon"]
    assert fedtct("export", "a") == 0
    assert f"**Differential privacy:** ε = {spent:.3g} at δ = " in fedtct.out
