"""Per-sample gradients of the first logit at sampled coordinates: the tangent features before normalising."""

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedtct.errors import FedtctError
from fedtct.memory import free_bytes
from fedtct.models.network import evaluation_mode
from fedtct.precision import full_precision
from fedtct.tangent.convolutions import fast_convolutions
from fedtct.tangent.dots import Dots, fast_kernel, plain_kernel
from fedtct.tangent.rules import Rule, rule_for

METHODS = ("auto", "layers", "func")
BATCH = {"cpu": 64, "cuda": 512}  # samples whose activations are held at a time, if they fit
CHECKED = 4  # samples on which the rules are tried
CHECK_TOLERANCE = 1e-3
ACTIVATION_COPIES = 4  # an activation, its gradient, and both as the kernels want them
SHARE = 0.25  # of the memory that is left, for one batch


def tangent_features(
    model: nn.Module, x: Tensor, coordinates: Tensor, *, method: str = "auto", batch: int | None = None
) -> Tensor:
    """d logit₀ / d θ at these coordinates, one row a sample, with the model in evaluation mode.

    Coordinates index the parameters concatenated in the order of ``model.parameters()``. ``method="layers"`` takes one
    backward pass a batch and a rule for each layer; ``"func"`` differentiates each sample with torch.func and works for
    any model that torch.func can trace; ``"auto"`` takes the first where it can, checked against the second. ``batch``
    samples are computed at a time; if it is not given, as many as are fast and fit the memory that is left.

    >>> model = nn.Linear(3, 2)  # of its first logit, the gradient is the sample itself
    >>> tangent_features(model, torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([0, 1, 2]))
    tensor([[1., 2., 3.]])
    """
    return SampledGradients(model, coordinates.to(x.device), method=method, batch=batch)(x)


class SampledGradients:
    """``tangent_features`` of one model at fixed coordinates: what can be found out before is found out once."""

    def __init__(
        self, model: nn.Module, coordinates: Tensor, *, method: str = "auto", batch: int | None = None
    ) -> None:
        if method not in METHODS:
            raise FedtctError(f"unknown method '{method}'. Known: {', '.join(METHODS)}")
        count = sum(p.numel() for p in model.parameters())
        if len(coordinates) == 0 or int(coordinates.min()) < 0 or int(coordinates.max()) >= count:
            raise FedtctError(f"coordinates must lie in 0 … {count - 1}, and there must be at least one")
        self.model, self.method, self.batch = model, method, batch
        self.ascending, order = coordinates.sort()  # so that every parameter owns a slice of the result
        self.back = None if torch.equal(self.ascending, coordinates) else order.argsort()

    def __call__(self, x: Tensor) -> Tensor:
        """One row a sample."""
        result = torch.empty(len(x), len(self.ascending), dtype=next(self.model.parameters()).dtype, device=x.device)
        if not len(x):
            return result
        batch = self.prepare(x)
        with evaluation_mode(self.model), full_precision():
            for xs, rows in zip(x.split(batch), result.split(batch), strict=True):
                self._compute(self.model, xs, rows)
        return result if self.back is None else result[:, self.back]

    def prepare(self, x: Tensor) -> int:
        """Choose how to go about samples like these; how many are computed at a time."""
        if self.method == "auto" and len(x):
            reason = why_not_by_layers(self.model, x[:CHECKED], self.ascending)
            self.method = "func" if reason else "layers"
            if reason:
                warnings.warn(
                    f"tangent features go the general way, torch.func, which is slower: {reason}", stacklevel=2
                )
        if self.batch is None and len(x):
            self.batch = batch_that_fits(self.model, x[:1], len(self.ascending))
        return self.batch or 1

    @cached_property
    def _compute(self) -> Callable[[nn.Module, Tensor, Tensor], None]:
        if self.method == "func":
            return partial(_by_func, coordinates=self.ascending)
        return partial(_by_layers, pieces=_pieces(self.model, self.ascending))


def why_not_by_layers(model: nn.Module, x: Tensor, coordinates: Tensor) -> str | None:
    """Why rules for layers cannot be used for this model; none if they cover it and are right on some samples.

    Trying them out catches what cannot be seen from outside, such as a parameter that is also used by a function.
    """
    if fast_kernel(x.device.type) is plain_kernel:
        return "there is no compiled kernel here; with a C compiler, installing fedtct again makes it"
    coordinates = coordinates.sort().values
    try:
        right = _rules_are_right(model, x, coordinates)
        if not right and next(model.parameters()).dtype == torch.float32:
            # Rounding may have flipped a ReLU, and with it a hundredth of a sample's gradient.
            exact = copy.deepcopy(model).double()
            right = _rules_are_right(exact, x.double() if x.is_floating_point() else x, coordinates)
    except NoRule as reason:
        return str(reason)
    except (RuntimeError, TypeError, IndexError, AttributeError) as error:
        return f"rules for its layers do not apply ({str(error).splitlines()[0]})"
    return None if right else "rules for its layers miss a part of the gradient"


def _rules_are_right(model: nn.Module, x: Tensor, coordinates: Tensor) -> bool:
    size = (2, len(x), len(coordinates))
    fast, right = torch.empty(size, dtype=next(model.parameters()).dtype, device=x.device)
    with evaluation_mode(model), full_precision():
        _by_layers(model, x, fast, _pieces(model, coordinates))
        _one_by_one(model, x, right, coordinates)
    return bool((fast - right).norm() <= CHECK_TOLERANCE * right.norm())


def batch_that_fits(model: nn.Module, sample: Tensor, p: int) -> int:
    """How many samples to compute at a time, from what the activations and features of one take."""
    seen = 0

    def count(layer: nn.Module, args: tuple[Tensor, ...], output: object) -> None:
        nonlocal seen
        seen += output.nbytes if isinstance(output, Tensor) else 0

    hooks = [layer.register_forward_hook(count) for layer in model.modules()]
    try:
        with evaluation_mode(model), torch.no_grad():
            model(sample)
    finally:
        for hook in hooks:
            hook.remove()
    a_sample = ACTIVATION_COPIES * seen + p * next(model.parameters()).element_size()
    return max(1, min(BATCH.get(sample.device.type, 64), int(SHARE * free_bytes(sample.device) / a_sample)))


class NoRule(Exception):
    """The layer-by-layer way does not cover this model."""


@dataclass
class _Call:
    """What a layer saw and gave in a forward pass."""

    x: Tensor
    output: Tensor
    versions: tuple[int, int]


@dataclass(frozen=True)
class _Piece:
    """The sampled entries of one parameter, and the columns of the result they fill."""

    layer: nn.Module
    rule: Rule
    name: str
    entries: Tensor
    columns: slice


def _pieces(model: nn.Module, coordinates: Tensor) -> list[_Piece]:
    """Which entries of which layer's parameter each coordinate means."""
    owners: dict[int, tuple[nn.Module, str]] = {}
    for layer in model.modules():
        for name, parameter in layer.named_parameters(recurse=False):
            if id(parameter) in owners:
                raise NoRule("a parameter is shared")
            owners[id(parameter)] = (layer, name)
    parameters = list(model.parameters())
    ends = torch.tensor([p.numel() for p in parameters]).cumsum(0)
    places = [0, *torch.searchsorted(coordinates, ends.to(coordinates)).tolist()]
    pieces = []
    for parameter, end, start, stop in zip(parameters, ends.tolist(), places, places[1:], strict=False):
        if stop > start:
            layer, name = owners[id(parameter)]
            rule = rule_for(layer)
            if rule is None:
                raise NoRule(f"no rule for {type(layer).__name__}")
            entries = coordinates[start:stop] - (end - parameter.numel())
            pieces.append(_Piece(layer, rule, name, entries, slice(start, stop)))
    return pieces


def _by_layers(model: nn.Module, x: Tensor, result: Tensor, pieces: list[_Piece]) -> None:
    """One forward and one backward pass for activation gradients alone; then every layer's rule."""
    calls: dict[nn.Module, _Call] = {}

    def remember(layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        if layer in calls:
            raise NoRule(f"{type(layer).__name__} is called twice")
        if not output.requires_grad:
            output.requires_grad_()  # no parameter asks for gradients, so the graph starts here
        calls[layer] = _Call(args[0], output, (args[0]._version, output._version))

    hooks = [layer.register_forward_hook(remember) for layer in {piece.layer for piece in pieces}]
    try:
        with _frozen(model), torch.enable_grad(), fast_convolutions(x.device):
            logit = model(x)[:, 0].sum()
            if any((c.x._version, c.output._version) != c.versions for c in calls.values()):
                raise NoRule("an activation is changed in place")
            outputs = [call.output for call in calls.values()]
            gradients = torch.autograd.grad(logit, outputs, allow_unused=True, materialize_grads=True)
    finally:
        for hook in hooks:
            hook.remove()
    gradient = dict(zip(calls, gradients, strict=True))
    with torch.no_grad():
        for p in pieces:
            if p.layer in calls:
                values = p.rule(p.layer, calls[p.layer].x, gradient[p.layer], p.name, p.entries)
                values.write(result[:, p.columns]) if isinstance(values, Dots) else result[:, p.columns].copy_(values)
            else:
                result[:, p.columns] = 0


def _one_by_one(model: nn.Module, x: Tensor, result: Tensor, coordinates: Tensor) -> None:
    """The straightforward way. For a few samples it is faster than torch.func, which takes two seconds to load."""
    parameters = {name: p.detach().requires_grad_() for name, p in model.named_parameters()}
    known, leaves = (parameters, dict(model.named_buffers())), list(parameters.values())
    with torch.enable_grad():
        for sample, row in zip(x.split(1), result, strict=True):
            logit = torch.func.functional_call(model, known, (sample,))[0, 0]
            gradients = torch.autograd.grad(logit, leaves, allow_unused=True, materialize_grads=True)
            row.copy_(torch.cat([g.reshape(-1) for g in gradients])[coordinates])


def _by_func(model: nn.Module, x: Tensor, result: Tensor, coordinates: Tensor) -> None:
    """The general way: torch.func differentiates every sample on its own."""
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    buffers = dict(model.named_buffers())

    def logit(parameters: dict[str, Tensor], sample: Tensor) -> Tensor:
        output: Tensor = torch.func.functional_call(model, (parameters, buffers), (sample.unsqueeze(0),))
        return output[0, 0]

    def row(sample: Tensor) -> Tensor:
        gradients = torch.func.grad(logit)(parameters, sample)
        return torch.cat([g.reshape(-1) for g in gradients.values()])[coordinates]

    # Every sample of a chunk has a gradient of all parameters.
    size = sum(p.nbytes for p in parameters.values())
    chunk = max(1, min(16, int(SHARE * free_bytes(x.device) / (2 * size))))
    with sdpa_kernel(SDPBackend.MATH):  # the fused kernels of attention cannot be batched over samples
        result.copy_(torch.vmap(row, chunk_size=chunk)(x))


@contextlib.contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    """No parameter asks for a gradient for a while: weight gradients, a third of the work, are never formed."""
    asked = [p for p in model.parameters() if p.requires_grad]
    for parameter in asked:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in asked:
            parameter.requires_grad_(True)
