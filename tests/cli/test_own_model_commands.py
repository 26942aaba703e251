"""Arrays and a model of one's own: where the model is looked for, what is chosen, and what a model is exported as."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from fedtct.cli import main

QUICK = ["--method", "fedavg", "--rounds", "1", "--local-epochs", "1", "--json"]
OWN = ["--model", "signal_net:build"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two silos' arrays in the folder of the commands, and a model in one below."""
    monkeypatch.chdir(tmp_path)
    for name in ("silos", "app"):
        (tmp_path / name).mkdir()
    draws = np.random.default_rng(0)
    for name in ("silos/north", "silos/south", "test"):
        y = np.arange(40) % 4
        np.savez(f"{name}.npz", x=(draws.normal(size=(40, 3, 8)) + y[:, None, None]).astype(np.float32), y=y)
    (tmp_path / "app" / "signal_net.py").write_text(
        "from torch import nn\n"
        "def build(shape, outputs):\n    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1], outputs))\n"
    )
    monkeypatch.delitem(sys.modules, "signal_net", raising=False)
    return tmp_path


def typed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    return main(words), *capsys.readouterr()


def test_a_model_that_is_not_where_it_is_looked_for(folder, capsys, monkeypatch):
    run = ("run", "--data", "silos", *QUICK, "--out", "a")
    code, _, told = typed(capsys, *run, *OWN)
    assert code == 2
    start = f"fedtct: there is no signal_net:build to import in {folder}, nor installed"
    assert told.startswith(f"{start} (put PYTHONPATH={folder / 'app'} before the command): ModuleNotFoundError")
    monkeypatch.syspath_prepend("app")  # as PYTHONPATH does
    assert typed(capsys, *run, *OWN)[0] == 0
    assert typed(capsys, "evaluate", "a", "--input", "test.npz", *OWN)[0] == 0
    monkeypatch.undo()
    monkeypatch.chdir(folder / "silos")
    monkeypatch.delitem(sys.modules, "signal_net")
    code, _, told = typed(capsys, "predict", "../a", "--input", "../test.npz", *OWN)
    assert code == 2
    assert f"import in {folder / 'silos'}, nor installed (if it is elsewhere, name its folder in PYTHONPATH)" in told
    monkeypatch.chdir(folder / "app")
    code, _, told = typed(capsys, "predict", "../a", "--input", "../test.npz", "--model", "signal_net.py:build")
    assert (code, told) == (2, "fedtct: write signal_net.py:build without .py: signal_net:build\n")


def test_the_model_of_a_deployed_run_is_in_its_app_folder(folder, capsys, monkeypatch):
    monkeypatch.syspath_prepend("app")
    assert typed(capsys, "run", "--data", "silos", *QUICK, *OWN, "--out", "a")[0] == 0
    advice = "made from a model of your own: give it with --model signal_net:build"
    assert typed(capsys, "predict", "a", "--input", "test.npz")[2].endswith(f"{advice}\n")
    sittings = json.loads(Path("a/environment.json").read_text())
    Path("a/environment.json").write_text(json.dumps([sittings[0] | {"engine": "fedtct deploy run APP"}]))
    code, _, told = typed(capsys, "predict", "a", "--input", "test.npz")
    assert (code, told.endswith(f"{advice}, and its app folder in PYTHONPATH\n")) == (2, True)


@pytest.mark.parametrize("name", ["my model.onnx", "m.PT", "m.tflite"])
def test_a_file_whose_name_promises_another_format_is_not_written(name, folder, capsys):
    before = sorted(folder.iterdir())
    code, _, told = typed(capsys, "export", "nowhere", "--out", name)
    assert code == 2
    assert told.startswith(f"fedtct: {name} would be no {Path(name).suffix} file: export writes .safetensors. For ONNX")
    assert "to_module() returns to torch.onnx.export" in told
    assert sorted(folder.iterdir()) == before


def test_a_choice_stands_for_its_best_run(folder, capsys):
    words = ("--local-epochs", "20", "--lr", "1e-9,0.1", "--model", "linear", "--out", "c")
    code, out, _ = typed(capsys, "run", "--data", "silos", *QUICK, *words)
    assert (code, json.loads(out)["chosen"]) == (0, "lr-0.1")
    for words in (["predict", "{}", "--input", "test.npz"], ["evaluate", "{}", "--input", "test.npz", "--json"]):
        best, first, choice = (
            typed(capsys, *(word.format(path) for word in words)) for path in ("c/lr-0.1", "c/lr-1e-09", "c")
        )
        assert choice == best
        assert choice[1] != first[1]
    assert "Classifier.load" in typed(capsys, "export", "c")[1]
    Path("c/choice.json").write_text('{"best": "lr-3"}')
    assert "choice.json is damaged: it holds no choice" in typed(capsys, "export", "c", "--out", "d.safetensors")[2]
    Path("c/choice.json").unlink()
    told = typed(capsys, "predict", "c", "--input", "test.npz")
    assert told == (2, "", "fedtct: c has not chosen yet: resume it with `fedtct run --resume c`\n")


def test_of_a_comparison_one_run_is_to_be_named(folder, capsys):
    (folder / "both").mkdir()
    (folder / "both" / "plan.json").write_text('{"purpose": "compare", "runs": {"a": {}, "b": {"seed": 1}}}')
    code, _, told = typed(capsys, "predict", "both", "--input", "test.npz")
    assert (code, told) == (2, "fedtct: both holds several runs: give the folder of one of them, a, b\n")


def test_whole_numbers_are_not_doubted_where_a_regression_was_asked_for(folder, capsys):
    words = ("run", "--data", "silos", "--test", "test.npz", "--model", "linear", *QUICK, "--task", "regression")
    code, out, told = typed(capsys, *words, "--out", "a")
    assert (code, told) == (0, "")
    code, out, told = typed(capsys, "evaluate", "a", "--input", "test.npz", "--json")
    assert (code, told, "r2" in json.loads(out)) == (0, "", True)
    for name in ("silos/north", "silos/south"):
        arrays = dict(np.load(f"{name}.npz"))
        np.savez(f"{name}.npz", x=arrays["x"], y=arrays["y"].astype(float))
    assert "if they are classes" in typed(capsys, "run", "--data", "silos", "--model", "linear", *QUICK)[2]
