"""A small comparison that the tests of the report look at: real runs, with everything that is found out about them."""

from pathlib import Path

import pytest
import torch

from fedtct.runs.compare import comparison
from fedtct.runs.findings import find_all

torch.set_num_threads(1)
SETTINGS = {"limit": 150, "silos": 3, "rounds": 4, "local_epochs": 1, "p": 200, "steps": 10}


@pytest.fixture(scope="session")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared") / "runs"
    comparison(["fedavg", "tct", "centralized"], ["classes:4"], [0, 1], SETTINGS).execute(folder, look=find_all)
    return folder
