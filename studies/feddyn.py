"""Which of FedDyn's two points is the better model: the average of silos' weights, or the one that silos go on from.

    python -m studies.feddyn

2,000 images of Fashion-MNIST, two classes a silo, a small network with BatchNorm, whose running statistics are averages
of silos' as well. Test accuracies are means over the last ten rounds, and no setting was chosen by them.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import fedtct
from fedtct.history import State
from fedtct.models import Weights
from fedtct.runs.environment import environment
from fedtct.session import Session
from fedtct.training import evaluate

SETTINGS: dict[str, Any] = {"rounds": 50, "local_epochs": 5, "batch_size": 64, "lr": 0.1}
SAMPLES, SPLIT, ALPHAS, LAST = 2000, "classes:2", (0.01, 0.1), 10


def main() -> None:
    """FedAvg, which is FedDyn with α = 0, then every other α; the file is written after each run."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("file", type=Path, nargs="?", default=Path("results/feddyn.json"))
    arguments.add_argument("--seeds", type=int, default=3)
    chosen = arguments.parse_args()
    where = environment("cpu") | {"command": "python -m studies.feddyn"}
    config = SETTINGS | {"dataset": "fashion-mnist", "samples": SAMPLES, "split": SPLIT, "silos": 10}
    runs: list[dict[str, Any]] = []
    for alpha in (0.0, *ALPHAS):
        for seed in range(chosen.seeds):
            runs.append({"alpha": alpha, "seed": seed} | accuracies(alpha, seed))
            print(runs[-1], flush=True)
            record = {"config": config, "environment": where, "runs": runs}
            chosen.file.write_text(json.dumps(record, indent=1) + "\n")


def accuracies(alpha: float, seed: int) -> dict[str, float]:
    """Of the average, and of where silos go on from, in the last rounds."""
    data = fedtct.load_dataset("fashion-mnist")
    x, y = data.train.x[:SAMPLES], data.train.y[:SAMPLES]
    silos = [fedtct.Silo(x[part], y[part]) for part in fedtct.partition(y, silos=10, split=SPLIT, seed=seed)]
    torch.manual_seed(seed)
    method = fedtct.FedDyn(network(), alpha=alpha, seed=seed, evaluate_every=SETTINGS["rounds"], **SETTINGS)
    session = method.open(silos, (data.test.x, data.test.y))
    state: State = method.start(session.network.weights())
    average, ahead = [], []
    for number in range(method.rounds):
        state, _ = method.round(session.federation, state, number)
        if number >= method.rounds - LAST:
            average.append(accuracy(session, state["parameters"], state["buffers"]))
            ahead.append(accuracy(session, state["parameters"] - state["h"] / (alpha or 1.0), state["buffers"]))
    points = {"average": average, "where_silos_go_on": ahead}
    return {name: round(statistics.mean(found), 4) for name, found in points.items()}


def accuracy(session: Session, parameters: Tensor, buffers: Tensor) -> float:
    """On the test set."""
    assert session.test is not None
    session.network.load(Weights(parameters, buffers))
    session.network.module.eval()
    return evaluate(session.network, *session.test, session.spec.task.score).accuracy


def network() -> nn.Module:
    """Three convolutions with BatchNorm."""
    layers: list[nn.Module] = []
    for channels, wider in ((1, 16), (16, 32), (32, 32)):
        layers += [nn.Conv2d(channels, wider, 3, padding=1), nn.BatchNorm2d(wider), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(288, 10))


if __name__ == "__main__":
    main()
