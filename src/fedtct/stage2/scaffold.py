"""SCAFFOLD on the linear model: stage 2 as the paper runs it."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from fedtct.stage2.iterative import IterativeRegression


@dataclass(frozen=True, kw_only=True)
class ScaffoldRegression(IterativeRegression):
    """Stage 2 by SCAFFOLD: local steps, corrected by how each silo's gradient differs from the average.

    The problem is convex, so this converges to the pooled solution, however the data is divided.

    - ``rounds``: how many; in each, every silo takes ``steps`` full-batch steps of size ``lr``
    - ``lr="auto"``: the largest step that is safe for every silo; each computes its own limit from its data
    - ``evaluate_every``: rate the model only every so many rounds
    - ``patience``: stop after this many rounds without a better score on held-out samples
    """

    correction: ClassVar[Literal["none", "scaffold"]] = "scaffold"
