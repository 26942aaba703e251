"""Networks: a registry of names, and the flat form that the algorithms compute with."""

from fedtct.models.network import InputSpec, Network, NetworkSpec, Weights, find_head, head_size
from fedtct.models.registry import MODELS, build_module

__all__ = ["MODELS", "InputSpec", "Network", "NetworkSpec", "Weights", "build_module", "find_head", "head_size"]
