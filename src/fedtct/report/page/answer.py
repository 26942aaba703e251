"""The answer, on top: how good each method is in the end, how far from centralized, and what it took."""

from dataclasses import dataclass
from statistics import fmean, stdev

from fedtct.history import Row, rated_on
from fedtct.report.page.blocks import Block, Note, Rating, Section, Table, TableRow, rating_of
from fedtct.report.page.tasks import Method, Task
from fedtct.runs.config import ELSEWHERE
from fedtct.runs.summary import SiloRatings, Summary, final_row

SILO_SAMPLES = {
    "holdout": "the samples it holds out",
    "test": "test samples, each class as often as the silo has it",
    "own": "its own samples, those it trains on unless all silos hold some out",
}
COLUMNS = ("method", "{}", "to centralized", "worst silo", "rounds", "MB a silo", "seconds")


@dataclass(frozen=True)
class Result:
    """What a method's runs ended with, on average."""

    method: Method
    accuracy: float | None
    spread: float | None  # over seeds
    worst: float | None
    rounds: str
    megabytes: float
    seconds: float

    @classmethod
    def of(cls, method: Method) -> "Result":
        """The mean over seeds."""
        runs = [Summary.of(run) for run in method.runs]
        rows = [final_row(run.history, run.config) for run in method.runs]
        known = [rating for row in rows if (rating := _rating(row)) is not None]
        worst = [found for run in runs if (found := run.rating("worst_silo")) is not None]
        return cls(
            method,
            accuracy=fmean(known) if known else None,
            spread=stdev(known) if len(known) > 1 else None,
            worst=fmean(worst) if worst else None,
            rounds=runs[0].rounds,
            megabytes=fmean(run.bytes_up + run.bytes_down for run in runs) / 1e6,
            seconds=fmean(run.seconds for run in runs),
        )

    @property
    def federated(self) -> bool:
        """Whether silos kept their data."""
        return self.method.config.method != "centralized"


def _rating(row: Row) -> float | None:
    return row.rating(rated_on([row]) or "test")


def section(task: Task) -> Section:
    """A sentence, and a table with the best method first."""
    results = sorted(map(Result.of, task.methods), key=lambda result: -(result.accuracy or 0.0))
    bound = next((result.accuracy for result in results if not result.federated), None)
    rating = rating_of(task)
    rows = [TableRow(_cells(result, bound, rating), result.method) for result in results]
    columns = [column.format(rating.name) for column in COLUMNS]
    blocks: list[Block] = [Table(columns, rows), Note(_reading(task, bound, rating))]
    return Section(task.title, blocks, intro=_headline(results, bound, rating))


def _cells(result: Result, bound: float | None, rating: Rating) -> list[str]:
    spread = f" ± {rating.plain(result.spread)}" if result.spread is not None else ""
    known = result.federated and bound is not None and result.accuracy is not None
    return [
        result.method.label,
        rating.text(result.accuracy) + spread,
        rating.difference(result.accuracy - bound)
        if known and result.accuracy is not None and bound is not None
        else "–",
        rating.text(result.worst),
        result.rounds,
        f"{result.megabytes:,.1f}",
        f"{result.seconds:,.1f}",
    ]


def _headline(results: list[Result], bound: float | None, rating: Rating) -> str:
    federated = [result for result in results if result.federated and result.accuracy is not None]
    if not federated:
        return ""
    best = federated[0]
    assert best.accuracy is not None
    text = f"{best.method.label} reaches {_of(rating, best.accuracy)}"
    if len(federated) > 1:
        text += ", the best of the federated methods here"
    if bound is not None:
        gap = best.accuracy - bound
        size = rating.plain(abs(gap)) + (" points" if rating.sign else "")
        where = "on a par with" if float(rating.plain(abs(gap))) == 0 else f"{size} {'above' if gap > 0 else 'below'}"
        text += f"; that is {where} training on all data in one place"
    text += f". It took {best.rounds} rounds and {best.megabytes:,.1f} MB for each silo"
    return text + (
        f"; on what its worst silo has, it reaches {_of(rating, best.worst)}." if best.worst is not None else "."
    )


def _of(rating: Rating, value: float) -> str:
    return rating.text(value) if rating.sign else f"an {rating.name} of {rating.text(value)}"


def _reading(task: Task, bound: float | None, rating: Rating) -> str:
    """How to read the table, and what it does not tell."""
    runs = [run for method in task.methods for run in method.runs]
    whose = " or ".join(dict.fromkeys(SILO_SAMPLES[SiloRatings.of(run).on] for run in runs))
    places = {"test": "the test set", "holdout": "what silos hold out", "train": "the data that silos train on"}
    where = places.get(rated_on([row for run in runs for row in run.history]) or "", "nothing")
    over = ", mean ± standard deviation over seeds" if any(len(method.runs) > 1 for method in task.methods) else ""
    parts = [f"{rating.name[0].upper()}{rating.name[1:]} is on {where}{over}. A silo’s is on {whose}."]
    if task.regression:
        parts.append("R² is 1 where every prediction is right, and 0 for always saying the mean.")
    stages = max(Summary.of(run).rounds.count("+") for run in runs)
    if stages:
        shared = ", of sharing the features’ statistics," if stages > 1 else ""
        parts.append(f"Rounds are those of stage 1{shared} and of stage 2.")
    promises = dict.fromkeys(promise for method in task.methods if (promise := method.config.promise()))
    parts += [f"{promise[0].upper()}{promise[1:]}." for promise in promises]
    if bound is None and not any(run.config.data == ELSEWHERE for run in runs):  # nobody can pool what is elsewhere
        methods = ",".join(dict.fromkeys(["centralized", *(method.config.method for method in task.methods)]))
        parts.append(
            f"How far this is from centralized training, fedtct compare --methods {methods} with the same settings "
            "would tell."
        )
    stopped = [run for run in runs if not run.finished]
    parts += [f"{run.path.name} is not finished: {run.go_on} goes on with it." for run in stopped]
    return " ".join(parts)
