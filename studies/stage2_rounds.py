"""How many rounds stage 2 takes: SCAFFOLD, conjugate gradients and gradient descent on the same features.

    python -m studies.stage2_rounds
    python -m studies.stage2_rounds --show  # what the file tells, without running anything

3,000 images of Fashion-MNIST, ten silos, 10,000 tangent features of a small CNN after ten rounds of FedAvg. SCAFFOLD
takes the paper's 500 local steps and the largest step size that is safe. No setting was chosen by test accuracies.
"""

import itertools
import json
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

import fedtct
from fedtct.data.datasets import Dataset
from fedtct.runs.environment import environment
from fedtct.stage2.convexify import convexify
from fedtct.stage2.iterative import IterativeRegression
from studies import options

SETTINGS: dict[str, Any] = {"dataset": "fashion-mnist", "model": "simple-cnn", "limit": 3000, "silos": 10, "p": 10_000}
STAGE1: dict[str, Any] = {"rounds": 10, "local_epochs": 2}
ROUNDS = 50
SPLITS = ("iid", "classes:2", "classes:1")
METHODS: dict[str, IterativeRegression] = {
    "SCAFFOLD": fedtct.ScaffoldRegression(rounds=ROUNDS, steps=500),
    "conjugate gradients": fedtct.ConjugateGradient(rounds=ROUNDS),
    "gradient descent": fedtct.GradientDescent(rounds=ROUNDS),
}
SHOWN = (2, 5, 10, 20, 50)


def main() -> None:
    """Every split and method, seed by seed; the file is written after each."""
    chosen = options(__doc__, "results/stage2-rounds.json", seeds=3)
    if chosen.show:
        print(markdown(json.loads(chosen.file.read_text())["runs"]))
        return
    where = environment("cpu") | {"command": "python -m studies.stage2_rounds"}
    data, runs = fedtct.load_dataset(SETTINGS["dataset"]), list[dict[str, Any]]()
    for seed, split in itertools.product(range(chosen.seeds), SPLITS):
        for method, curve in curves(data, split, seed).items():
            runs.append({"split": split, "seed": seed, "method": method} | curve)
        record = {"config": SETTINGS | {"stage1": STAGE1}, "environment": where, "runs": runs}
        chosen.file.write_text(json.dumps(record) + "\n")
    print(markdown(runs))


def curves(data: Dataset, split: str, seed: int) -> dict[str, dict[str, list[float]]]:
    """Test accuracy and training loss after every round of stage 2, by method; all begin from the same features."""
    x, y = (part[: SETTINGS["limit"]] for part in data.train)
    silos = [fedtct.Silo(x[part], y[part]) for part in fedtct.partition(y, SETTINGS["silos"], split, seed)]
    stage1 = fedtct.FedAvg(SETTINGS["model"], **STAGE1, seed=seed, num_classes=data.num_classes, evaluate_every=1000)
    features = fedtct.TangentFeatures(SETTINGS["p"], seed)
    session = stage1.open(fedtct.LocalFederation(silos, "cpu"), data.test)
    problem = convexify(session, features.recipe(stage1.run(session)))
    found = {}
    for name, method in METHODS.items():
        own = replace(session, journal=fedtct.Journal())
        method.solve(own, problem)
        rows = own.journal.history
        found[name] = {
            "test_accuracy": [round(row.test_accuracy, 5) for row in rows if row.test_accuracy is not None],
            "loss": [round(row.train_loss, 5) for row in rows if row.train_loss is not None],
        }
    return found


def markdown(runs: list[dict[str, Any]]) -> str:
    """Test accuracies after some rounds, mean and deviation over seeds: the table of docs/choose.md."""
    rows = [["split", "stage 2 by", *map(str, SHOWN)], ["---", "---", *["---:"] * len(SHOWN)]]
    for split, method in itertools.product(SPLITS, METHODS):
        found = [run["test_accuracy"] for run in runs if (run["split"], run["method"]) == (split, method)]
        after = [[100 * curve[rounds] for curve in found] for rounds in SHOWN]
        rows.append([split, method, *(f"{fmean(values):.1f} ± {stdev(values):.1f}" for values in after)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


if __name__ == "__main__":
    main()
