"""The feature map of stage 2 as a recipe that fits in a message, and the normaliser that all silos share."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedtct.errors import Diverged, FedtctError, check_whole, make_plain
from fedtct.hardware.memory import roomy_empty
from fedtct.hardware.precision import full_precision
from fedtct.models import Network, NetworkSpec, Weights, other_heads
from fedtct.models.trial import that_takes_examples
from fedtct.seeds import generator, seeded
from fedtct.tangent.gradients import CHECKED, SampledGradients

HALF_FROM = 2**28  # bytes of float32 features from which on they are stored in half precision
ROW = 64  # features: on a GPU rows begin at multiples of these

# Below these a feature is a constant with rounding errors: relative to its mean, and to the typical feature.
CONSTANT_TO_MEAN = 1e-5
CONSTANT_TO_TYPICAL = 1e-8


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


def with_fresh_head(network: Network, seed: int) -> Network:
    """The network with its head replaced by a single logit, drawn from the seed on the CPU."""
    old = network.module.get_submodule(network.head)
    assert isinstance(old, nn.Linear)
    with seeded(seed):  # what it draws by itself is nobody's
        new = nn.Linear(old.in_features, 1, bias=old.bias is not None)
    bound = old.in_features**-0.5
    draws = generator(seed, "head")
    with torch.no_grad():
        for parameter in new.parameters():
            parameter.uniform_(-bound, bound, generator=draws)
    new.to(old.weight.dtype)
    module: nn.Module = network.module
    if network.head:
        module.set_submodule(network.head, new)
    else:  # the model is nothing but its head
        module = new
    return Network(module, network.head, network.inputs, network.device, channels_last=network.channels_last)


@lru_cache(maxsize=1)
def feature_count(spec: NetworkSpec) -> int:
    """How many features a network has, if none are left out."""
    return len(with_fresh_head(spec.build(), seed=0).parameters)


def check_head(spec: NetworkSpec) -> None:
    """Refuse a model whose output does not follow its head once that has a single logit: there are no features of it.

    After a softmax, say, one logit is constant, whatever the sample.
    """
    if isinstance(spec.model, str):
        return
    if isinstance(spec.model, nn.DataParallel):
        raise FedtctError("an nn.DataParallel has no tangent features: give the model that is in it, model.module")
    tried = that_takes_examples(spec, spec.build())
    if tried is None:
        return
    network = with_fresh_head(tried, seed=0)
    head, seen = network.module.get_submodule(network.head), list[Tensor]()
    head.register_forward_hook(lambda layer, args, output: seen.append(output))
    network.module.eval()
    advice = "the model must end with it. Leave out what follows, such as a softmax: the losses take logits"
    advice += other_heads(network.module)
    try:
        with torch.enable_grad():
            given = network(spec.inputs.examples())
            logit = given[:, 0].sum()
        (slope,) = torch.autograd.grad(logit, seen[-1], allow_unused=True, materialize_grads=True)
    except Exception as error:
        raise FedtctError(
            f"with a single logit as its head '{network.head}' the model fails: {advice}", error
        ) from error
    if given.shape[1:] != (1,):
        raise FedtctError(
            f"with a single logit as its head '{network.head}' the model still gives {given.shape[1]} outputs for a "
            "sample: let one nn.Linear make all of them, from everything that they depend on"
        )
    if not bool(slope.any()):
        raise FedtctError(f"with a single logit as its head '{network.head}' the model is constant: {advice}")


class Moments(NamedTuple):
    """Count, mean and sum of squared deviations of every feature, in float64."""

    n: int
    mean: Tensor
    m2: Tensor

    @classmethod
    def of(cls, features: Iterable[Tensor]) -> "Moments":
        """The moments of rows that come in batches: sums about the mean of the first, so that little cancels."""
        n, centre = 0, torch.zeros(0)
        for rows in features:
            if not n:
                centre = rows.double().mean(0)
                total, squares = torch.zeros_like(centre), torch.zeros_like(centre)
            values = rows - centre  # in float64
            n, total, squares = n + len(rows), total.add_(values.sum(0)), squares.add_(values.square_().sum(0))
        return cls(n, centre + total / n, (squares - total.square() / n).clamp_min_(0))

    @classmethod
    def merge(cls, parts: list["Moments"]) -> "Moments":
        """The moments of all samples together (Chan's formula): equal to those of the pooled data."""
        n = sum(part.n for part in parts)
        mean = sum((part.n / n * part.mean for part in parts), torch.zeros_like(parts[0].mean))
        m2 = sum((p.m2 + p.n * (p.mean - mean).square() for p in parts), torch.zeros_like(mean))
        return cls(n, mean, m2)


class Normaliser(NamedTuple):
    """Feature z becomes (z − mean)·scale, cut off at ± limit; a near-constant feature has scale zero.

    Of n numbers none is more than √n standard deviations from their mean, so nothing that is trained on is cut. In a
    sample from elsewhere, a feature that was next to nothing in all but a few may be hundreds of deviations off, and
    would decide alone.
    """

    mean: Tensor
    scale: Tensor
    limit: Tensor = torch.tensor([torch.inf])

    @classmethod
    def among(cls, values: Mapping[str, Any]) -> "Normaliser":
        """The one among the values of a message or a file."""
        return cls(**{name: values[name] for name in cls._fields})

    @classmethod
    def of(cls, moments: Moments, normalize: bool = True) -> "Normaliser":
        """Mean zero and variance one over all silos; if not to normalise, features as they are. Finite they must be."""
        std = (moments.m2 / moments.n).sqrt()
        if not bool(std.isfinite().all()):
            raise Diverged(
                "tangent features are not finite: stage 1 diverged (lower its lr), or samples are far too large"
            )
        if not normalize:
            return cls.identity(len(std), std.device)
        typical = std.square().mean().sqrt()
        constant = (std <= CONSTANT_TO_MEAN * moments.mean.abs()) | (std <= CONSTANT_TO_TYPICAL * typical)
        if bool(constant.all()):
            raise Diverged(
                "the network says the same of every sample: stage 1 went too far for it (lower its lr), "
                "or samples are all alike"
            )
        scale = torch.where(constant, 0.0, 1 / std)
        return cls(moments.mean.float(), scale.float(), scale.new_tensor([moments.n]).sqrt().float())

    @classmethod
    def identity(cls, p: int, device: torch.device | str = "cpu") -> "Normaliser":
        """Leaves features as they are."""
        return cls(*(torch.full((p,), value, dtype=torch.float32, device=device) for value in (0.0, 1.0)))

    @property
    def normalises(self) -> bool:
        """Whether features have mean zero and variance one with it."""
        return not bool((self.scale == 1).all())

    def __call__(self, features: Tensor) -> Tensor:
        """Normalised features with a last column of ones: the bias of the linear model, not normalised."""
        result = features.new_empty(len(features), features.shape[1] + 1)
        torch.sub(features, self.mean.to(features), out=result[:, :-1])
        result[:, :-1] *= self.scale.to(features)
        limit = self.limit.to(features)
        result.clamp_(-limit, limit)
        result[:, -1] = 1
        return result

    @full_precision()
    def scores(self, raw: Tensor, w: Tensor) -> Tensor:
        """Normalised features times W, whose last row is the bias, without forming them; ``raw`` is written to."""
        furthest = (self.limit.to(self.scale) / self.scale).to(raw)
        centred = raw.sub_(self.mean.to(raw)).clamp_(-furthest, furthest).to(w)
        return torch.addmm(w[-1], centred, self.scale.to(w).unsqueeze(1) * w[:-1])


def feature_rows(size: tuple[int, int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Room for features, a row a sample; on a GPU rows begin where its copy engine can reach them."""
    samples, width = size
    stride = -(-width // ROW) * ROW if device.type == "cuda" else width
    return roomy_empty((samples, stride), dtype, device)[:, :width]


def normalised(batches: Iterable[Tensor], samples: int, normaliser: Normaliser) -> Tensor:
    """Normalised features of many samples from batches of raw ones, with the column of ones.

    After normalising, half precision is enough; before, gradients would underflow. It is taken on a GPU, where traffic
    is time, and for matrices that are large; larger ones than memory go to a file. Of samples that the normaliser has
    not seen a feature may be of any size: what is beyond half precision's largest number becomes that.
    """
    size = (samples, len(normaliser.mean) + 1)
    device = normaliser.mean.device
    half = normaliser.normalises and (device.type == "cuda" or 4 * size[0] * size[1] >= HALF_FROM)
    result = feature_rows(size, torch.float16 if half else torch.float32, device)
    largest = torch.finfo(torch.float16).max
    start = 0
    for raw in batches:
        rows = result[start : start + len(raw)]
        rows.copy_(normaliser(raw))
        if half:
            rows.clamp_(-largest, largest)
        start += len(raw)
    return result
