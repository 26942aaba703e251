"""Convexify: every silo prepares the linear problem that rounds of stage 2 solve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from fedtct.federation import Replies
from fedtct.hardware.precision import full_precision
from fedtct.history import Checkpoint, Row, State
from fedtct.least_squares import times
from fedtct.session import Session
from fedtct.tangent import Moments, Normaliser, Recipe, normalised, shared_map
from fedtct.tasks import Score


@dataclass(frozen=True)
class Convexified:
    """The linear problem that silos have prepared."""

    normaliser: Normaliser
    largest_eigenvalues: list[float]  # of each silo's Hessian
    shares: list[float]  # of each silo in the samples
    silos: tuple[str, ...]  # their names
    test: LinearTest

    def among(self, silos: Sequence[str]) -> Convexified:
        """The problem of only these silos, as far as they take part in it."""
        rows = zip(self.silos, self.largest_eigenvalues, self.shares, strict=True)
        names, eigenvalues, shares = map(list, zip(*(row for row in rows if row[0] in silos), strict=True))
        total = sum(shares)
        return replace(self, silos=tuple(names), largest_eigenvalues=eigenvalues, shares=[s / total for s in shares])


def convexify(session: Session, recipe: Recipe, *, many_steps: bool = True) -> Convexified:
    """Every silo builds its features; one round of statistics makes one normaliser for all, a second hands it out.

    A resumed run prepares its silos again for the same problem: the normaliser and the step size stay, whoever is
    missing now. If rounds have a single step, ``many_steps=False`` prepares silos faster.
    """
    federation, journal = session.federation, session.journal
    journal.begin("convexify", 2, 0)
    before = journal.restore("convexify")
    moments = federation.ask("moments", recipe._asdict())
    if before is not None:
        state = before.state
        federation.ask("normalise", Normaliser.among(state)._asdict() | {"many_steps": many_steps})
    else:
        normaliser = _normaliser(moments, recipe)
        prepared = federation.ask("normalise", normaliser._asdict() | {"many_steps": many_steps})
        state = normaliser._asdict() | _steps_and_shares(prepared)
        for number, replies in enumerate((moments, prepared), start=1):
            journal.record(Row("convexify", number, **vars(replies.cost)))
        journal.save("convexify", Checkpoint(2, state, finished=True))
    normaliser = Normaliser.among(state)
    return Convexified(
        normaliser,
        state["largest_eigenvalues"].tolist(),
        state["shares"].tolist(),
        tuple(state["silos"]),
        LinearTest(session, recipe, normaliser),
    )


def _normaliser(replies: Replies, recipe: Recipe) -> Normaliser:
    merged = Moments.merge([Moments(*(m[f] for f in Moments._fields)) for m in replies.messages])
    return Normaliser.of(merged, recipe.normalize)


def _steps_and_shares(prepared: Replies) -> State:
    """Each silo's largest eigenvalue and its share of the samples, in the order of their names."""
    numbers = {"largest_eigenvalues": prepared.values("largest_eigenvalue"), "shares": prepared.weights()}
    tensors = {name: torch.tensor(values, dtype=torch.float64) for name, values in numbers.items()}
    return tensors | {"silos": list(prepared.cost.silos)}


class LinearTest:
    """Scores linear models on the server's test data, whose features are computed once."""

    def __init__(self, session: Session, recipe: Recipe, normaliser: Normaliser) -> None:
        self.test, self.score = session.test, session.spec.task.squared_score
        if self.test is None:
            return
        tangents = shared_map(session.spec, recipe, session.network.device)
        self.z = normalised(tangents.batches(self.test.x), len(self.test.y), normaliser)

    @full_precision()
    def __call__(self, state: State) -> Score | None:
        """The score of W, if there is test data."""
        if self.test is None:
            return None
        return self.score(times(self.z, state["w"]), self.test.y)
