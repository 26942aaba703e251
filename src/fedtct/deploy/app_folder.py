"""A Flower app folder for a run: made from the template, to be edited and handed to Flower."""

import shutil
from pathlib import Path

from fedtct.runs.folder import free_folder

TEMPLATE = Path(__file__).with_name("template")
RUN = Path("fedtct_app") / "run.toml"


def make_app(folder: Path) -> Path:
    """Copy the template to a new folder."""
    folder = free_folder(folder)
    shutil.copytree(TEMPLATE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    return folder
