"""TCT's stage 1 is chosen on the command line as it is in Python."""

import json
import sys
from pathlib import Path

import pytest
import torch

import fedtct
from fedtct.cli import main
from fedtct.runs.folder import RunFolder

MODULE = "import fedtct\n\n\nclass Same(fedtct.FedAvg):\n    pass\n\n\nclass Pooled(fedtct.Centralized):\n    pass\n"
FEW = ["--split", "classes:2", "--silos", "5", "--rounds", "2,1", "--local-epochs", "1", "--p", "200", "--steps", "10"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A method of one's own in the folder of the commands."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_stage1", raising=False)
    (tmp_path / "my_stage1.py").write_text(MODULE)
    return tmp_path


def run(out: str, *words: str) -> torch.Tensor:
    """A run of TCT on the command line; the scores of its model."""
    assert main(["run", "--method", "tct", *FEW, *words, "--out", out, "--json"]) == 0
    return RunFolder.read(out).fit().model.scores(fedtct.load_dataset("digits").test.x)


@pytest.mark.parametrize(
    ("words", "stage1"),
    [
        ("--stage1 scaffold", fedtct.Scaffold(rounds=2, local_epochs=1)),
        ("--stage1 fedprox --mu 2", fedtct.FedProx(rounds=2, local_epochs=1, mu=2.0)),
    ],
)
def test_it_gives_the_model_of_that_stage_1_in_python(words: str, stage1: fedtct.Stage1) -> None:
    data = fedtct.load_dataset("digits")
    parts = fedtct.partition(data.train.y, 5, "classes:2", 0)
    silos = [fedtct.Silo(data.train.x[part], data.train.y[part], name=f"silo {k}") for k, part in enumerate(parts)]
    stage2 = fedtct.ScaffoldRegression(rounds=1, steps=10)
    fit = fedtct.TCT("mlp", stage1, fedtct.TangentFeatures(200), stage2).fit(silos, data.test)
    assert torch.equal(run("a", *words.split()), fit.model.scores(data.test.x))


def test_what_changes_nothing_of_fedavg_gives_what_fedavg_gives() -> None:
    usual = run("a")
    for out, words in {"b": "--stage1 fedavg", "c": "--stage1 my_stage1:Same", "d": "--stage1 fedprox --mu 0"}.items():
        assert torch.equal(run(out, *words.split()), usual)


@pytest.mark.drawn
def test_tables_plots_and_reports_tell_it_from_other_stages_1(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "--methods", "fedavg,tct", "--stage1", "scaffold", "--limit", "200"]
    assert main([*words, *FEW, "--out", "both"]) == 0
    assert "tct after scaffold" in capsys.readouterr().out
    assert "TCT after SCAFFOLD" in next((folder / "both" / "plots").rglob("*.svg")).read_text()
    assert "TCT after SCAFFOLD" in (folder / "both" / "report.html").read_text()
    own = ["--method", "tct", "--stage1", "my_stage1:Same", "--limit", "200"]
    assert main(["run", *own, *FEW, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["method"] == "tct after my_stage1:Same"
    (folder / "my_stage1.py").unlink()
    del sys.modules["my_stage1"]
    there = "runs/digits-tct-after-my_stage1Same-classes2-seed0"
    assert main(["report", "both", there, "--out", "all.html"]) == 0
    page = (folder / "all.html").read_text()
    assert "--stage1 my_stage1:Same" in page
    assert all(label in page for label in ("TCT after SCAFFOLD", "TCT after Same", "FedAvg"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--stage1 centralized", "unknown stage1 'centralized'. Known: fedavg, fedprox, scaffold, feddyn, fedadam"),
        ("--stage1 my_stage1:Nobody", "there is no my_stage1:Nobody to import"),
        ("--stage1 my_stage1:Pooled", "TCT's stage 1 must be federated"),
        ("--stage1 my_stage1:Same --p 0", "p must be at least 1"),
        ("--stage1 my_stage1:Same --stage2 ridge --epsilon 1", "leave it out with a method of yours"),
        ("--stage1 scaffold --stage2 ridge --epsilon 1", "Scaffold does not support differential privacy"),
    ],
)
def test_what_cannot_work_is_refused_before_any_work(
    words: str, told: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--method", "tct", *words.split(), "--rounds", "1,1", "--out", "a"]) == 2
    assert told in capsys.readouterr().err
    assert not (folder / "a").exists()


def test_other_methods_do_not_read_it(capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--limit", "200", "--split", "iid", "--rounds", "1", "--local-epochs", "1", "--out", "a", "--json"]
    assert main(["run", "--method", "fedavg", "--stage1", "scaffold", *few]) == 0
    assert "--stage1 has no effect here: it is for tct" in capsys.readouterr().err
