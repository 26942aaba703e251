"""Gradient descent on the pooled loss: one step a round, for comparison."""

from dataclasses import dataclass, field

from fedtct.stage2.convexify import Convexified
from fedtct.stage2.iterative import STABLE_SHARE, IterativeRegression, StepLimits


@dataclass(frozen=True, kw_only=True)
class GradientDescent(IterativeRegression):
    """Stage 2 by gradient descent: the average of one local step per silo is a step on the pooled loss.

    For the settings, see :class:`~fedtct.ScaffoldRegression`; each round is a single step.
    """

    steps: int = field(default=1, init=False)

    def step_limits(self, problem: Convexified) -> StepLimits:
        """The pooled Hessian Σ w_k·H_k counts, not each silo's.

        Its largest eigenvalue is at least max w_k·λ_k, so a step of 2 over that diverges; it is at most Σ w_k·λ_k, so
        a step below 2 over that converges.
        """
        parts = [w * e for w, e in zip(problem.shares, problem.largest_eigenvalues, strict=True)]
        return StepLimits(2 / max(parts), safe=STABLE_SHARE * 2 / sum(parts))
