"""What happened, a row a round, and the journal that keeps it so that a run can go on after a stop."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fedtct.federation import Cost, Replies
from fedtct.training import Score, add

if TYPE_CHECKING:
    import pandas as pd

State = dict[str, Any]  # an algorithm's server side between rounds: tensors and plain numbers


@dataclass(frozen=True)
class Row:
    """The model after so many rounds of a stage, and what the round that made it cost.

    Accuracies are shares from 0 to 1. Train scores are the silos' own, on the data they train on; a silo's accuracy is
    on what it held out, or on its training data if it holds nothing out. Bytes are a silo's, up and down.
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

    @classmethod
    def of(cls, stage: str, number: int, cost: Cost, replies: Replies | None, test: Score | None) -> "Row":
        """Put a row together from what the silos and the test set say about a model."""
        train = replies.scores() if replies else None
        held = replies.scores("held_") if replies else None
        everyone_holds_out = bool(held) and all(s.samples for s in held or ())
        own = held if everyone_holds_out else train
        accuracies = tuple(s.accuracy for s in own or ())
        return cls(
            stage,
            number,
            train_accuracy=add(train).accuracy if train else None,
            train_loss=add(train).mean_loss if train else None,
            test_accuracy=test.accuracy if test else None,
            test_loss=test.mean_loss if test else None,
            holdout_accuracy=add(held).accuracy if held and add(held).samples else None,
            worst_silo_accuracy=min(accuracies) if accuracies else None,
            silo_accuracies=accuracies,
            bytes_down=cost.bytes_down,
            bytes_up=cost.bytes_up,
            seconds=cost.seconds,
        )


class History(Sequence[Row]):
    """The rows of a run, in order."""

    def __init__(self, rows: Sequence[Row] = ()) -> None:
        self._rows = list(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def append(self, row: Row) -> None:
        """Add a row."""
        self._rows.append(row)

    @property
    def total_bytes(self) -> int:
        """Bytes that a silo sent and received over the whole run."""
        return sum(row.bytes_up + row.bytes_down for row in self)

    def to_pandas(self) -> "pd.DataFrame":
        """A table of the rows."""
        import pandas as pd

        return pd.DataFrame([asdict(row) for row in self])


@dataclass(frozen=True)
class Checkpoint:
    """All that is needed to go on with a stage."""

    round: int
    state: State
    cost: Cost = field(default_factory=Cost)  # of the round that made this state
    silos: dict[str, Tensor] = field(default_factory=dict)
    best: State = field(default_factory=dict)  # early stopping's best state so far
    finished: bool = False


class Journal:
    """Where a run's rows and checkpoints go: nowhere but memory. A run folder is a journal on disk."""

    def __init__(self) -> None:
        self.history = History()

    def begin(self, stage: str, rounds: int, done: int) -> None:
        """A stage starts, or goes on after ``done`` rounds."""

    def record(self, row: Row) -> None:
        """A row is complete."""
        self.history.append(row)

    def save(self, stage: str, checkpoint: Checkpoint) -> None:
        """A round is over."""

    def restore(self, stage: str) -> Checkpoint | None:
        """Where a stage stood when the run was stopped; none if it had not begun."""
        return None
