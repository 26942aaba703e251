"""SCAFFOLD on the linear model: stage 2 as the paper runs it."""

from dataclasses import dataclass
from typing import ClassVar

from fedtct.stage2.base import IterativeRegression


@dataclass(frozen=True, kw_only=True)
class ScaffoldRegression(IterativeRegression):
    """Local steps with every silo's gradient corrected by how it differs from everybody's.

    The problem is convex, so this converges to the pooled solution however the data is dealt.
    """

    correction: ClassVar[str] = "scaffold"
