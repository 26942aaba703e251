"""A small comparison that the tests of the report look at: real runs, with everything that is found out about them."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedtct.runs.compare import comparison
from fedtct.runs.config import RunConfig
from fedtct.runs.findings import find_all
from fedtct.runs.folder import RunFolder
from fedtct.runs.settings import read_toml

torch.set_num_threads(1)
SETTINGS = {"limit": 150, "silos": 3, "rounds": 4, "local_epochs": 1, "p": 200, "steps": 10}


@pytest.fixture(scope="session")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared") / "runs"
    comparison(["fedavg", "tct", "centralized"], ["classes:4"], [0, 1], SETTINGS).execute(folder, look=find_all)
    return folder


@pytest.fixture
def run_with(tmp_path: Path) -> Callable[..., RunFolder]:
    """Makes a copy of a run in a folder of that name, with some settings as if they had been others."""

    def copied(run: Path, name: str, **settings: object) -> RunFolder:
        shutil.copytree(run, tmp_path / name)
        config = replace(RunConfig.of(**read_toml(run / "config.toml")), **settings)
        (tmp_path / name / "config.toml").write_text(config.to_toml())
        return RunFolder.read(tmp_path / name)

    return copied
