"""SCAFFOLD on the linear model: stage 2 as the paper runs it."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from fedtct.stage2.iterative import IterativeRegression


@dataclass(frozen=True, kw_only=True)
class ScaffoldRegression(IterativeRegression):
    """Local steps with every silo's gradient corrected by how it differs from everybody's.

    The problem is convex, so this converges to the pooled solution however the data is dealt.

    - ``rounds``, and in each of them ``steps`` full-batch steps of size ``lr`` in every silo
    - ``lr="auto"``: the largest step that is safe for every silo, which each can tell from its own data
    - ``evaluate_every``: rate the model every so many rounds
    - ``patience``: stop after so many rounds without a better score on held-out samples
    """

    correction: ClassVar[Literal["none", "scaffold"]] = "scaffold"
