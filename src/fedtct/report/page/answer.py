"""The answer, on top: how good each method is in the end, how far from centralized, and what it took."""

from dataclasses import dataclass
from statistics import fmean, stdev

from fedtct.report.page.blocks import Block, Note, Section, Table, TableRow, percent, points
from fedtct.report.page.tasks import Method, Task
from fedtct.runs.findings import SILOS
from fedtct.runs.folder import RunFolder
from fedtct.runs.summary import Summary

COLUMNS = ("method", "accuracy", "to centralized", "worst silo", "rounds", "MB a silo", "seconds")


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
        accuracies = [run.test_accuracy if run.test_accuracy is not None else run.train_accuracy for run in runs]
        known = [accuracy for accuracy in accuracies if accuracy is not None]
        worst = [accuracy for run in method.runs if (accuracy := worst_silo(run)) is not None]
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


def worst_silo(run: RunFolder) -> float | None:
    """The lowest accuracy on samples such as a silo's own; if that is not known, on those it trains on."""
    found = run.finding(SILOS)
    judged = [accuracy for accuracy in found["own"] if accuracy is not None] if found else []
    return min(judged) if judged else Summary.of(run).worst_silo_accuracy


def section(task: Task) -> Section:
    """A sentence, and a table with the best method first."""
    results = sorted(map(Result.of, task.methods), key=lambda result: -(result.accuracy or 0.0))
    bound = next((result.accuracy for result in results if not result.federated), None)
    rows = [TableRow(_cells(result, bound), result.method) for result in results]
    blocks: list[Block] = [Table(COLUMNS, rows), Note(_reading(task, bound))]
    return Section(task.title, blocks, intro=_headline(results, bound))


def _cells(result: Result, bound: float | None) -> list[str]:
    spread = f" ± {100 * result.spread:.1f}" if result.spread is not None else ""
    known = result.federated and bound is not None and result.accuracy is not None
    return [
        result.method.label,
        percent(result.accuracy) + spread,
        points(result.accuracy - bound) if known and result.accuracy is not None and bound is not None else "–",
        percent(result.worst),
        result.rounds,
        f"{result.megabytes:,.1f}",
        f"{result.seconds:,.1f}",
    ]


def _headline(results: list[Result], bound: float | None) -> str:
    federated = [result for result in results if result.federated and result.accuracy is not None]
    if not federated:
        return ""
    best = federated[0]
    assert best.accuracy is not None
    text = f"{best.method.label} reaches {percent(best.accuracy)}"
    if len(federated) > 1:
        text += ", the best of the federated methods here"
    if bound is not None:
        gap = 100 * (best.accuracy - bound)
        where = f"{abs(gap):.1f} points {'above' if gap > 0 else 'below'}"
        text += f"; that is {'on a par with' if abs(gap) < 0.05 else where} training on all data in one place"
    text += f". It took {best.rounds} rounds and {best.megabytes:,.1f} MB for each silo"
    return text + (
        f"; on what its worst silo has, it is right for {percent(best.worst)}." if best.worst is not None else "."
    )


def _reading(task: Task, bound: float | None) -> str:
    """How to read the table, and what it does not tell."""
    runs = [run for method in task.methods for run in method.runs]
    tested = any(row.test_accuracy is not None for run in runs for row in run.history)
    held = any(row.holdout_accuracy is not None for run in runs for row in run.history)
    judged = all(run.finding(SILOS) for run in runs)
    whose = "test samples, each class as often as the silo has it" if judged else "the samples it trains on"
    whose = "the samples it holds out" if held else whose
    parts = [
        f"Accuracy is on {'the test set' if tested else 'the silos’ training data: there is no test set'}"
        + (", mean ± standard deviation over seeds." if any(len(m.runs) > 1 for m in task.methods) else "."),
        f"A silo’s is on {whose}.",
    ]
    if any("+" in Summary.of(run).rounds for run in runs):
        parts.append("Rounds are those of stage 1, of sharing the features’ statistics, and of stage 2.")
    if bound is None:
        methods = ",".join(dict.fromkeys(["centralized", *(method.config.method for method in task.methods)]))
        parts.append(f"How far this is from centralized training, fedtct compare --methods {methods} would tell.")
    stopped = [run for run in runs if not run.finished]
    parts += [f"{run.path.name} is not finished: fedtct run --resume {run.path} goes on with it." for run in stopped]
    return " ".join(parts)
