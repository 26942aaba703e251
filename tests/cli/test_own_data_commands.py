"""fedtct run on silos' own files, from data to model."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedtct.cli import main

QUICK = ["--rounds", "2", "--local-epochs", "1", "--d", "50"]


def patients(n: int, seed: int) -> pd.DataFrame:
    draws = np.random.default_rng(seed)
    table = pd.DataFrame({"age": draws.normal(50, 9, n), "town": draws.choice(["Ulm", "Rom"], n)})
    table["state"] = np.where((table["age"] > 50) ^ (table["town"] == "Rom"), "ill", "well")
    table["cost"] = 100 + 3 * table["age"]
    table.loc[draws.random(n) < 0.1, "town"] = None
    return table


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two hospitals' tables and a test table, a model in a module, where the commands are typed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "silos").mkdir()
    patients(60, 0).to_csv("silos/north.csv", index=False)
    patients(40, 1).to_parquet("silos/south.parquet")
    patients(30, 2).to_csv("test.csv", index=False)
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "def build(shape, outputs):\n    return nn.Sequential(nn.Linear(*shape, 9), nn.Tanh(), nn.Linear(9, outputs))\n"
        "def wrong(shape, outputs):\n    return nn.Linear(*shape, 7)\n"
        "number = 3\n"
    )
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    code = main(["run", "--data", "silos", *QUICK, *words, "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    return json.loads(out)


def test_classes_of_a_table(folder, capsys):
    result = run(capsys, "--target", "state", "--test", "test.csv", "--out", "a")
    assert (result["dataset"], result["silos"], result["split"], result["rounds"]) == ("silos", 2, "own", "2+1")
    assert result["test_accuracy"] > 0.5
    assert result["holdout_accuracy"] is not None
    assert (folder / "a" / "plots" / "split.png").is_file()
    assert main(["run", "--resume", "a", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == result


def test_numbers_of_a_table(folder, capsys):
    result = run(capsys, "--target", "cost", "--test", "test.csv", "--holdout", "0.2")
    assert result["test_r2"] > 0.5
    assert "test_accuracy" not in result
    assert main(["run", "--data", "silos", "--target", "cost", *QUICK, "--method", "fedavg"]) == 0
    out, err = capsys.readouterr()
    assert "held-out R²" in out
    assert "held-out R² " in err


def test_a_model_of_ones_own(folder, capsys):
    result = run(capsys, "--target", "state", "--model", "mine:build", "--out", "own", "--method", "fedavg")
    assert result["model"] == "mine:build"
    assert main(["run", "--resume", "own", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == result


def test_methods_are_compared_on_ones_own_data(folder, capsys):
    words = ["compare", "--data", "silos", "--target", "state", "--methods", "fedavg,tct", *QUICK, "--out", "both"]
    assert main(words) == 0
    assert "held-out" in capsys.readouterr().out


BAD = {
    "run --data nowhere --target state": "there is no folder nowhere",
    "run --data silos": "say which column is to be learnt",
    "run --data silos --target stat": "has no column 'stat'",
    "run --data silos --target state --task regression": "a regression needs numbers",
    "run --data silos --target state --task guess": "unknown task 'guess'",
    "run --data silos --target state --split iid": "data is given, and so split is 'own'",
    "run --data silos --target state --dataset digits": "data is given, and so dataset is 'silos'",
    "run --data silos --target state --silos 3": "data is given, and so silos is 2",
    "run --data silos --target state --limit 3": "limit is for datasets",
    "run --data silos --target state --test none.csv": "there is no none.csv",
    "run --data silos --target state --model mine:nothing": "no mine:nothing to import",
    "run --data silos --target state --model none:build": "no none:build to import",
    "run --data silos --target state --model mine:number": "mine:number is no function",
    "run --data silos --target state --model mine:wrong": "has 7 outputs, the silos have 2 classes",
    "run --data silos --target state --model simple-cnn": "takes images",
    "run --data silos --target state --holdout 1": "holdout is a share",
    "run --data silos --target state --image-size 3": "a height and a width",
    "run --data strange --target state": "column 'age' holds numbers in north and texts in other",
    "run --data silos --target state --test fox.csv": "has class 'fox', which no silo trains on",
}


@pytest.mark.parametrize("command", BAD)
def test_what_is_wrong_is_said_before_any_work(command, folder, capsys):
    (folder / "strange").mkdir()
    patients(9, 0).to_csv("strange/north.csv", index=False)
    patients(9, 0).assign(age="old").to_csv("strange/other.csv", index=False)
    patients(9, 0).assign(state="fox").to_csv("fox.csv", index=False)
    code, message = main(command.split()), capsys.readouterr().err
    assert code == 2
    assert BAD[command] in message
    assert message.startswith("fedtct: ")
    assert 1 <= len(message.splitlines()) <= 2
    assert not (folder / "runs").exists()
