"""What happened, a row a round, and the journal that keeps it so that a run can go on after a stop."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, overload

from torch import Tensor

from fedtct.federation import Cost, Replies
from fedtct.questions import HELD
from fedtct.tasks import Regression, Score, Task

if TYPE_CHECKING:
    import pandas as pd

Record = dict[str, Any]  # plain values, for JSON
Finding = Record  # what only a report shows of a run
State = dict[str, Any]  # an algorithm's server side between rounds: tensors and plain numbers

RATED_ON = {
    "test": "test",
    "holdout": "held-out",
    "train": "training",
}  # which data, in words; the first one that a model was rated on counts


class Rated:
    """A model's ratings: accuracies, or R² in their place if numbers are learnt."""

    train_r2: float | None
    test_r2: float | None

    @property
    def regression(self) -> bool:
        """Whether numbers are learnt, not classes."""
        return self.train_r2 is not None or self.test_r2 is not None

    def rating(self, of: str) -> float | None:
        """How good the model is on "train", "test" or "holdout" data, or for the "worst_silo": accuracy or R²."""
        found: float | None = getattr(self, f"{of}_{'r2' if self.regression else 'accuracy'}")
        return found


def rated_on(models: Sequence[Rated]) -> str | None:
    """By which data models are compared: the test set if one was rated on it, else held-out samples, else training."""
    return next((of for of in RATED_ON if any(model.rating(of) is not None for model in models)), None)


@dataclass(frozen=True)
class Row(Rated):
    """The model after this many rounds of a stage, and the cost of the round that made it.

    - Accuracies are shares from 0 to 1. Train scores are the silos' own, on their training data. A silo's accuracy is
      measured on what it holds out or, if it holds nothing out, on its training data; ``rated_by`` names the silos that
      measured.
    - Bytes are those of the mean silo, up and down, over all silos. ``silo_bytes_…`` are those of the ``silos`` that
      answered.
    - Losses are mean cross-entropies in stage 1, mean squared errors in stage 2 and in a regression. A regression has
      R² instead of accuracies, and the root mean squared error.
    - If a stage stops early, by patience or because it diverged, its last row includes the cost of the round after it,
      whose model is not used.
    """

    stage: str
    round: int
    train_accuracy: float | None = None
    train_loss: float | None = None
    test_accuracy: float | None = None
    test_loss: float | None = None
    holdout_accuracy: float | None = None
    worst_silo_accuracy: float | None = None
    silo_accuracies: tuple[float, ...] = ()
    bytes_down: int = 0
    bytes_up: int = 0
    seconds: float = 0.0
    silos: tuple[str, ...] = ()
    silo_bytes_down: tuple[int, ...] = ()
    silo_bytes_up: tuple[int, ...] = ()
    train_r2: float | None = None
    test_r2: float | None = None
    holdout_r2: float | None = None
    worst_silo_r2: float | None = None
    silo_r2s: tuple[float, ...] = ()
    train_rmse: float | None = None
    test_rmse: float | None = None
    holdout_rmse: float | None = None
    rated_by: tuple[str, ...] = ()
    holdout_loss: float | None = None

    @property
    def diverged(self) -> bool:
        """Whether the silos' loss is not finite. In a file it is null then, beside a rating: that is how one tells."""
        if self.train_loss is None:
            return self.rating("train") is not None
        return not math.isfinite(self.train_loss)

    @property
    def silo_ratings(self) -> tuple[float | None, ...]:
        """Silos' accuracies, or their R², which is none where it is not a number."""
        return self.silo_r2s if self.regression else self.silo_accuracies

    @classmethod
    def of(cls, stage: str, number: int, cost: Cost, task: Task, replies: Replies | None, test: Score | None) -> "Row":
        """Put a row together from what the silos and the test set say about a model."""
        train, held = (replies.scores(which) if replies else None for which in ("", HELD))
        # A silo's own rating is on what it holds out, or on what it trains on if that is nothing.
        own = [kept if kept.samples else learnt for kept, learnt in zip(held or train or (), train or (), strict=True)]
        sums = {"train": Score.total(train or []), "holdout": Score.total(held or []), "test": test or Score()}
        there = {name: score for name, score in sums.items() if score.samples}
        numbers = isinstance(task, Regression)
        kind = "r2" if numbers else "accuracy"
        values: dict[str, Any] = {f"{name}_{kind}": getattr(score, kind) for name, score in there.items()}
        values |= {f"{name}_loss": score.mean_loss for name, score in there.items()}
        if numbers:
            values |= {f"{name}_rmse": score.rmse for name, score in there.items()}
        if own and replies and replies.cost.silos:  # data in one place is no silo's
            every = tuple(getattr(score, kind) for score in own)
            worst = min((value for value in every if value == value), default=math.nan)  # R² may be no number
            values |= {f"worst_silo_{kind}": worst, "silo_r2s" if numbers else "silo_accuracies": every}
            values["rated_by"] = replies.cost.silos
        return cls(stage, number, **vars(cost), **values)


REGRESSION_FIELDS = tuple(field.name for field in fields(Row) if "_r2" in field.name or "_rmse" in field.name)


def as_plain(row: Row) -> dict[str, Any]:
    """A row's fields; those that only a regression has are left out of others."""
    return {name: v for name, v in asdict(row).items() if row.regression or name not in REGRESSION_FIELDS}


class History(Sequence[Row]):
    """The rows of a run, in order, as an immutable sequence; ``to_pandas`` makes a table.

    >>> rows = [Row("stage1", 0, test_accuracy=0.1), Row("stage1", 1, test_accuracy=0.7, bytes_up=40, bytes_down=40)]
    >>> history = History(rows)
    >>> history
    History(2 rows, the last of stage1, round 1)
    >>> history[-1].test_accuracy, history.total_bytes
    (0.7, 80)
    """

    def __init__(self, rows: Sequence[Row] = ()) -> None:
        self._rows = list(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        last = f", the last of {self._rows[-1].stage}, round {self._rows[-1].round}" if self._rows else ""
        return f"History({len(self)} rows{last})"

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> "History": ...
    def __getitem__(self, index: int | slice) -> "Row | History":
        return History(self._rows[index]) if isinstance(index, slice) else self._rows[index]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    @property
    def total_bytes(self) -> int:
        """Bytes that the mean silo sent and received in all rounds, not counting what it told before the first."""
        return sum(row.bytes_up + row.bytes_down for row in self)

    def to_pandas(self) -> "pd.DataFrame":
        """A table of the rows: with accuracies, or for a regression with R² and root mean squared errors."""
        import pandas as pd

        table = pd.DataFrame([as_plain(row) for row in self])
        numbers = any(row.regression for row in self)
        return table.drop(columns=[name for name in table if "accurac" in str(name)]) if numbers else table


@dataclass(frozen=True)
class Checkpoint:
    """The state of a stage: all that is needed to continue it."""

    round: int
    state: State
    cost: Cost = field(default_factory=Cost)  # of the round that made this state
    silos: dict[str, Tensor] = field(default_factory=dict)
    best: State = field(default_factory=dict)  # early stopping's best state so far
    finished: bool = False


class Journal:
    """Where a run's rows and checkpoints are kept. This one keeps rows in memory only, a run folder on disk."""

    def __init__(self) -> None:
        self.history = History()

    def agreement(self) -> Record | None:
        """What the silos agreed on when the run began; none if it is new."""
        return None

    def keep_agreement(self, agreement: Record) -> None:
        """Keep what the silos agreed on: it holds for the whole run, whoever is there when the run goes on."""

    def begin(self, stage: str, rounds: int, done: int) -> None:
        """A stage starts, or goes on after ``done`` rounds."""

    def record(self, row: Row) -> None:
        """Add a complete row. The history becomes a new one: a fit that ended before keeps its own."""
        self.history = History([*self.history, row])

    def save(self, stage: str, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint: a round, or the stage, is over."""

    def restore(self, stage: str) -> Checkpoint | None:
        """Where a stage stood when the run was stopped; none if it had not begun."""
        return None

    def find_out(self, name: str, find: Callable[[], Finding]) -> None:
        """Find out what only a report shows of the run. It takes time, so that only a journal on disk does it."""
