"""What a finished run amounts to, in a few numbers."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from statistics import fmean
from typing import Any, NamedTuple

from fedtct.early_stopping import EarlyStopping
from fedtct.history import Checkpoint, Rated, Row
from fedtct.privacy import spent_epsilon
from fedtct.runs.config import RunConfig
from fedtct.runs.finding_types import SILOS
from fedtct.runs.folder import RunFolder

SILO_SAMPLES = {  # the samples that a silo is rated on
    "holdout": "what it holds out",
    "test": "test samples, each class as often as the silo has it",
    "own": "its own samples, those it holds out, or trains on if it holds none out",
}
JUDGED_ROUNDS = 5  # the last ones, whose mean decides a choice: a single round is noisy


def in_megabytes(count: float) -> str:
    """Bytes as megabytes, with one digit after the point, or if that would be zero, with two significant digits."""
    megabytes = count / 1e6
    return f"{megabytes:,.1f}" if megabytes >= 0.95 or not megabytes else f"{megabytes:.2g}"


@dataclass(frozen=True)
class Summary(Rated):
    """The model a run ended with, and what it took. Bytes are a silo's, in all rounds."""

    dataset: str
    split: str
    silos: int
    method: str
    model: str
    seed: int
    stage: str  # the last one, which the ratings are of
    rounds: str  # of every stage, as in 20+2+20
    test_accuracy: float | None
    train_accuracy: float | None
    holdout_accuracy: float | None
    worst_silo_accuracy: float | None
    bytes_up: int
    bytes_down: int
    seconds: float
    epsilon: float | None  # what was spent of a sample's differential privacy; none without noise
    folder: str
    test_r2: float | None = None  # of a regression, in place of accuracies
    train_r2: float | None = None
    holdout_r2: float | None = None
    worst_silo_r2: float | None = None
    train_rmse: float | None = None  # in the units of the target
    test_rmse: float | None = None
    holdout_rmse: float | None = None
    worst_silo_on: str = ""  # which samples the worst silo is rated on: see SiloRatings
    regression: bool = False

    @classmethod
    def of(cls, folder: RunFolder) -> "Summary":
        """The summary of a run."""
        config, rows = folder.config, folder.history
        last = final_row(rows, config)
        told = {name: getattr(config, name) for name in ("dataset", "split", "silos", "model", "seed")}
        names = [f.name for f in fields(cls) if f.name.endswith(("_accuracy", "_r2", "_rmse"))]
        ratings = {name: getattr(last, name) for name in names}
        silos = SiloRatings.of(folder)
        regression = any(row.regression for row in rows)  # the last may have diverged, to an R² that is no number
        ratings[f"worst_silo_{'r2' if regression else 'accuracy'}"] = silos.worst
        if folder.failure or last.diverged:  # what is left of training is no model to compare with others
            ratings = dict.fromkeys(ratings)
        return cls(
            **told,
            **ratings,
            method=config.full_method,
            worst_silo_on=silos.on,
            stage=last.stage,
            rounds=rounds_of(rows),
            bytes_up=sum(row.bytes_up for row in rows),
            bytes_down=sum(row.bytes_down for row in rows),
            seconds=round(sum(row.seconds for row in rows), 3),
            epsilon=spent(rows, config),
            folder=str(folder.path),
            regression=regression,
        )

    def rmse(self, of: str) -> float | None:
        """A regression's root mean squared error on "train", "test" or "holdout" data, in the units of the target."""
        found: float | None = getattr(self, f"{of}_rmse")
        return found

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON, without the ratings that only the other kind of task has."""
        other = ("regression", *(("accuracy",) if self.regression else ("r2", "rmse")))
        return {name: value for name, value in asdict(self).items() if not name.endswith(other)}


class SiloRatings(NamedTuple):
    """How good the model a run ended with is for each silo.

    ``on`` tells on which of SILO_SAMPLES: "holdout", if there are none "test", or "own" if nobody looked, as the silo
    itself rates the model.
    """

    values: tuple[float | None, ...]
    on: str

    @classmethod
    def of(cls, run: RunFolder) -> "SiloRatings":
        """The ratings that were found out about a run, or else those of its silos."""
        if found := run.finding(SILOS):
            return cls(tuple(found["own"]), "holdout" if found["held_out"] else "test")
        last = final_row(run.history, run.config)
        return cls(last.silo_ratings, "own")

    @property
    def worst(self) -> float | None:
        """The lowest rating, of those that are numbers."""
        return min((value for value in self.values if value is not None and value == value), default=None)


def silos_told(run: RunFolder) -> str:
    """How many silos a run has, and how many of them were there to its end if not all were."""
    count, there = run.config.silos, len(final_row(run.history, run.config).rated_by)
    left = f", {there} of them to the end" if run.finished and 0 < there < count else ""
    return f"{count} silo{'s' if count > 1 else ''}{left}"


def final_row(rows: Sequence[Row], config: RunConfig) -> Row:
    """The row of the model a run ended with: the last, or with patience the best on held-out samples."""
    last = rows[-1]
    if not config.patience:
        return last
    stopping = EarlyStopping(config.patience, {})
    rated = [row for row in rows if row.stage == last.stage and row.rating("holdout") is not None]
    for row in rated:
        stopping.judge(Checkpoint(row.round, {}), row)
    return next((row for row in rated if row.round == stopping.best.get("round")), last)


def judged_rows(rows: Sequence[Row], config: RunConfig) -> list[Row]:
    """The rows whose mean decides in a choice: the last JUDGED_ROUNDS of the last stage that were rated.

    With patience only the row whose model is kept. The rows after it are no better, and those before it would count
    against a method that learns fast.
    """
    kept = final_row(rows, config)
    if config.patience:
        return [kept]
    rated = [row for row in rows if row.stage == kept.stage and row.rating("holdout") is not None]
    return ([row for row in rated if row.round] or rated)[-JUDGED_ROUNDS:]


def judgement(rows: Sequence[Row], config: RunConfig) -> float | None:
    """The rating on held-out samples to choose by; none if no silo holds any out. An R² may be NaN."""
    ratings = [rating for row in judged_rows(rows, config) if (rating := row.rating("holdout")) is not None]
    return fmean(ratings) if ratings else None


def kept_round(rows: Sequence[Row], config: RunConfig) -> str:
    """A sentence about which round's model patience has kept; empty if it is the last one's."""
    last, kept = rows[-1], final_row(rows, config)
    if kept.round == last.round:
        return ""
    return (
        f"patience: training ended after round {last.round} of {config.rounds[-1]}, and the best model, of round "
        f"{kept.round}, was kept; the held-out samples that rate it also chose it"
    )


def spent(rows: Sequence[Row], config: RunConfig) -> float | None:
    """The ε that the rounds of a run come to at its δ; if a stage stopped early, one more round was asked for."""
    if not config.epsilon:
        return None
    reached = {row.stage: row.round for row in rows}
    if "stage1" in reached and reached["stage1"] == config.rounds[0]:
        reached.setdefault("stage2", 0)  # a ridge may have been asked for: it has no row before it is solved
    planned = zip(("stage1", "stage2"), config.rounds, strict=False)
    asked = sum(min(reached[stage] + 1, rounds) for stage, rounds in planned if stage in reached)
    return spent_epsilon(config.noise, asked, config.delta)


def rounds_of(rows: Sequence[Row]) -> str:
    """How many rounds each stage took, as in 20+2+20; a stage's first row is number 0."""
    stages = [list(group) for _, group in groupby(rows, key=lambda row: row.stage)]
    return "+".join(str(max(row.round for row in stage)) for stage in stages)
