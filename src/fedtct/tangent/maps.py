"""The feature map of stage 2 as a recipe that fits in a message."""

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
    """Which tangent features stage 2 regresses on.

    ``p`` coordinates are sampled (all, if the network has no more); ``seed`` draws them and the new head;
    ``normalize=False`` leaves features as they are, for the paper's ablation.
    """

    p: int = 100_000
    seed: int = 0
    normalize: bool = True

    def __post_init__(self) -> None:
        make_plain(self)
        check_whole(1, p=self.p)
        check_whole(0, seed=self.seed)

    def recipe(self, weights: Weights) -> "Recipe":
        """The feature map at these stage-1 weights."""
        # Attention masks are buffers of −∞; running statistics that overflow are no numbers, or +∞.
        if not bool(weights.parameters.isfinite().all() and (weights.buffers < torch.inf).all()):
            raise Diverged("stage 1 diverged: its weights are not finite. Begin a new run with a smaller lr.")
        return Recipe(*weights, p=self.p, seed=self.seed, normalize=self.normalize)


class Recipe(NamedTuple):
    """All that a silo needs to build the same feature map as everybody else."""

    parameters: Tensor
    buffers: Tensor
    p: int
    seed: int
    normalize: bool
    bounded: bool = False  # every sample's features are scaled to norm one, as differential privacy needs them


class TangentMap:
    """Samples to tangent features: d logit₀ / d θ at p coordinates, with a fresh head of a single logit."""

    def __init__(self, spec: NetworkSpec, recipe: Recipe, device: torch.device | str = "cpu") -> None:
        network = spec.build(device)
        # Kernels want images channels first; only max-pooling on a processor is so slow that way that turning pays.
        if network.device.type == "cpu" and any(isinstance(layer, nn.MaxPool2d) for layer in network.module.modules()):
            network = spec.build(device, channels_last=True)
        network.load(Weights(recipe.parameters, recipe.buffers))
        self.network = with_fresh_head(network, recipe.seed)
        count = len(self.network.parameters)
        chosen = torch.randperm(count, generator=generator(recipe.seed, "coordinates"))[: recipe.p]
        self.coordinates = chosen.sort().values.to(device)
        self.bounded = recipe.bounded
        self.gradients = SampledGradients(self.network.module, self.coordinates)
        if recipe.bounded:  # a sample decides on its own features alone, and not on how those of others are computed
            self.gradients.prepare(self.network.prepare(spec.inputs.examples(CHECKED)))

    @property
    def p(self) -> int:
        """How many features there are."""
        return len(self.coordinates)

    def batches(self, x: Tensor) -> Iterator[Tensor]:
        """Raw features of many samples, some at a time."""
        return (self(samples) for samples in x.split(self.gradients.prepare(self.network.prepare(x[:CHECKED]))))

    def __call__(self, x: Tensor) -> Tensor:
        """Raw features, one row a sample."""
        features = self.gradients(self.network.prepare(x))
        # What overflows has no norm to divide by, and a single such sample would show in every sum.
        return nn.functional.normalize(features.nan_to_num_(0.0, 0.0, 0.0)) if self.bounded else features


def tangent_map(spec: NetworkSpec, recipe: Recipe, device: torch.device) -> TangentMap:
    """The map, made once for silos of one process that ask for the same one after another: it takes a while."""
    return _made_once(spec, recipe, device, recipe.parameters._version)


@lru_cache(maxsize=1)  # tensors are told apart by identity, and by whether they were written to since
def _made_once(spec: NetworkSpec, recipe: Recipe, device: torch.device, version: int) -> TangentMap:
    return TangentMap(spec, recipe, device)
