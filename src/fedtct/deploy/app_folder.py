"""A Flower app folder for a run: made from the template, to be edited and handed to Flower."""

import re
import shutil
from pathlib import Path

from fedtct.errors import FedtctError
from fedtct.runs.places import free_folder

TEMPLATE = Path(__file__).with_name("template")
RUN = Path("fedtct_app") / "run.toml"
SILOS = re.compile(r"^silos = \d+ *(?=#)", re.MULTILINE)


def make_app(folder: Path, silos: int = 3) -> Path:
    """Copy the template to a new folder, for so many silos."""
    if silos < 1:
        raise FedtctError(f"a run needs at least one silo, not {silos}")
    folder = free_folder(folder, f"edit {folder / RUN}, or give another folder")
    try:
        shutil.copytree(TEMPLATE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    except shutil.Error as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise FedtctError(f"{folder} cannot be made: {error.args[0][0][2]}") from error
    settings = (folder / RUN).read_text(encoding="utf-8")
    (folder / RUN).write_text(SILOS.sub(f"silos = {silos}".ljust(25), settings), encoding="utf-8")
    return folder
