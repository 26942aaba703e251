"""What a degree of freedom must cost in generalised cross-validation, where features come from a trained network.

    python -m studies.ridge_choice
    python -m studies.ridge_choice --show  # what the file tells, without running anything

GCV takes features as given, but stage 1 has seen the labels that stage 2 is fitted to, and so training errors are too
small. Every strength's test error is found for tables of scikit-learn's, made-up ones with a rare class and digits,
after 1, 5 and 10 rounds of FedAvg; then which strength each cost would have chosen. The cost that fedtct has was chosen
by these test errors.
"""

import itertools
import json
from collections.abc import Callable
from statistics import geometric_mean
from typing import Any

import numpy as np
import pandas as pd
import sklearn.datasets
import torch
from torch import Tensor

import fedtct
from fedtct.data.samples import as_samples
from fedtct.least_squares import Sums
from fedtct.least_squares.sums import RidgePath
from fedtct.runs.environment import environment
from fedtct.stage2.ridge import STRENGTHS, Ridge, first_minimum
from fedtct.tangent import Normaliser
from studies import options

COSTS, ROUNDS, D = (1.0, 1.1, 1.2, 1.3, 1.4, 2.0), (1, 5, 10), 1024
Samples = tuple[Any, Any]
Task = Callable[[int], tuple[list[Samples], Samples]]  # by seed: silos, and a test set


class Recording(Ridge):
    """Keeps the regression for every strength."""

    def decompose(self, sums: Sums, normaliser: Normaliser) -> RidgePath:
        """As Ridge does it."""
        path = super().decompose(sums, normaliser)
        KEPT.update(path=path, normaliser=normaliser, mean=sums.moments().mean)
        return path


KEPT: dict[str, Any] = {}


def rare(share: float) -> Task:
    """Four silos with two informative columns of four, and few or none of the second class."""

    def task(seed: int) -> tuple[list[Samples], Samples]:
        draws = np.random.default_rng(seed)

        def samples(n: int, share: float) -> Samples:
            y = (draws.random(n) < share).astype(int)
            x = draws.normal(size=(n, 4))
            x[:, 0] += 2.5 * y
            x[:, 1] -= 1.5 * y
            return pd.DataFrame(x, columns=list("uvwz")), y

        silos = [samples(n, times * share) for n, times in zip((800, 500, 600, 300), (1, 0.5, 2, 0.5), strict=True)]
        return silos, samples(4000, share)

    return task


def table(load: Callable[[], Any]) -> Task:
    """Three quarters of a table for four silos that differ in the target, the rest to test."""

    def task(seed: int) -> tuple[list[Samples], Samples]:
        x, y = load().data, load().target
        draws = np.random.default_rng(seed)
        train, test = np.split(draws.permutation(len(y)), [3 * len(y) // 4])
        sorted_roughly = train[np.argsort(y[train] + 0.7 * max(1, y.std()) * draws.normal(size=len(train)))]
        frame = pd.DataFrame(x, columns=[f"x{place}" for place in range(x.shape[1])])
        own = [(frame.iloc[part], y[part]) for part in (*np.array_split(sorted_roughly, 4), test)]
        return own[:-1], own[-1]

    return task


def digits(samples: int) -> Task:
    """Some of the digits, two classes a silo."""

    def task(seed: int) -> tuple[list[Samples], Samples]:
        data = fedtct.load_dataset("digits")
        some = torch.randperm(len(data.train.y), generator=torch.Generator().manual_seed(seed))[:samples]
        x, y = data.train.x[some], data.train.y[some]
        parts = fedtct.partition(y, silos=5, split="classes:2", seed=seed)
        return [(x[part], y[part]) for part in parts], data.test

    return task


TASKS: dict[str, Task] = {
    "a class of 2 %": rare(0.02),
    "a class of 5 %": rare(0.05),
    "a class of 20 %": rare(0.2),
    "breast cancer": table(sklearn.datasets.load_breast_cancer),
    "wine": table(sklearn.datasets.load_wine),
    "iris": table(sklearn.datasets.load_iris),
    "diabetes": table(sklearn.datasets.load_diabetes),
    "300 digits": digits(300),
    "1400 digits": digits(1400),
}


def main() -> None:
    """Every task, number of rounds and seed; the file is written after each run."""
    chosen = options(__doc__, "results/ridge-choice.json", seeds=3)
    if chosen.show:
        show(json.loads(chosen.file.read_text())["runs"])
        return
    where = environment("cpu") | {"command": "python -m studies.ridge_choice"}
    config = {"model": "mlp", "stage1": "fedavg", "d": D, "strengths": STRENGTHS, "costs": COSTS}
    runs: list[dict[str, Any]] = []
    for rounds, (name, task), seed in itertools.product(ROUNDS, TASKS.items(), range(chosen.seeds)):
        runs.append({"task": name, "rounds": rounds, "seed": seed} | errors(task, rounds, seed))
        print(f"{name}, {rounds} rounds, seed {seed}", flush=True)
        record = {"config": config, "environment": where, "runs": runs}
        chosen.file.write_text(json.dumps(record, indent=1) + "\n")
    show(runs)


def errors(task: Task, rounds: int, seed: int) -> dict[str, Any]:
    """The squared error on test samples of every strength, and which one each cost takes."""
    silos, test = task(seed)
    stage1 = fedtct.FedAvg(rounds=rounds, seed=seed)
    model = fedtct.TCT("mlp", stage1, stage2=Recording(d=D)).fit([fedtct.Silo(*silo) for silo in silos]).model
    assert isinstance(model, fedtct.TangentClassifier)
    x, y = model.spec.encode(*as_samples(*test, "test"), "test")
    path, normaliser, z = KEPT["path"], KEPT["normaliser"], KEPT["normaliser"](model.tangents(x))

    def error(strength: float) -> float:
        w: Tensor = path.weights(strength, normaliser, KEPT["mean"]).float()
        return float(model.spec.task.squared_score(z @ w, y).mean_loss)

    taken = {cost: first_minimum(lambda s, cost=cost: path.generalised_cross_validation(s, cost)) for cost in COSTS}
    return {"test_error": [error(strength) for strength in STRENGTHS], "taken": list(taken.values())}


def show(runs: list[dict[str, Any]]) -> None:
    """How many times the least test error what each cost takes has: the geometric mean and the most."""
    for name in ("all", *TASKS):
        told = []
        for place, cost in enumerate(COSTS):
            chosen = [run for run in runs if name in ("all", run["task"])]
            strengths = [STRENGTHS.index(run["taken"][place]) for run in chosen]
            times = [run["test_error"][at] / min(run["test_error"]) for run, at in zip(chosen, strengths, strict=True)]
            told.append(f"{cost:g}: {geometric_mean(times):.2f} {max(times):.2f}")
        print(f"{name}: {', '.join(told)}")


if __name__ == "__main__":
    main()
