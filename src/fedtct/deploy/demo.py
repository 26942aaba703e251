"""fedtct deploy up: digits dealt to silos on this machine, and TCT across them, as it is across machines."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from torch import Tensor

from fedtct.data import load_dataset, partition
from fedtct.deploy.app_folder import RUN, make_app
from fedtct.deploy.local import LocalDeployment
from fedtct.errors import FedtctError
from fedtct.files import write_text
from fedtct.report.page.write import REPORT
from fedtct.runs.folder import CONFIG, RunFolder
from fedtct.runs.toml import as_toml
from fedtct.runs.watcher import Watcher
from fedtct.tasks import Answers

RUN_FOLDER = "run"
SETTINGS = """dataset = "digits"
split = "classes:{classes}"
method = "tct"
model = "mlp"
silos = {silos}
rounds = [{rounds}, 1]
stage2 = "ridge"
d = 1024
seed = 0

[server]
out = {out}
test = {test}
num_classes = 10
round_timeout = 300
wait = 120
"""


def prepare_demo(folder: Path, silos: int, rounds: int) -> None:
    """Deal the data, and write down what is to be run."""
    digits = load_dataset("digits")
    classes = max(2, -(-digits.num_classes // silos))  # as few a silo as will do
    for index, part in enumerate(partition(digits.train.y, silos, f"classes:{classes}", seed=0)):
        write_npz(folder / "data" / f"silo-{index}.npz", digits.train.x[part], digits.train.y[part])
    test = write_npz(folder.absolute() / "data" / "test.npz", *digits.test)
    settings = SETTINGS.format(
        classes=classes,
        silos=silos,
        rounds=rounds,
        out=as_toml(str(folder.absolute() / RUN_FOLDER)),
        test=as_toml(str(test)),
    )
    write_text(make_app(folder / "app") / RUN, settings)


def is_over(folder: Path) -> bool:
    """Whether there is nothing left to do: the run has its model and its report, which is the last thing it writes."""
    run = folder / RUN_FOLDER
    return (run / CONFIG).is_file() and RunFolder.read(run).finished and (run / REPORT).is_file()


def run_demo(folder: Path, say: Callable[[str], None], watcher: Watcher) -> Path:
    """Start everything, run or go on, stop everything; returns the run's folder."""
    folder = folder.absolute()
    if not (folder / "app" / RUN).is_file():
        raise FedtctError(f"{folder} was not made by fedtct deploy up: it has no app folder")
    data = {file.stem: str(file) for file in (folder / "data").glob("silo-*.npz")}
    run = folder / RUN_FOLDER
    say(f"starting a server and {len(data)} silos on this machine, with TLS and a key for each")
    with LocalDeployment(folder / "federation", data) as federation:
        say(f"the server listens on 127.0.0.1:{federation.port}; the run starts")
        begun = {"resume": str(run)} if (run / CONFIG).is_file() else {}
        finished = federation.run(folder / "app", begun, say, watcher)
    if not finished:
        raise FedtctError(f"the run did not finish: the logs under {folder / 'federation'} say more")
    return run


def write_npz(path: Path, x: Tensor, y: Answers) -> Path:
    """Samples and labels as a silo keeps them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, x=x.numpy(), y=np.asarray(y))
    return path
