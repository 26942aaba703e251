"""One thread: the tests are small, and several workers share the cores. And a folder with two hospitals' tables.

Pictures are drawn only by the tests that are marked as `drawn`: they take most of the time of a small run.
"""

import sys
from pathlib import Path

import pytest
import torch
from hospitals import patients

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _only_some_draw(request: pytest.FixtureRequest) -> None:
    if "drawn" not in request.keywords:
        request.getfixturevalue("empty_pictures")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two hospitals' tables and a test table, a model in a module, where the commands are typed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)  # each folder has its own
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
