"""Stage 2: federated solvers of the linear regression on tangent features, a file each.

Its modules, each after those that it imports:

- what they share: base, inspection, convexify, iterative
- solvers: scaffold, fedavg, gradient_descent, conjugate_gradient, ridge
- many settings at once: grid
"""

from fedtct.stage2.base import Stage2
from fedtct.stage2.conjugate_gradient import ConjugateGradient
from fedtct.stage2.fedavg import FedAvgRegression
from fedtct.stage2.gradient_descent import GradientDescent
from fedtct.stage2.iterative import IterativeRegression
from fedtct.stage2.ridge import Ridge
from fedtct.stage2.scaffold import ScaffoldRegression

__all__ = [
    "ConjugateGradient",
    "FedAvgRegression",
    "GradientDescent",
    "IterativeRegression",
    "Ridge",
    "ScaffoldRegression",
    "Stage2",
]
