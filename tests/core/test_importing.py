"""Functions of the user's own come from the folder that they were named in."""

import sys

import pytest

from fedtct import FedtctError
from fedtct.deploy.silo_config import SiloConfig
from fedtct.importing import import_function


@pytest.fixture
def folders(tmp_path):
    """Two folders with modules of the same name."""
    for name in ("north", "south"):
        (folder := tmp_path / name).mkdir()
        (folder / "their_loader.py").write_text(
            f"import numpy as np\n\n\ndef load():\n    return np.ones((4, 2)), ['{name}', 'x'] * 2\n"
        )
        (folder / "silo.toml").write_text(f'name = "{name}"\ndata = "their_loader:load"\n')
    yield tmp_path / "north", tmp_path / "south"
    sys.modules.pop("their_loader", None)


def test_a_silo_never_loads_its_data_with_anothers_module(folders):
    north, south = (SiloConfig.read(folder / "silo.toml") for folder in folders)
    assert [north.load().y[0] for _ in range(2)] == ["north"] * 2
    with pytest.raises(FedtctError, match=r"south.their_loader.py is not used, because .*north.* already has its name"):
        south.load()


def test_a_module_that_the_folder_has_not_is_the_one_that_is_known(folders, tmp_path):
    load = import_function("their_loader:load", folders[0])
    (tmp_path / "empty").mkdir()
    assert import_function("their_loader:load", tmp_path / "empty") is load
