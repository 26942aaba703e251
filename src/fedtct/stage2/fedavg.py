"""FedAvg on the linear model: stage 2 without gradient correction, for comparison."""

from dataclasses import dataclass

from fedtct.stage2.iterative import IterativeRegression


@dataclass(frozen=True, kw_only=True)
class FedAvgRegression(IterativeRegression):
    """Local steps, averaged. With many steps it stops short of the pooled solution when silos differ.

    Settings are those of :class:`~fedtct.ScaffoldRegression`.
    """
