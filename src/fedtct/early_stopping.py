"""Patience: a stage ends when its model has not become better for long, on samples that silos hold out."""

import math
from dataclasses import dataclass

from fedtct.errors import FedtctError
from fedtct.history import Checkpoint, Row, State

OTHER_RATERS = "patience compares rounds, but with per_round different silos rate each round: leave out one of the two"


@dataclass
class EarlyStopping:
    """The best state so far by its rating on held-out samples, and whether to wait for a better one.

    Ratings are compared if the same silos gave them. A round that lacks a silo's rating does not count; if the silo
    stays away for longer than patience lasts, the search for the best begins anew with the silos that are there.

    If ``patience`` is none, nothing is judged and a stage runs to its end.
    """

    patience: int | None
    best: State  # empty, or as checkpoints keep it: rating, raters, round, when last compared, and the state itself

    def judge(self, at: Checkpoint, row: Row) -> None:
        """Keep a state if it is the best: the earlier one of equals, and none that diverged."""
        rating = row.rating("holdout")
        if self.patience is None or row.diverged:
            return
        if not self.best:
            _check_judgement(row)
        if rating is None:
            return
        raters = sorted(row.rated_by)
        found = {"rating": rating, "raters": raters, "round": at.round, "compared": at.round, "state": at.state}
        if not self.best:
            self.best = found
        elif raters != self.best["raters"]:
            self.best = found if at.round - self.best["compared"] > self.patience else self.best
        else:
            self.best = found if rating > self.best["rating"] else self.best | {"compared": at.round}

    @property
    def due(self) -> bool:
        """Whether too many rounds went by without a better state."""
        if self.patience is None or not self.best:
            return False
        waited: int = self.best["compared"] - self.best["round"]
        return waited >= self.patience


def _check_judgement(row: Row) -> None:
    """Refuse a first rating without a number for held-out samples: patience would have nothing to go by."""
    if row.rating("train") is None:
        raise FedtctError(
            "patience judges by what silos say about models, and they were not asked: a method's round must ask "
            "with 'evaluate', as Stage1.question does"
        )
    if not math.isfinite(row.rating("holdout") or 0.0):
        still = "whose targets do not vary: give every silo a larger holdout"
        beyond = "some of which are so extreme that the model's error on them is not a number: fix or remove them"
        known = math.isfinite(row.holdout_rmse or 0.0)
        raise FedtctError(f"patience judges by held-out samples, {still if known else beyond}")
