"""How to choose stage 2's ridge: what a degree of freedom must cost in GCV, and what to rank by on held-out samples.

    python -m studies.ridge_choice
    python -m studies.ridge_choice --show  # what the file tells, without running anything

GCV takes features as given, but stage 1 has seen the labels that stage 2 is fitted to, and so training errors are too
small. Every strength's test error is found for tables of scikit-learn's, made-up ones with a rare class and digits,
after 1, 5 and 10 rounds of FedAvg; then which strength each cost would have chosen. The cost that fedtct has was chosen
by these test errors.

Where silos hold a tenth or a fifth of their samples out, strengths can be ranked by the accuracy on these, by the
squared error or by the log-loss. What each rule takes is rated on test samples, its probabilities calibrated as
fedtct does it. The rule that fedtct has was chosen by these ratings.
"""

import itertools
import json
from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean, geometric_mean
from typing import Any

import numpy as np
import pandas as pd
import sklearn.datasets
import torch
from torch import Tensor

import fedtct
from fedtct.calibration import TEMPERATURES, best_temperature
from fedtct.data.samples import as_samples, join
from fedtct.least_squares import Sums
from fedtct.least_squares.sums import RidgePath
from fedtct.runs.environment import environment
from fedtct.stage2.ridge import STRENGTHS, Ridge, first_minimum
from fedtct.tangent import Normaliser
from fedtct.tasks import Classification
from studies import options

COSTS, ROUNDS, D = (1.0, 1.1, 1.2, 1.3, 1.4, 2.0), (1, 5, 10), 1024
SHARES, RULES = (0.1, 0.2), ("accuracy", "squared error", "log-loss")  # held out, and by what strengths are ranked
NUMBERS = "diabetes"  # the one task without classes
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
    NUMBERS: table(sklearn.datasets.load_diabetes),
    "300 digits": digits(300),
    "1400 digits": digits(1400),
}


def main() -> None:
    """Every task, number of rounds and seed; the file is written after each run."""
    chosen = options(__doc__, "results/ridge-choice.json", seeds=3)
    if chosen.show:
        found = json.loads(chosen.file.read_text())
        show(found["runs"], found["held_out"])
        return
    where = environment("cpu") | {"command": "python -m studies.ridge_choice"}
    config = {"model": "mlp", "stage1": "fedavg", "d": D, "strengths": STRENGTHS, "costs": COSTS, "rules": RULES}
    runs: list[dict[str, Any]] = []
    held_out: list[dict[str, Any]] = []
    for rounds, (name, task), seed in itertools.product(ROUNDS, TASKS.items(), range(chosen.seeds)):
        what = {"task": name, "rounds": rounds, "seed": seed}
        runs.append(what | by_cost(task, rounds, seed))
        for share in SHARES if name != NUMBERS else ():
            held_out.append(what | {"share": share} | by_rule(task, rounds, seed, share))
        print(f"{name}, {rounds} rounds, seed {seed}", flush=True)
        record = {"config": config, "environment": where, "runs": runs, "held_out": held_out}
        chosen.file.write_text(json.dumps(record, indent=1) + "\n")
    show(runs, held_out)


def fitted(silos: Sequence[fedtct.Silo], rounds: int, seed: int) -> fedtct.TangentClassifier:
    """A model; its regressions for every strength are kept."""
    model = fedtct.TCT("mlp", fedtct.FedAvg(rounds=rounds, seed=seed), stage2=Recording(d=D)).fit(silos).model
    assert isinstance(model, fedtct.TangentClassifier)
    return model


def scores(model: fedtct.TangentClassifier, samples: Samples) -> tuple[list[Tensor], Tensor]:
    """What every strength's model says about samples, and what is true of them."""
    x, y = model.spec.encode(*as_samples(*samples, "samples"), "samples")
    path, normaliser, z = KEPT["path"], KEPT["normaliser"], KEPT["normaliser"](model.tangents(x))
    return [z @ path.weights(strength, normaliser, KEPT["mean"]).float() for strength in STRENGTHS], y


def by_cost(task: Task, rounds: int, seed: int) -> dict[str, Any]:
    """The squared error on test samples of every strength, and which one each cost takes."""
    silos, test = task(seed)
    model = fitted([fedtct.Silo(*silo) for silo in silos], rounds, seed)
    path, (found, y) = KEPT["path"], scores(model, test)
    errors = [float(model.spec.task.squared_score(told, y).mean_loss) for told in found]
    taken = {cost: first_minimum(partial(path.generalised_cross_validation, cost=cost)) for cost in COSTS}
    return {"test_error": errors, "taken": list(taken.values())}


def by_rule(task: Task, rounds: int, seed: int, share: float) -> dict[str, Any]:
    """The accuracy and the log-loss on test samples of every strength, and which one each rule takes."""
    given, test = task(seed)
    silos = [fedtct.Silo(*silo, holdout=share) for silo in given]
    model = fitted(silos, rounds, seed)
    learnt = model.spec.task
    assert isinstance(learnt, Classification)
    held, truth = scores(model, (join([silo.held_x for silo in silos]), join([silo.held_y for silo in silos])))
    losses = [learnt.losses(told, truth, TEMPERATURES)[0] for told in held]
    ratings = [learnt.squared_score(told, truth) for told in held]
    merits: dict[str, list[Any]] = {
        "accuracy": [(-rating.correct, rating.mean_loss) for rating in ratings],
        "squared error": [rating.mean_loss for rating in ratings],
        "log-loss": [float(loss.min()) for loss in losses],
    }
    taken = [-min(zip(merits[rule], (-s for s in STRENGTHS), strict=True))[1] for rule in RULES]
    tested, y = scores(model, test)
    log_loss = []
    for told, loss in zip(tested, losses, strict=True):
        probabilities = (told.double() / best_temperature(loss, len(truth))).softmax(1)
        log_loss.append(-float(probabilities[torch.arange(len(y)), y].clamp_min(1e-15).log().mean()))
    accuracy = [learnt.squared_score(told, y).accuracy for told in tested]
    return {"test_accuracy": accuracy, "test_log_loss": log_loss, "taken": taken}


def show(runs: list[dict[str, Any]], held_out: list[dict[str, Any]]) -> None:
    """What each cost and each rule takes, against others."""
    show_costs(runs)
    show_rules(held_out)


def show_costs(runs: list[dict[str, Any]]) -> None:
    """How many times the least test error what each cost takes has: the geometric mean and the most."""
    for name in ("all", *TASKS):
        told = []
        for place, cost in enumerate(COSTS):
            chosen = [run for run in runs if name in ("all", run["task"])]
            strengths = [STRENGTHS.index(run["taken"][place]) for run in chosen]
            times = [run["test_error"][at] / min(run["test_error"]) for run, at in zip(chosen, strengths, strict=True)]
            told.append(f"{cost:g}: {geometric_mean(times):.2f} {max(times):.2f}")
        print(f"{name}: {', '.join(told)}")


def show_rules(runs: list[dict[str, Any]]) -> None:
    """The mean log-loss and accuracy that each rule leads to, and how often the squared error's are the better ones."""
    for name in ("all", *dict.fromkeys(run["task"] for run in runs)):
        chosen = [run for run in runs if name in ("all", run["task"])]
        losses, accuracies = ([at_taken(run, f"test_{of}") for run in chosen] for of in ("log_loss", "accuracy"))
        for place, rule in enumerate(RULES):
            loss, share = (fmean(of_run[place] for of_run in values) for values in (losses, accuracies))
            print(f"{name}, by {rule}: log-loss {loss:.4f}, accuracy {share:.4f}")
        for what, sign, values in (("log-loss", -1, losses), ("accuracy", 1, accuracies)):
            gains = [sign * (by_error - by_accuracy) for by_accuracy, by_error, _ in values]
            better, worse = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
            print(f"  {what} by squared error, against by accuracy: better {better}, worse {worse}, of {len(gains)}")


def at_taken(run: dict[str, Any], name: str) -> list[float]:
    """A figure of a run at the strength that each rule takes."""
    return [run[name][STRENGTHS.index(strength)] for strength in run["taken"]]


if __name__ == "__main__":
    main()
