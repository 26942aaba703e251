"""FedAvg on the linear model: stage 2 without gradient correction, for comparison."""

from dataclasses import dataclass

from fedtct.stage2.iterative import IterativeRegression


@dataclass(frozen=True, kw_only=True)
class FedAvgRegression(IterativeRegression):
    """Stage 2 by FedAvg: averaged local steps. If silos differ, many steps stop short of the pooled solution.

    For the settings, see :class:`~fedtct.ScaffoldRegression`.
    """
