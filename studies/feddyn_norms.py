"""What FedDyn's fall comes with: its accuracy by round in networks with BatchNorm, with GroupNorm, and with neither.

    python -m studies.feddyn_norms
    python -m studies.feddyn_norms --show  # what the file tells, without running anything

Scikit-learn's digits, two classes a silo, three layers of 64 units, batches of ten, so that silos go far in a round.
FedAvg, which is FedDyn with α = 0, stands beside. No setting was chosen by test accuracies.
"""

import itertools
import json
from collections.abc import Callable
from statistics import fmean
from typing import Any

import torch
from torch import nn

import fedtct
from fedtct.runs.environment import environment
from studies import options

SETTINGS: dict[str, Any] = {"rounds": 40, "local_epochs": 5, "batch_size": 10, "lr": 0.1}
SILOS, SPLIT, ALPHAS = 10, "classes:2", (0.0, 0.01, 0.1)
NORMS: dict[str, Callable[[int], nn.Module]] = {
    "batch": nn.BatchNorm1d,
    "group": lambda width: nn.GroupNorm(4, width),
    "none": lambda width: nn.Identity(),
}


def main() -> None:
    """Every network and α, seed by seed; the file is written after each run."""
    chosen = options(__doc__, "results/feddyn-norms.json", seeds=3)
    if chosen.show:
        show(json.loads(chosen.file.read_text())["runs"])
        return
    where = environment("cpu") | {"command": "python -m studies.feddyn_norms"}
    config = SETTINGS | {"dataset": "digits", "split": SPLIT, "silos": SILOS}
    runs: list[dict[str, Any]] = []
    for seed, norm, alpha in itertools.product(range(chosen.seeds), NORMS, ALPHAS):
        curve = test_accuracies(norm, alpha, seed)
        runs.append({"norm": norm, "alpha": alpha, "seed": seed, "test_accuracy": curve})
        print(f"seed {seed}, {norm}, alpha {alpha}: highest {max(curve):.3f}, at the end {curve[-1]:.3f}", flush=True)
        record = {"config": config, "environment": where, "runs": runs}
        chosen.file.write_text(json.dumps(record, indent=1) + "\n")
    show(runs)


def show(runs: list[dict[str, Any]]) -> None:
    """The mean of five rounds, where it is highest and at the end, over seeds; then of each seed."""
    for norm, alpha in itertools.product(NORMS, ALPHAS):
        curves = [run["test_accuracy"] for run in runs if (run["norm"], run["alpha"]) == (norm, alpha)]
        means = [[fmean(curve[end - 4 : end + 1]) for end in range(5, len(curve))] for curve in curves]
        highest, last = ([pick(five) for five in means] for pick in (max, lambda five: five[-1]))
        each = ", ".join(f"{high:.3f} {end:.3f}" for high, end in zip(highest, last, strict=True))
        print(f"{norm}, alpha {alpha}: highest {fmean(highest):.3f}, at the end {fmean(last):.3f} (by seed: {each})")


def test_accuracies(norm: str, alpha: float, seed: int) -> list[float]:
    """After every round, and before the first."""
    data = fedtct.load_dataset("digits")
    parts = fedtct.partition(data.train.y, silos=SILOS, split=SPLIT, seed=seed)
    silos = [fedtct.Silo(data.train.x[part], data.train.y[part]) for part in parts]
    torch.manual_seed(seed)
    method = fedtct.FedDyn(network(NORMS[norm]), alpha=alpha, seed=seed, **SETTINGS)
    return [round(row.test_accuracy or 0.0, 4) for row in method.fit(silos, test=data.test).history]


def network(norm: Callable[[int], nn.Module]) -> nn.Module:
    """Three hidden layers, each normalised."""
    layers: list[nn.Module] = [nn.Flatten()]
    for width in (64, 64, 64):
        layers += [nn.Linear(64, width), norm(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(64, 10))


if __name__ == "__main__":
    main()
