"""Least squares on one silo's features: many steps at once, and the sums that determine a fit."""

from fedtct.least_squares.closed_form import LocalRegression, local_regression
from fedtct.least_squares.local_features import LocalFeatures
from fedtct.least_squares.pooled import optimal_share
from fedtct.least_squares.products import times
from fedtct.least_squares.sums import RidgePath, Sums

__all__ = [
    "LocalFeatures",
    "LocalRegression",
    "RidgePath",
    "Sums",
    "local_regression",
    "optimal_share",
    "times",
]
