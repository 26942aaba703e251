"""fedtct deploy up: digits dealt to silos on this machine, and TCT across them, with everything as in earnest."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from torch import Tensor

from fedtct.data import load_dataset, partition
from fedtct.deploy.app_folder import RUN, make_app
from fedtct.deploy.local import LocalDeployment
from fedtct.errors import FedtctError

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
out = {out!r}
test = {test!r}
num_classes = 10
round_timeout = 300
wait = 120
"""


def run_demo(folder: Path, silos: int, rounds: int, say: Callable[[str], None]) -> Path:
    """Start everything, run, stop everything; returns the run's folder."""
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    digits = load_dataset("digits")
    data = {}
    classes = max(2, -(-digits.num_classes // silos))  # as few a silo as will do
    for index, part in enumerate(partition(digits.train.y, silos, f"classes:{classes}", seed=0)):
        name = f"silo-{index}"
        data[name] = str(write_npz(folder / "data" / f"{name}.npz", digits.train.x[part], digits.train.y[part]))
    test = write_npz(folder / "data" / "test.npz", *digits.test)
    app, out = make_app(folder / "app"), folder / "run"
    settings = SETTINGS.format(classes=classes, silos=silos, rounds=rounds, out=str(out), test=str(test))
    (app / RUN).write_text(settings, encoding="utf-8")
    say(f"starting a server and {silos} silos on this machine, with TLS and a key for each")
    with LocalDeployment(folder / "federation", data) as federation:
        say(f"the server listens on 127.0.0.1:{federation.port}; the run starts")
        finished = federation.run(app, {}, say)
    if not finished:
        raise FedtctError(f"the run did not finish: the logs under {folder / 'federation'} say more")
    return out


def write_npz(path: Path, x: Tensor, y: Tensor) -> Path:
    """Samples and labels as a silo keeps them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, x=x.numpy(), y=y.numpy())
    return path
