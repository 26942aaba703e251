"""Convexify: the empirical neural tangent features of a network.

Its modules, each after those that it imports:

- sampled gradients: dots_triton, dots, convolutions_triton, convolutions, rules, parts, layers, gradients
- features: fresh_head, maps, normaliser
"""

from fedtct.tangent.fresh_head import check_head, feature_count
from fedtct.tangent.gradients import tangent_features
from fedtct.tangent.maps import Recipe, TangentFeatures, TangentMap, shared_map
from fedtct.tangent.normaliser import LinearModel, Moments, Normaliser, feature_rows, normalised

__all__ = [
    "LinearModel",
    "Moments",
    "Normaliser",
    "Recipe",
    "TangentFeatures",
    "TangentMap",
    "check_head",
    "feature_count",
    "feature_rows",
    "normalised",
    "shared_map",
    "tangent_features",
]
