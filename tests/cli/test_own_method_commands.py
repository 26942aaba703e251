"""A method of the user's own, named as module:Class, is run, compared and reported on as fedtct's are."""

import json
import sys

import pytest

from fedtct.cli import main
from fedtct.history import as_plain
from fedtct.runs.folder import RunFolder

MODULE = """
from dataclasses import dataclass

import fedtct
from fedtct.models import Weights


class Same(fedtct.FedAvg):
    pass


@dataclass(frozen=True)
class Momentum(fedtct.FedAvg):
    beta: float = 0.5

    def start(self, weights):
        return super().start(weights) | {"m": 0 * weights.parameters}

    def round(self, federation, state, number):
        after, replies = super().round(federation, state, number)
        m = self.beta * state["m"] + after["parameters"] - state["parameters"]
        return after | {"parameters": state["parameters"] + m, "m": m}, replies


def plain(model, **settings):
    return Momentum(model, beta=0.0, **settings)


def nothing(model, **settings):
    return model


def picky(model):
    return Momentum(model)
"""
FEW = "--split classes:2 --silos 5 --limit 200 --rounds 2 --local-epochs 1"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mine_alone", raising=False)
    (tmp_path / "mine_alone.py").write_text(MODULE)
    return tmp_path


def rows(path):
    return [{k: v for k, v in as_plain(row).items() if k != "seconds"} for row in RunFolder.read(path).history]


def test_a_class_that_changes_nothing_gives_what_its_parent_gives(folder):
    for method, out in (
        ("fedavg", "a"),
        ("mine_alone:Same", "b"),
        ("mine_alone:plain", "c"),
        ("mine_alone:Momentum", "d"),
    ):
        assert main(["run", "--method", method, *FEW.split(), "--out", out, "--json"]) == 0
    assert rows(folder / "a") == rows(folder / "b") == rows(folder / "c") != rows(folder / "d")


def test_it_is_compared_reported_on_and_looked_at_where_it_cannot_be_imported(folder, capsys):
    words = ["compare", "--methods", "fedavg,mine_alone:Momentum", *FEW.split(), "--out", "both"]
    assert main(words) == 0
    assert "mine_alone:Momentum" in capsys.readouterr().out
    assert (folder / "both" / "mine_aloneMomentum-classes2-seed0").is_dir()
    page = (folder / "both" / "report.html").read_text()
    assert "Momentum" in page
    (folder / "mine_alone.py").unlink()
    del sys.modules["mine_alone"]
    assert main(["compare", "--resume", "both", "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)
    assert "mine_alone:Momentum" in str(compared)
    assert main(["report", "both", "--out", "again.html"]) == 0


def test_runs_of_an_edited_method_differ_in_their_records(folder, monkeypatch, capsys):
    def code(path):
        return [sitting["own_code"]["mine_alone"] for sitting in json.loads((path / "environment.json").read_text())]

    words = ["run", "--method", "mine_alone:Same", *FEW.split(), "--json", "--out"]
    assert main([*words, "a"]) == main([*words, "b"]) == 0
    (folder / "mine_alone.py").write_text(MODULE + "\n\n# edited\n")
    monkeypatch.delitem(sys.modules, "mine_alone")
    assert main([*words, "c"]) == 0
    assert code(folder / "a") == code(folder / "b") != code(folder / "c")
    (folder / "a" / "model" / "model.safetensors").unlink()  # as if it had been stopped before
    for file in (folder / "a" / "checkpoints").iterdir():
        file.unlink()
    capsys.readouterr()
    assert main(["run", "--resume", "a", "--json"]) == 0
    assert "mine_alone: edited since the run was started" in capsys.readouterr().err
    assert code(folder / "a") == code(folder / "b") + code(folder / "c")
    assert main(["run", "--method", "fedavg", *FEW.split(), "--json", "--out", "d"]) == 0
    assert "own_code" not in (folder / "d" / "environment.json").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--method mine_alone:Nobody", "there is no mine_alone:Nobody to import"),
        ("--method mine_alone:nothing", "mine_alone:nothing is not a method: it must be, or return, a fedtct.Stage1"),
        ("--method mine_alone:picky", "mine_alone:picky does not work with a model and the settings"),
        ("--method mine_alone:Same --epsilon 1", "leave it out with a method of yours"),
        ("--method mine_alone:Same --rounds 2,2", "mine_alone:Same has one stage"),
    ],
)
def test_what_is_wrong_with_it_is_said_before_any_work(words, told, folder, capsys):
    assert main(["run", *words.split(), "--limit", "200", "--out", "a"]) == 2
    assert told in capsys.readouterr().err
    assert not (folder / "a").exists()
