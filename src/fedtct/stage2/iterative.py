"""Rounds of local steps on the linear model: what all methods share that take steps."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from fedtct.errors import Diverged, FedtctError, check_positive, check_whole, listing, make_plain
from fedtct.federation import Federation, Replies
from fedtct.history import State
from fedtct.questions import Message
from fedtct.rounds import Rounds, checked_round
from fedtct.session import Session
from fedtct.stage2.base import Stage2
from fedtct.stage2.convexify import Convexified, convexify
from fedtct.stage2.inspection import inspect_steps
from fedtct.tangent import LinearModel, Recipe
from fedtct.tasks import Score

STABLE_SHARE = 0.95  # of the step size at which steps begin to diverge; what lr="auto" takes


@dataclass(frozen=True, kw_only=True)
class IterativeRegression(Stage2):
    """Rounds of full-batch local steps, averaged by the server. Your own stage 2 can be a subclass.

    For the settings, see :class:`~fedtct.ScaffoldRegression`. ``lr="auto"`` takes the largest step that is safe for
    every silo: each knows the largest eigenvalue of its own Hessian. The paper's step is 5e-5, which diverges where
    silos hold a single class. A subclass may change:

    - ``round``: what becomes of the state, in which ``w`` is the linear model
    - ``question``: what silos are asked in a round
    - ``step_limits``: the step size from which rounds diverge, and one that is safe; see GradientDescent
    - ``correction``: "scaffold" if silos correct their steps, "none" by default
    - ``exact``: True if rounds build on differences to earlier ones, so all silos must reply and weights must not be
      rounded on their way. With a correction, it is always True
    """

    rounds: int = 100
    steps: int = 500
    lr: float | Literal["auto"] = "auto"
    evaluate_every: int = 1
    patience: int | None = None

    correction: ClassVar[Literal["none", "scaffold"]] = "none"
    exact: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        """A correction builds on differences to earlier rounds, so whoever has one is ``exact``."""
        super().__init_subclass__()
        cls.exact = cls.exact or cls.correction != "none"

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
        return LinearModel(problem.normaliser, RegressionRounds(self, session, problem, lr).run({"w": start})["w"])

    def round(self, federation: Federation, state: State, number: int, lr: float) -> tuple[State, Replies]:
        """W ← Σ (n_k/n)·W_k; ``lr`` is the step size, known by then."""
        replies = federation.ask("regress", self.question(state, number, lr))
        return {"w": replies.average("w")}, replies

    def question(self, state: State, number: int, lr: float, *, start: Tensor | None = None) -> Message:
        """What a silo needs to know for a round: it rates W, and takes its steps from W or from ``start``.

        In a round without a rating, it gets only the point from which to step.
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
class RegressionRounds(Rounds):
    """Rounds on a prepared problem, with a step size that was checked."""

    method: IterativeRegression
    problem: Convexified
    lr: float

    name = "stage2"

    def round(self, state: State, number: int) -> tuple[State, Replies]:
        """The method's own, refused if it needs all silos and some did not reply."""
        federation, method = self.session.federation, self.method
        state, replies = checked_round(method, method.round(federation, state, number, self.lr), ("w",))
        if method.exact and not federation.begins_anew and len(replies.messages) < len(federation):
            raise FedtctError(
                f"{type(method).__name__} needs every silo in every round, but only {len(replies.messages)} of "
                f"{len(federation)} replied: ask all of them, or use FedAvgRegression or Ridge"
            )
        if not method.exact:
            self._warn_of_steps([name for name in self.problem.silos if name in replies.cost.silos])
        return state, replies

    def _warn_of_steps(self, there: Sequence[str]) -> None:
        """Warn if steps that are safe for all silos together may be too long for the few that replied."""
        if not 0 < len(there) < len(self.problem.silos):
            return
        if not self.method.step_limits(self.problem.among(there)).bears(self.lr):
            warnings.warn(
                f"stage 2 may diverge while only {listing(there)} replies: its step size, {self.lr:.3g}, is safe only "
                "for all silos together",
                stacklevel=2,
            )

    def evaluate(self, state: State) -> Replies | None:
        """Asked of the silos."""
        return self.session.federation.ask("rate", {"w": state["w"]})

    def test(self, state: State) -> Score | None:
        """Computed on the test data's features."""
        return self.problem.test(state)


class StepLimits(NamedTuple):
    """The step size from which on a solver diverges, and one that is safe."""

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
                f"stage 2 diverges with lr={lr:.3g}, as with any lr from {self.diverges_from:.3g} on. "
                f"lr={self.safe:.3g}, which lr='auto' uses, is safe."
            )
        if not self.bears(lr):
            warnings.warn(
                f"stage 2 may diverge with lr={lr:.3g}: {self.safe:.3g}, which lr='auto' uses, is safe",
                stacklevel=2,
            )
        return lr
