"""Convexify: the empirical neural tangent features of a network."""

from fedtct.tangent.features import (
    Moments,
    Normaliser,
    Recipe,
    TangentFeatures,
    TangentMap,
    check_head,
    feature_count,
    feature_rows,
    normalised,
    tangent_map,
)
from fedtct.tangent.gradients import tangent_features

__all__ = [
    "Moments",
    "Normaliser",
    "Recipe",
    "TangentFeatures",
    "TangentMap",
    "check_head",
    "feature_count",
    "feature_rows",
    "normalised",
    "tangent_features",
    "tangent_map",
]
