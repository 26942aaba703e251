"""Networks: a registry of names, and the flat form that the algorithms compute with.

Its modules, each after those that it imports:

- modules by name: dense, simple_cnn, resnet, registry
- their flat form: inputs, network, head, pretrained, spec, trial
- a plain nn.Module in the end: plain
"""

from fedtct.models.head import find_head, head_size, other_heads
from fedtct.models.inputs import InputSpec
from fedtct.models.network import Network, Weights
from fedtct.models.registry import MODELS, Model, build_module, build_own
from fedtct.models.spec import NetworkSpec

__all__ = [
    "MODELS",
    "InputSpec",
    "Model",
    "Network",
    "NetworkSpec",
    "Weights",
    "build_module",
    "build_own",
    "find_head",
    "head_size",
    "other_heads",
]
