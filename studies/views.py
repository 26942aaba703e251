"""Silos whose labels are alike but whose images look different: does TCT still help, and if it falls behind, why?

    python -m studies.views --limit 3000 --rounds 15 15 --p 20000  # as in results/views.json; hours without --limit
    python -m studies.views --only-seed 1 --file views-1.json  # a seed a process, side by side
    python -m studies.views --join views-0.json views-1.json views-2.json
    python -m studies.views --show  # what the file tells, without running anything

Fashion-MNIST, dealt at random to eight silos. Each sees its images through one of the eight symmetries of the square: a
quarter turn, two or three, mirrored in half of the silos. Test images are dealt to the same views in equal parts.

The learning rate is the one with which FedAvg is best on held-out samples of seed 0, after a third of stage 1's rounds;
all methods take it, and the next lower one if they diverge with it. TCT's rows of a seed share one stage 1, which is
the row "FedAvg, stage 1 alone"; but for the last, whose features come from FedAvg after all rounds. Test images choose
nothing.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from torch import Tensor

import fedtct
from fedtct.classifier import Classifier, NetworkClassifier, TangentClassifier
from fedtct.data.datasets import Dataset
from fedtct.data.samples import join
from fedtct.runs.environment import environment
from fedtct.session import Session
from fedtct.stage2.convexify import Convexified, convexify
from fedtct.tangent import Recipe

MODEL, VIEWS, HOLDOUT = "simple-cnn", 8, 0.1
LOCAL_EPOCHS, EPOCHS = 2, 20  # of a silo in a round; of the bound with all data in one place
RATES = (0.1, 0.01)
D, PATIENCE = 4096, 3
EVERY = 5  # rounds between ratings of a network
MEASURED = {"test": "test", "worst": "worst silo's view", "train": "training"}

Labelled = tuple[Tensor, Tensor]
Line = dict[str, Any]


def main() -> None:
    """Every seed and method; the file is written after each."""
    chosen = arguments()
    if chosen.join:
        write_joined(chosen.join, chosen.file)
    if chosen.join or chosen.show:
        print(markdown(json.loads(chosen.file.read_text())["runs"]))
        return
    record = begin(chosen)
    data = fedtct.load_dataset("fashion-mnist")
    seeds = range(chosen.seeds) if chosen.only_seed is None else [chosen.only_seed]
    lr = best_rate(data, chosen)
    for seed in seeds:
        for name, run in Methods(data, chosen, seed, lr).rows().items():
            if (seed, name) not in {(line["seed"], line["method"]) for line in record["runs"]}:
                record["runs"].append({"seed": seed, "method": name, "lr": lr} | attempt(run))
                print(seed, name, {key: record["runs"][-1].get(key) for key in (*MEASURED, "seconds")}, flush=True)
                chosen.file.write_text(json.dumps(record) + "\n")
    print(markdown(record["runs"]))


def arguments() -> argparse.Namespace:
    """What to run, and where."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, default=Path("results/views.json"))
    parser.add_argument("--limit", type=int, default=0, help="training images, and test images at most; 0 for all")
    parser.add_argument("--rounds", type=int, nargs=2, default=[30, 30], metavar=("T1", "T2"), help="of each stage")
    parser.add_argument("--p", type=int, default=100_000, help="tangent features of TCT with SCAFFOLD")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only-seed", type=int, help="this one alone, for a process of its own")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--join", type=Path, nargs="+", metavar="FILE", help="put such files together, run nothing")
    parser.add_argument("--show", action="store_true", help="what the file tells, without running anything")
    return parser.parse_args()


def begin(chosen: argparse.Namespace) -> dict[str, Any]:
    """The file's record, if it has one: then what it tells already is not run again."""
    config = {"dataset": "fashion-mnist", "model": MODEL, "views": VIEWS, "holdout": HOLDOUT, "p": chosen.p, "d": D}
    config |= {"limit": chosen.limit, "rounds": chosen.rounds, "local_epochs": LOCAL_EPOCHS, "rates": list(RATES)}
    config |= {"centralized_epochs": EPOCHS, "patience": PATIENCE}
    if chosen.file.exists():
        record: dict[str, Any] = json.loads(chosen.file.read_text())
        if record["config"] != config:
            raise SystemExit(f"{chosen.file} is of another configuration: give another --file")
        return record
    where = environment(chosen.device) | {"command": "python -m studies.views"}
    return {"config": config, "environment": where, "runs": []}


def write_joined(parts: list[Path], file: Path) -> None:
    """Files of single seeds as one; refused if they do not belong together."""
    records = [json.loads(part.read_text()) for part in parts]
    if any(record["config"] != records[0]["config"] for record in records):
        raise SystemExit("these files are of different configurations")
    runs = [line for record in records for line in record["runs"]]
    file.write_text(json.dumps(records[0] | {"runs": sorted(runs, key=lambda line: int(line["seed"]))}) + "\n")


def seen(x: Tensor, view: int) -> Tensor:
    """Images through one of the square's symmetries."""
    turned = torch.rot90(x, view % 4, (2, 3))
    return turned.flip(3) if view >= 4 else turned


def dealt(data: Labelled, limit: int, seed: int) -> list[Labelled]:
    """Equal parts at random, each as its silo sees it."""
    x, y = (part[:limit] if limit else part for part in data)
    parts = map(torch.from_numpy, fedtct.partition(y, VIEWS, "iid", seed))
    return [(seen(x[part], view).contiguous(), y[part]) for view, part in enumerate(parts)]


def best_rate(data: Dataset, chosen: argparse.Namespace) -> float:
    """FedAvg's on held-out samples of seed 0; the same for all seeds and methods."""
    rounds = max(1, chosen.rounds[0] // 3)
    ends = {lr: Methods(data, chosen, 0, lr).fedavg(rounds).ratings()["holdout"] or 0.0 for lr in RATES}
    print("held-out accuracy by learning rate:", ends, flush=True)
    return max(RATES, key=ends.__getitem__)


def attempt(run: Callable[[], Line]) -> Line:
    """What a method ends with; if it diverges, that is its result, and the others go on."""
    try:
        return run()
    except fedtct.FedtctError as error:
        return {"failed": str(error)}


@dataclass
class Ending:
    """A model, how the rounds to it went, and how long they took."""

    model: Classifier
    history: fedtct.History
    seconds: float
    patient: bool = False
    lr: float | None = None  # if it may be another than the study's

    def ratings(self) -> dict[str, float | None]:
        """Of the model that was kept: with patience that of the best round on held-out samples, else the last."""
        rated = [row for row in self.history if row.train_accuracy is not None]
        kept = max(rated, key=lambda row: row.holdout_accuracy or 0.0) if self.patient else rated[-1]
        return {"holdout": kept.holdout_accuracy, "train": kept.train_accuracy}

    def line(self, test: list[Labelled]) -> Line:
        """All that is kept of it; accuracies after each round tell overfitting from too few rounds."""
        by_view = [self.model.score(x, y) for x, y in test]
        measured = {"test": fmean(by_view), "worst": min(by_view)} | self.ratings()
        rated = [row for row in self.history if row.train_accuracy is not None]
        rows = [(row.stage, row.round, row.train_accuracy, row.holdout_accuracy, row.test_accuracy) for row in rated]
        return {
            **({} if self.lr is None else {"lr": self.lr}),
            **{name: None if value is None else round(value, 5) for name, value in measured.items()},
            "views": [round(value, 5) for value in by_view],
            "curve": [[v if v is None or isinstance(v, str | int) else round(v, 5) for v in row] for row in rows],
            "seconds": round(self.seconds, 1),
        }


@dataclass
class Trained:
    """A network after stage 1, and the session in which stage 2 can follow."""

    session: Session
    recipe: Recipe
    ending: Ending


@dataclass
class Methods:
    """All of them, on one deal of the images."""

    data: Dataset
    chosen: argparse.Namespace
    seed: int
    lr: float
    done: dict[int, Trained] = field(default_factory=dict)  # by rounds of FedAvg

    @cached_property
    def test(self) -> list[Labelled]:
        """By view; the same deal for every seed."""
        return dealt(self.data.test, min(self.chosen.limit, len(self.data.test.y)), seed=0)

    def rows(self) -> dict[str, Callable[[], Line]]:
        """What is compared, by name; nothing is run yet."""
        first, second = self.chosen.rounds
        both = first + second
        ridge, scaffold = fedtct.Ridge(d=D), fedtct.ScaffoldRegression(rounds=second)
        patient = fedtct.ScaffoldRegression(rounds=second, patience=PATIENCE)
        return {
            "FedAvg": lambda: self.fedavg(both).line(self.test),
            "FedAvg, stage 1 alone": lambda: self.fedavg(first).line(self.test),
            "SCAFFOLD": lambda: self.fit(fedtct.Scaffold, both, LOCAL_EPOCHS).line(self.test),
            "Centralized": lambda: self.fit(fedtct.Centralized, EPOCHS, 1).line(self.test),
            "TCT": lambda: self.stage2(scaffold, first).line(self.test),
            "TCT, patience": lambda: self.stage2(patient, first).line(self.test),
            "TCT, ridge": lambda: self.stage2(ridge, first).line(self.test),
            "TCT, ridge after all rounds": lambda: self.stage2(ridge, both).line(self.test),
        }

    def federation(self) -> fedtct.LocalFederation:
        """Silos with a view each, a tenth of their images held out."""
        silos = [
            fedtct.Silo(x, y, holdout=HOLDOUT, name=f"view {view}")
            for view, (x, y) in enumerate(dealt(self.data.train, self.chosen.limit, self.seed))
        ]
        return fedtct.LocalFederation(silos, self.chosen.device)

    def settings(self, rounds: int, epochs: int) -> dict[str, Any]:
        """What all that train networks share."""
        shared = {"lr": self.lr, "seed": self.seed, "num_classes": self.data.num_classes, "evaluate_every": EVERY}
        return {"model": MODEL, "rounds": rounds, "local_epochs": epochs, **shared}

    def everybodys_test(self) -> Labelled:
        """All views' test images together."""
        x, y = (join(part) for part in zip(*self.test, strict=True))
        return x, y

    def fit(self, method: type[fedtct.Stage1], rounds: int, epochs: int) -> Ending:
        """A method that needs no stage 2."""
        for lr in RATES[RATES.index(self.lr) :]:
            start = time.perf_counter()
            settings = self.settings(rounds, epochs) | {"lr": lr}
            fit = method(**settings).fit(self.federation(), self.everybodys_test())
            if not fit.history[-1].diverged:
                break
        return Ending(fit.model, fit.history, time.perf_counter() - start, lr=lr)

    def fedavg(self, rounds: int) -> Ending:
        """The network alone."""
        return self.trained(rounds).ending

    def trained(self, rounds: int) -> Trained:
        """Stage 1, run once for all that begin with it."""
        if rounds not in self.done:
            start = time.perf_counter()
            method = fedtct.FedAvg(**self.settings(rounds, LOCAL_EPOCHS))
            session = method.open(self.federation(), self.everybodys_test())
            weights = method.run(session)
            network = NetworkClassifier(session.spec, weights, session.network.device)
            recipe = fedtct.TangentFeatures(self.chosen.p, self.seed).recipe(weights)
            ending = Ending(network, session.journal.history, time.perf_counter() - start)
            self.done[rounds] = Trained(session, recipe, ending)
        return self.done[rounds]

    @cached_property
    def problem(self) -> tuple[Convexified, float]:
        """What both SCAFFOLDs of stage 2 solve, and the seconds that it takes to prepare."""
        trained, start = self.trained(self.chosen.rounds[0]), time.perf_counter()
        return convexify(trained.session, trained.recipe), time.perf_counter() - start

    def stage2(self, method: fedtct.Ridge | fedtct.ScaffoldRegression, rounds: int) -> Ending:
        """A linear model on the features of FedAvg after so many rounds."""
        trained = self.trained(rounds)
        session, seconds = trained.session, trained.ending.seconds
        session.journal = journal = fedtct.Journal()  # rows of this method alone
        recipe, patient = method.recipe(trained.recipe), False
        if isinstance(method, fedtct.ScaffoldRegression):
            problem, preparing = self.problem
            session.journal = journal = fedtct.Journal()
            seconds, patient, start = seconds + preparing, method.patience is not None, time.perf_counter()
            linear = method.solve(session, problem)
        else:
            start = time.perf_counter()
            linear = method.run(session, recipe)
        model = TangentClassifier(session.spec, recipe, linear, session.network.device)
        return Ending(model, journal.history, seconds + time.perf_counter() - start, patient)


def markdown(runs: list[Line]) -> str:
    """Means in percent, and deviations over seeds if there are several."""
    rows = [["method", *MEASURED.values()], ["---", *["---:"] * len(MEASURED)]]
    for method in dict.fromkeys(run["method"] for run in runs):
        own = [run for run in runs if run["method"] == method and "failed" not in run]
        cells = [spread([100 * run[key] for run in own if run[key] is not None]) for key in MEASURED]
        rows.append([method, *cells])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def spread(values: list[float]) -> str:
    """Mean and deviation, as far as there are any."""
    if len(values) < 2:
        return f"{values[0]:.1f}" if values else "–"
    return f"{fmean(values):.1f} ± {stdev(values):.1f}"


if __name__ == "__main__":
    main()
