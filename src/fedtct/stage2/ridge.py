"""Ridge regression from sums: stage 2 in one round, exactly."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedtct.errors import FedtctError, check_not_negative, check_positive, check_whole, make_plain
from fedtct.federation import Cost, Replies
from fedtct.history import Checkpoint, Row
from fedtct.least_squares import RidgePath, Sums
from fedtct.privacy import sums_sensitivity
from fedtct.session import Session
from fedtct.stage2.base import Stage2
from fedtct.stage2.convexify import LinearTest
from fedtct.stage2.inspection import inspect_ridge
from fedtct.tangent import LinearModel, Moments, Normaliser, Recipe

# In units of a feature's variance; outside of these nothing changes any more.
STRENGTHS = tuple(10.0**k for k in range(-6, 3))
# What a degree of freedom counts in GCV: more than 1, as features come from a network that has seen the labels
# (measured by studies/ridge_choice.py).
COST = 1.2


@dataclass(frozen=True, kw_only=True)
class Ridge(Stage2):
    """Stage 2 in one round: ridge regression, solved exactly by the server.

    Silos send n, Σz, Σzzᵀ and Σzyᵀ for ``d`` features; the server normalises and solves in float64. The result does not
    depend on how the data is divided, and there is no step size.

    - ``d``: how many features to use: the first ``d`` of the ``p`` that TangentFeatures samples. A ``p`` above ``d``
      changes nothing. As the default ``p`` is 100,000, there is no warning: for more features, increase ``d``
    - ``ridge``: the strength, or how to choose it. "gcv" is generalised cross-validation on the training data, which
      needs no message; a degree of freedom counts as 1.2, because the network behind the features has seen the labels.
      "holdout" takes the strength with the smallest squared error on held-out samples, which needs a second round. Both
      choose in units of the features' mean variance, which is one unless ``normalize=False``
    - ``noise``: for differential privacy, the noise on the sums. Features are then scaled to norm one, and "gcv" takes
      as the strength how far the noise may move the features' covariance
    """

    d: int = 4096
    ridge: float | Literal["gcv", "holdout"] = "gcv"
    noise: float = 0.0

    def __post_init__(self) -> None:
        make_plain(self)
        check_whole(1, d=self.d)
        if isinstance(self.ridge, str) and self.ridge not in ("gcv", "holdout"):
            raise FedtctError(f"ridge must be a positive number, 'gcv' or 'holdout', it is '{self.ridge}'")
        if not isinstance(self.ridge, str):
            check_positive(ridge=self.ridge)
        check_not_negative(noise=self.noise)
        if self.noise and self.ridge == "holdout":
            raise FedtctError("ridge='holdout' is not differentially private")

    def check(self, session: Session) -> None:
        """Refuse to choose the strength on held-out samples if some silo has none."""
        if self.ridge == "holdout":
            session.need_holdout("ridge='holdout'")

    def run(self, session: Session, recipe: Recipe) -> LinearModel:
        """A round of sums, and another if silos choose the strength; everything else happens on the server."""
        journal = session.journal
        if (done := journal.restore("stage2")) is not None:
            return LinearModel(Normaliser.among(done.state), done.state["w"])
        journal.begin("stage2", 1, 0)
        replies = session.federation.ask("sums", recipe._asdict() | {"noise": self.noise})
        solutions = self._solve(replies, recipe)
        strength, cost = self._choose(solutions, replies, session, recipe)
        journal.find_out("stage2", lambda: inspect_ridge(solutions.path, strength))
        linear = solutions.at(strength)
        test = LinearTest(session, recipe, linear.normaliser)({"w": linear.w})
        rating = None if self.noise else _rate(session, recipe, linear)
        journal.record(Row.of("stage2", 1, cost, session.spec.task, rating, test))
        journal.save("stage2", Checkpoint(1, linear.normaliser._asdict() | {"w": linear.w}, finished=True))
        return linear

    def recipe(self, recipe: Recipe) -> Recipe:
        """The recipe at d coordinates."""
        return recipe._replace(p=min(self.d, recipe.p), bounded=self.noise > 0)

    def decompose(self, sums: Sums, normaliser: Normaliser) -> RidgePath:
        """The step that takes the server's time: an eigendecomposition, of d³ operations."""
        return RidgePath.of(sums, normaliser, noisy=self.noise > 0)

    def _solve(self, replies: Replies, recipe: Recipe) -> "Solutions":
        """The solutions for every strength, from everybody's sums."""
        sums = Sums.total(*(replies.values(name) for name in Sums._fields))
        moments = sums.moments()
        normaliser = self._normaliser(moments, recipe)
        unit = 1.0 if recipe.normalize else _mean_variance(moments)
        return Solutions(sums, moments.mean, normaliser, self.decompose(sums, normaliser), unit)

    def _choose(self, solutions: "Solutions", replies: Replies, session: Session, recipe: Recipe) -> tuple[float, Cost]:
        """The strength as it was given, as silos judge, or as the sums say; and the cost of all questions so far."""
        path, unit, cost = solutions.path, solutions.unit, replies.cost
        if self.ridge == "holdout":
            judged = _assess(session, recipe, [solutions.at(unit * s) for s in STRENGTHS], train=False)
            return unit * _best_on_holdout(judged), cost + judged.cost
        if self.ridge != "gcv":
            return float(self.ridge), cost
        if self.noise:
            return self._noise_level(solutions.sums, len(replies.messages)), cost
        return unit * first_minimum(lambda s: path.generalised_cross_validation(unit * s, COST)), cost

    def _normaliser(self, moments: Moments, recipe: Recipe) -> Normaliser:
        """Scales each feature to variance one; with noise, which would drown small variances, all features alike."""
        if not self.noise:
            return Normaliser.of(moments, recipe.normalize)
        mean = moments.mean.float()
        return Normaliser(mean, torch.full_like(mean, len(mean) ** 0.5))

    def _noise_level(self, sums: Sums, silos: int) -> float:
        """How far noise moves the covariance: the largest eigenvalue of a random symmetric matrix (Wigner, 1955)."""
        d, n = len(sums.s) - 1, float(sums.s[0, 0])
        deviation = self.noise * sums_sensitivity(sums.t.shape[1]) * silos**0.5
        return float(2 * d**1.5 * deviation / n)  # features are scaled by √d


@dataclass(frozen=True)
class Solutions:
    """The model for every strength, from the sums that determine it."""

    sums: Sums
    mean: Tensor  # of the features
    normaliser: Normaliser
    path: RidgePath
    unit: float  # of the strengths to choose from

    def at(self, strength: float) -> LinearModel:
        """The model for one."""
        w = self.path.weights(strength, self.normaliser, self.mean)
        return LinearModel(self.normaliser, w.float())


def _mean_variance(moments: Moments) -> float:
    """The mean eigenvalue of the features' covariance; one if features never vary, as any strength will do then."""
    return float((moments.m2 / moments.n).mean()) or 1.0


def first_minimum(score: Callable[[float], float]) -> float:
    """The strength at the first minimum of the score, from the strongest ridge down.

    Not the smallest of all: the weakest ridges fit few samples exactly, where GCV is about 0/0 and says nothing.
    """
    best, least = STRENGTHS[-1], score(STRENGTHS[-1])
    for weaker in STRENGTHS[-2::-1]:
        found = score(weaker)
        if not found <= least or found == math.inf:  # infinite where no degree of freedom is left to judge by
            break
        best, least = weaker, found
    return best


def _best_on_holdout(judged: Replies) -> float:
    """The strength with the least squared error on everybody's held-out samples; of equals the strongest.

    The accuracy on few samples differs by chance: ranked by it, models are worse (studies/ridge_choice.py).
    """
    errors = torch.stack(judged.values("held_loss")).sum(0).tolist()
    return max((-error, strength) for error, strength in zip(errors, STRENGTHS, strict=True))[1]


def _assess(session: Session, recipe: Recipe, models: list[LinearModel], train: bool) -> Replies:
    """Silos' ratings of several linear models; they compute the features anew, a batch at a time."""
    message = recipe._asdict() | models[0].normaliser._asdict()
    weights = torch.stack([model.w for model in models])
    return session.federation.ask("assess", message | {"w": weights, "train": train})


def _rate(session: Session, recipe: Recipe, model: LinearModel) -> Replies:
    """Silos' ratings of one linear model, in the form that rounds have: plain numbers."""
    replies = _assess(session, recipe, [model], train=True)
    messages = [{k: v.item() if k != "n" else v for k, v in m.items()} for m in replies.messages]
    return Replies(messages, replies.cost)
