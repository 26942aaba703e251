"""What stage-2 methods share: convexifying, and rounds of local steps on the linear model."""

from __future__ import annotations

import functools
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from fedtct.classifier import LinearModel
from fedtct.errors import Diverged, FedtctError, check_positive, check_whole, listing, make_plain
from fedtct.federation import Federation, Replies
from fedtct.history import Checkpoint, Row, State
from fedtct.least_squares import times
from fedtct.precision import full_precision
from fedtct.questions import Message
from fedtct.rounds import Stage
from fedtct.session import Session
from fedtct.stage2.inspection import inspect_steps
from fedtct.tangent import Moments, Normaliser, Recipe, normalised, tangent_map
from fedtct.tasks import Score

STABLE_SHARE = 0.95  # of the step size at which steps begin to diverge; what lr="auto" takes


class Stage2(ABC):
    """A federated solver of the linear regression on tangent features."""

    noise: float = 0.0  # that a silo adds to what it sends, in sensitivities: see fedtct.privacy

    def check(self, session: Session) -> None:  # noqa: B027 (there may be nothing to refuse)
        """Refuse what cannot work with these silos; called before stage 1, so that no work is lost."""

    @abstractmethod
    def run(self, session: Session, recipe: Recipe) -> LinearModel:
        """The linear model and the normaliser of its features."""

    def recipe(self, recipe: Recipe) -> Recipe:
        """The features that this method works on, if they are not the ones it is offered."""
        return recipe


@dataclass(frozen=True)
class Convexified:
    """The linear problem that silos have prepared."""

    normaliser: Normaliser
    largest_eigenvalues: list[float]  # of each silo's Hessian
    shares: list[float]  # of each silo in the samples
    silos: tuple[str, ...]  # their names
    test: LinearTest

    def among(self, silos: Sequence[str]) -> Convexified:
        """The problem of those who are in it and among these."""
        rows = zip(self.silos, self.largest_eigenvalues, self.shares, strict=True)
        names, eigenvalues, shares = map(list, zip(*(row for row in rows if row[0] in silos), strict=True))
        total = sum(shares)
        return replace(self, silos=tuple(names), largest_eigenvalues=eigenvalues, shares=[s / total for s in shares])


def convexify(session: Session, recipe: Recipe, *, many_steps: bool = True) -> Convexified:
    """Every silo builds its features; one round of statistics makes one normaliser for all, a second hands it out.

    A resumed run prepares its silos again, but for the problem that W is of: whoever is missing now, the normaliser and
    the step size stay. For rounds of a single step silos are prepared faster: say that there are not ``many_steps``.
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
    """What is told when features are normalised, in the order of silos."""
    numbers = {"largest_eigenvalues": prepared.values("largest_eigenvalue"), "shares": prepared.weights()}
    tensors = {name: torch.tensor(values, dtype=torch.float64) for name, values in numbers.items()}
    return tensors | {"silos": list(prepared.cost.silos)}


@dataclass(frozen=True, kw_only=True)
class IterativeRegression(Stage2):
    """Rounds of ``steps`` full-batch local steps of size ``lr``, averaged by the server.

    ``lr="auto"`` takes the largest step that is safe for every silo: each knows its own Hessian's largest eigenvalue.
    The paper's is 5e-5, which diverges where silos hold a single class. With ``patience`` the best round's model is
    kept, as in stage 1.
    """

    rounds: int = 100
    steps: int = 500
    lr: float | Literal["auto"] = "auto"
    evaluate_every: int = 1
    patience: int | None = None

    correction: ClassVar[Literal["none", "scaffold"]] = "none"  # of a silo's steps by everybody's
    exact: ClassVar[bool] = False  # rounds build on differences: all silos must reply, weights are not rounded to fp16

    def __post_init__(self) -> None:
        make_plain(self)
        if self.correction not in ("none", "scaffold"):
            raise FedtctError(f"stage 2 has no correction '{self.correction}'. Known: none, scaffold")
        counts = {"rounds": self.rounds, "steps": self.steps, "evaluate_every": self.evaluate_every}
        check_whole(1, **counts, patience=1 if self.patience is None else self.patience)
        if self.lr != "auto":
            check_positive(**{"stage 2's lr, if not 'auto',": self.lr})

    def check(self, session: Session) -> None:
        """Patience judges by held-out samples."""
        if self.patience is not None:
            session.need_holdout("patience")

    def run(self, session: Session, recipe: Recipe) -> LinearModel:
        """Prepare the linear problem, then solve it."""
        return self.solve(session, convexify(session, recipe, many_steps=self.steps > 1))

    def solve(self, session: Session, problem: Convexified) -> LinearModel:
        """Round after round from W = 0. A prepared problem may be solved in several ways."""
        limits = self.step_limits(problem)
        lr = limits.check(self.lr)
        largest = dict(zip(problem.silos, problem.largest_eigenvalues, strict=True))
        inspect = functools.partial(inspect_steps, session.federation, largest, lr, limits.diverges_from)
        session.journal.find_out("stage2", inspect)
        size = (len(problem.normaliser.mean) + 1, session.spec.num_classes)
        start = torch.zeros(size, dtype=torch.float32, device=session.network.device)
        return LinearModel(problem.normaliser, Regressing(self, session, problem, lr).run({"w": start})["w"])

    def round(self, federation: Federation, state: State, number: int, lr: float) -> tuple[State, Replies]:
        """W ← Σ (n_k/n)·W_k."""
        replies = federation.ask("regress", self.question(state, number, lr))
        return {"w": replies.average("w")}, replies

    def question(self, state: State, number: int, lr: float, *, start: Tensor | None = None) -> Message:
        """What a silo needs to know for a round: it rates W, and takes its steps from there or from ``start``.

        A round without a rating brings only what steps begin from.
        """
        rated = number % self.evaluate_every == 0
        question: Message = {
            "w": state["w"],
            "lr": lr,
            "steps": self.steps,
            "correction": self.correction,
            "exact": self.exact,
            "server_steps": self.steps,
            "evaluate": rated,
        }
        if start is not None:
            question["start" if rated else "w"] = start
        return question

    def step_limits(self, problem: Convexified) -> StepLimits:
        """Some silo's steps diverge if lr·λmax ≥ 2."""
        limit = 2 / max(problem.largest_eigenvalues)
        return StepLimits(limit, safe=STABLE_SHARE * limit)


@dataclass
class Regressing(Stage):
    """Rounds on a prepared problem, with a step size that was checked."""

    method: IterativeRegression
    problem: Convexified
    lr: float

    name = "stage2"

    def round(self, state: State, number: int) -> tuple[State, Replies]:
        """The method's own, refused if it needs all silos and some did not reply."""
        federation, method = self.session.federation, self.method
        state, replies = method.round(federation, state, number, self.lr)
        if method.exact and not federation.begins_anew and len(replies.messages) < len(federation):
            raise FedtctError(
                f"{type(method).__name__} needs every silo in every round, and {len(replies.messages)} of "
                f"{len(federation)} replied: ask all of them, or use FedAvgRegression or Ridge"
            )
        if not method.exact:
            self._warn_of_steps([name for name in self.problem.silos if name in replies.cost.silos])
        return state, replies

    def _warn_of_steps(self, there: Sequence[str]) -> None:
        """Say so if steps that all silos together bear are perhaps too long for some of them alone."""
        if not 0 < len(there) < len(self.problem.silos):
            return
        if not self.method.step_limits(self.problem.among(there)).bears(self.lr):
            warnings.warn(
                f"stage 2 may diverge while nobody but {listing(there)} replies: its step size, {self.lr:.3g}, is "
                "safe for all silos together",
                stacklevel=2,
            )

    def evaluate(self, state: State) -> Replies | None:
        """By silos."""
        return self.session.federation.ask("rate", {"w": state["w"]})

    def test(self, state: State) -> Score | None:
        """By the test data's features."""
        return self.problem.test(state)


class StepLimits(NamedTuple):
    """From which step size on a solver diverges, and one that does not."""

    diverges_from: float
    safe: float

    def bears(self, lr: float) -> bool:
        """Whether steps of this size surely do not diverge."""
        return STABLE_SHARE * lr <= self.safe

    def check(self, lr: float | Literal["auto"]) -> float:
        """``lr``, or the safe step for "auto"; an error or a warning that names it if ``lr`` diverges or may."""
        if lr == "auto":
            return self.safe
        if lr >= self.diverges_from:
            raise Diverged(
                f"stage 2 diverges with lr={lr:.3g}: it does from {self.diverges_from:.3g} on. "
                f"It surely does not with lr={self.safe:.3g}, which lr='auto' takes."
            )
        if not self.bears(lr):
            warnings.warn(
                f"stage 2 may diverge with lr={lr:.3g}: it surely does not with {self.safe:.3g}, which lr='auto' takes",
                stacklevel=2,
            )
        return lr


class LinearTest:
    """Scores linear models on the server's test data, whose features are computed once."""

    def __init__(self, session: Session, recipe: Recipe, normaliser: Normaliser) -> None:
        self.test, self.score = session.test, session.spec.task.squared_score
        if self.test is None:
            return
        tangents = tangent_map(session.spec, recipe, session.network.device)
        self.z = normalised(tangents.batches(self.test.x), len(self.test.y), normaliser)

    @full_precision()
    def __call__(self, state: State) -> Score | None:
        """The score of W, if there is test data."""
        if self.test is None:
            return None
        return self.score(times(self.z, state["w"]), self.test.y)
