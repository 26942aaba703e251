"""What commands import, each in a process of its own: a library that takes long is loaded where it is needed."""

import subprocess
import sys
from pathlib import Path

import pytest

from fedtct.cli import main

SLOW = ("matplotlib", "pandas", "scipy", "sklearn", "torch")
PROGRAM = f"""
import sys
from fedtct.cli import main
code = main(sys.argv[1:])
print(code, *(name for name in {SLOW} if name in sys.modules))
"""

AT_ONCE = {
    "--help": 0,
    "--version": 0,
    "run --help-all": 0,
    "compare --help": 0,
    "demo --help": 0,
    "predict --help": 0,
    "data --help": 0,
    "paper --help": 0,
    "deploy --help": 0,
    "dance": 2,
    "run --method sgd": 2,
    "run --dataset mnist": 2,
    "run --model vgg": 2,
    "run --split by-hand": 2,
    "run --rounds few": 2,
    "run --method fedavg --rounds 1,2": 2,
    "run --lr 0.1,fast --holdout 0.1": 2,
    "run --config none.toml": 2,
    "run --out taken": 2,
    "run --resume nowhere": 2,
    "compare --methods fedavg,sgd": 2,
    "compare --split iid,by-hand": 2,
    "compare --out taken": 2,
    "predict nowhere --input none.csv --out taken": 2,
    "report nowhere": 2,
}


def start(words: str, folder: Path) -> list[str]:
    """The exit code of a command, and what it has imported of what takes long."""
    command = [sys.executable, "-c", PROGRAM, *words.split()]
    return subprocess.check_output(command, cwd=folder, text=True, stderr=subprocess.DEVNULL).splitlines()[-1].split()


@pytest.mark.parametrize("words", AT_ONCE)
def test_help_and_mistakes_are_answered_at_once(words: str, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    assert start(words, tmp_path) == [str(AT_ONCE[words])]


def test_a_run_loads_torch_and_what_draws_and_its_report_torch_alone(tmp_path: Path) -> None:
    run = "run --limit 100 --silos 3 --split iid --method fedavg --rounds 1 --local-epochs 1 --out a"
    assert start(run, tmp_path) == ["0", "matplotlib", "torch"]
    assert start("report a", tmp_path) == ["0", "torch"]


def test_a_table_is_predicted_without_what_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "silos").mkdir()
    rows = [f"{age},{'ill' if age > 50 else 'well'}" for age in range(30, 70)]
    for name in ("a", "b"):
        (tmp_path / "silos" / f"{name}.csv").write_text("\n".join(["age,state", *rows]))
    settings = ["--method", "fedavg", "--rounds", "1", "--local-epochs", "1"]
    assert main(["run", "--data", "silos", "--target", "state", *settings, "--out", "own"]) == 0
    assert start("predict own --input silos/a.csv --out p.csv", tmp_path) == ["0", "pandas", "torch"]
