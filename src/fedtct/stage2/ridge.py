"""Ridge regression from sums: stage 2 in one round, exactly."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedtct.classifier import LinearModel
from fedtct.errors import FedtctError
from fedtct.federation import Replies
from fedtct.history import Checkpoint, Row
from fedtct.least_squares import RidgePath, Sums
from fedtct.session import Session
from fedtct.stage2.base import LinearTest, Stage2
from fedtct.tangent import Normaliser, Recipe
from fedtct.tasks import Regression

STRENGTHS = tuple(10.0**k for k in range(-6, 3))  # features have variance one, so these span all that matters


@dataclass(frozen=True, kw_only=True)
class Ridge(Stage2):
    """Silos send n, Σz, Σzzᵀ and Σzyᵀ at ``d`` coordinates; the server normalises and solves in float64.

    The answer does not depend on how the data is dealt, and there is no step size. ``ridge`` is the strength, or how to
    choose it from training data: "gcv" by generalised cross-validation, which costs no message, or "holdout" by the
    accuracy (of numbers the squared error) on what silos hold out, which costs a second round.
    """

    d: int = 4096
    ridge: float | Literal["gcv", "holdout"] = "gcv"

    def __post_init__(self) -> None:
        if self.d < 1:
            raise FedtctError(f"Ridge needs at least one coordinate, d is {self.d}")
        if self.ridge not in ("gcv", "holdout") and not (isinstance(self.ridge, float | int) and self.ridge > 0):
            raise FedtctError(f"ridge must be positive, 'gcv' or 'holdout', it is {self.ridge}")

    def check(self, session: Session) -> None:
        """A strength chosen on held-out samples needs some."""
        if self.ridge == "holdout":
            session.need_holdout("ridge='holdout'")

    def run(self, session: Session, recipe: Recipe) -> LinearModel:
        """One round of sums; everything else happens on the server."""
        journal = session.journal
        if (done := journal.restore("stage2")) is not None:
            return LinearModel(Normaliser(done.state["mean"], done.state["scale"]), done.state["w"])
        journal.begin("stage2", 1, 0)
        replies = session.federation.ask("sums", recipe._asdict())
        sums = self._total(replies)
        moments = sums.moments()
        identity = Normaliser.identity(len(moments.mean), sums.s.device)
        normaliser = Normaliser.of(moments) if recipe.normalize else identity
        path = RidgePath.of(sums, normaliser)

        def solve(strength: float) -> LinearModel:
            w: Tensor = path.weights(strength, normaliser, moments.mean)
            return LinearModel(normaliser, w.float())

        linear = solve(self._choose(session, recipe, path, [solve(s) for s in STRENGTHS]))
        test = LinearTest(session, recipe, normaliser)({"w": linear.w})
        journal.record(Row.of("stage2", 1, replies.cost, _rate(session, recipe, linear), test))
        state = {"w": linear.w, "mean": normaliser.mean, "scale": normaliser.scale}
        journal.save("stage2", Checkpoint(1, state, finished=True))
        return linear

    def recipe(self, recipe: Recipe) -> Recipe:
        """The recipe at d coordinates."""
        return recipe._replace(p=min(self.d, recipe.p))

    def _total(self, replies: Replies) -> Sums:
        parts = []
        for m in replies.messages:
            parts.append(Sums(Sums.unpack(m["s"], len(m["t"])), m["t"], m["yy"]))
        return Sums.total(parts)

    def _choose(self, session: Session, recipe: Recipe, path: RidgePath, models: list[LinearModel]) -> float:
        """The strength of the ridge."""
        if self.ridge == "gcv":
            return min(STRENGTHS, key=path.generalised_cross_validation)
        if self.ridge == "holdout":
            replies = _assess(session, recipe, models, train=False)
            correct, loss = (torch.stack(replies.values(f"held_{of}")).sum(0) for of in ("correct", "loss"))
            numbers = isinstance(session.spec.task, Regression)
            return STRENGTHS[int(loss.argmin() if numbers else correct.argmax())]
        return float(self.ridge)


def _assess(session: Session, recipe: Recipe, models: list[LinearModel], train: bool) -> Replies:
    """What silos say about several linear models; they build the features anew, a batch at a time."""
    message = recipe._asdict() | models[0].normaliser._asdict()
    weights = torch.stack([model.w for model in models])
    return session.federation.ask("assess", message | {"w": weights, "train": train})


def _rate(session: Session, recipe: Recipe, model: LinearModel) -> Replies:
    """What silos say about one, in the form of any other rating."""
    replies = _assess(session, recipe, [model], train=True)
    messages = [{k: v.item() if k != "n" else v for k, v in m.items()} for m in replies.messages]
    return Replies(messages, replies.cost)
