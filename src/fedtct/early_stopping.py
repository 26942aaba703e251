"""Patience: a stage ends when its model has long not become better on samples that silos hold out."""

import math
from dataclasses import dataclass

from fedtct.errors import FedtctError
from fedtct.history import Checkpoint, Row, State


@dataclass
class EarlyStopping:
    """The best state so far by its rating on held-out samples, and when to wait for a better one no longer.

    Without patience there is none, and a stage runs to its end.
    """

    patience: int | None
    best: State  # its rating, its round and itself, as checkpoints keep them; empty before the first

    def judge(self, at: Checkpoint, row: Row) -> None:
        """Keep a state if it is the best: the earlier one of equals, and none that diverged."""
        rating = row.rating("holdout")
        if self.patience is None or row.diverged:
            return
        if not self.best:
            _check_judgement(row)
        if rating is not None and (not self.best or rating > self.best["rating"]):
            self.best = {"rating": rating, "round": at.round, "state": at.state}

    def due(self, round: int) -> bool:
        """Whether too many rounds went by without a better state."""
        return self.patience is not None and bool(self.best) and round - self.best["round"] >= self.patience


def _check_judgement(row: Row) -> None:
    """Refuse a first rating that says nothing of held-out samples: patience would wait for nothing."""
    if row.rating("train") is None:
        raise FedtctError(
            "patience judges by what silos say about models, and they were not asked: a method's round must ask "
            "with 'evaluate', as Stage1.question does"
        )
    if not math.isfinite(row.rating("holdout") or 0.0):
        still = "whose targets do not vary: give every silo a larger holdout"
        beyond = "some of which are so far off that the model's error on them is no number: mend or drop them"
        known = math.isfinite(row.holdout_rmse or 0.0)
        raise FedtctError(f"patience judges by held-out samples, {still if known else beyond}")
