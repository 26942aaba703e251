"""The feature map of stage 2: its settings, the recipe that fits in a message, and the map itself."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedtct.errors import Diverged, check_whole, make_plain
from fedtct.models import NetworkSpec, Weights
from fedtct.seeds import generator
from fedtct.tangent.fresh_head import with_fresh_head
from fedtct.tangent.gradients import CHECKED, SampledGradients


@dataclass(frozen=True)
class TangentFeatures:
    """Which tangent features stage 2 of TCT uses. :func:`~fedtct.tangent_features` computes them.

    - ``p``: how many coordinates to sample; all, if the network has no more
    - ``seed``: for the choice of coordinates and the weights of the new head
    - ``normalize``: False leaves features as they are, for the paper's ablation
    """

    p: int = 100_000
    seed: int = 0
    normalize: bool = True

    def __post_init__(self) -> None:
        make_plain(self)
        check_whole(1, p=self.p)
        check_whole(0, seed=self.seed)

    def recipe(self, weights: Weights) -> "Recipe":
        """The recipe of the feature map at these weights, with which stage 1 ended."""
        # Buffers may hold −∞, as attention masks do; running statistics that overflowed are NaN or +∞.
        if not bool(weights.parameters.isfinite().all() and (weights.buffers < torch.inf).all()):
            raise Diverged("stage 1 diverged: its weights are not finite. Start a new run with a smaller lr.")
        return Recipe(*weights, p=self.p, seed=self.seed, normalize=self.normalize)


class Recipe(NamedTuple):
    """All that a silo needs to build the same feature map as everybody else."""

    parameters: Tensor
    buffers: Tensor
    p: int
    seed: int
    normalize: bool
    bounded: bool = False  # whether each sample's features are scaled to norm one, as differential privacy needs


class TangentMap:
    """Maps samples to tangent features: d logit₀ / d θ at p coordinates, with a fresh head of a single logit."""

    def __init__(self, spec: NetworkSpec, recipe: Recipe, device: torch.device | str = "cpu") -> None:
        network = spec.build(device)
        # The kernels want images channels first, but on a processor max-pooling is so slow then that channels last pay.
        if network.device.type == "cpu" and any(isinstance(layer, nn.MaxPool2d) for layer in network.module.modules()):
            network = spec.build(device, channels_last=True)
        network.load(Weights(recipe.parameters, recipe.buffers))
        self.network = with_fresh_head(network, recipe.seed)
        count = len(self.network.parameters)
        chosen = torch.randperm(count, generator=generator(recipe.seed, "coordinates"))[: recipe.p]
        self.coordinates = chosen.sort().values.to(device)
        self.bounded = recipe.bounded
        self.gradients = SampledGradients(self.network.module, self.coordinates)
        if recipe.bounded:  # choose how to compute on made-up samples: real ones must not decide it for each other
            self.gradients.prepare(self.network.prepare(spec.inputs.examples(CHECKED)))

    @property
    def p(self) -> int:
        """How many features there are."""
        return len(self.coordinates)

    def batches(self, x: Tensor) -> Iterator[Tensor]:
        """Raw features of many samples, some at a time."""
        batch = self.gradients.prepare(self.network.prepare(x[:CHECKED]))
        return (self(samples) for samples in x.split(batch))

    def __call__(self, x: Tensor) -> Tensor:
        """Raw features, one row a sample."""
        features = self.gradients(self.network.prepare(x))
        # A sample whose features overflow becomes zero: it has no norm, and would ruin every sum.
        return nn.functional.normalize(features.nan_to_num_(0.0, 0.0, 0.0)) if self.bounded else features


def shared_map(spec: NetworkSpec, recipe: Recipe, device: torch.device) -> TangentMap:
    """The map, made once: silos of one process ask for the same one after another, and making it takes a while."""
    return _made_once(spec, recipe, device, recipe.parameters._version)


@lru_cache(maxsize=1)  # compares tensors by identity; ``version`` tells whether they were written to since
def _made_once(spec: NetworkSpec, recipe: Recipe, device: torch.device, version: int) -> TangentMap:
    return TangentMap(spec, recipe, device)
