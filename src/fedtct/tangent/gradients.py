"""Per-sample gradients of the first logit at sampled coordinates: the tangent features before normalising.

Models are given copies of samples, because one may compute in place on what it is given.
"""

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterator
from functools import cached_property, partial

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedtct.errors import FedtctError, check_one_of, first_line
from fedtct.hardware.memory import free_bytes
from fedtct.hardware.precision import full_precision
from fedtct.models.network import evaluation_mode
from fedtct.tangent.dots import fast_kernel, plain_kernel
from fedtct.tangent.layers import by_layers, pieces_of
from fedtct.tangent.rules import NoRule

METHODS = ("auto", "layers", "func", "loop")
BATCH = {"cpu": 64, "cuda": 512}  # samples whose activations are held at a time, if they fit
CHECKED = 4  # samples on which the rules are tried
CHECK_TOLERANCE = 1e-3
ACTIVATION_COPIES = 4  # an activation, its gradient, and both as the kernels want them
SHARE = 0.25  # of the memory that is left, for one batch


def tangent_features(
    model: nn.Module, x: Tensor, coordinates: Tensor, *, method: str = "auto", batch: int | None = None
) -> Tensor:
    """The gradient of the first logit at these coordinates, one row per sample, with the model in evaluation mode.

    ``coordinates`` are indices into all parameters, concatenated in the order of ``model.parameters()``.

    - ``method``: "layers" takes one backward pass per batch and has a rule for each kind of layer. "func"
      differentiates each sample with torch.func, for any model that it can trace. "loop" takes one backward pass per
      sample, for any model. "auto" takes the first of these that works
    - ``batch``: how many samples to compute at a time; by default, as many as are fast and fit into memory

    >>> model = nn.Linear(3, 2)  # of its first logit, the gradient is the sample itself
    >>> tangent_features(model, torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([0, 1, 2]))
    tensor([[1., 2., 3.]])
    """
    return SampledGradients(model, coordinates.to(x.device), method=method, batch=batch)(x)


class SampledGradients:
    """``tangent_features`` of one model at fixed coordinates, for many calls: the way to compute is chosen once."""

    def __init__(
        self, model: nn.Module, coordinates: Tensor, *, method: str = "auto", batch: int | None = None
    ) -> None:
        check_one_of(METHODS, method=method)
        count = sum(p.numel() for p in model.parameters())
        if len(coordinates) == 0 or int(coordinates.min()) < 0 or int(coordinates.max()) >= count:
            raise FedtctError(f"coordinates must lie in 0 … {count - 1}, and there must be at least one")
        self.model, self.method, self.batch = model, method, batch
        self.ascending, order = coordinates.sort()  # so that every parameter owns a slice of the result
        self.back = None if torch.equal(self.ascending, coordinates) else order.argsort()

    @full_precision()  # also lets in one thread at a time: a pass changes the model's hooks while it lasts
    def __call__(self, x: Tensor) -> Tensor:
        """One row a sample."""
        result = torch.empty(len(x), len(self.ascending), dtype=next(self.model.parameters()).dtype, device=x.device)
        if not len(x):
            return result
        batch = self.prepare(x)
        compute = partial(_one_by_one, coordinates=self.ascending) if self.method == "auto" else self._compute
        with evaluation_mode(self.model):
            for xs, rows in zip(x.split(batch), result.split(batch), strict=True):
                compute(self.model, xs, rows)
        return result if self.back is None else result[:, self.back]

    @full_precision()
    def prepare(self, x: Tensor) -> int:
        """Choose how to compute features of samples like these; returns how many are computed at a time.

        The ways are tried on finite samples. As long as there are none, ``method`` stays "auto".
        """
        if self.method == "auto" and len(tried := _some_finite(x)):
            reason = why_not_by_layers(self.model, tried, self.ascending)
            self.method = _general_way(self.model, tried[:2], self.ascending) if reason else "layers"
            if reason:
                way = {
                    "func": "are computed by torch.func, which is slower",
                    "loop": "are computed one sample at a time, which is slow",
                }
                warnings.warn(f"tangent features {way[self.method]}: {reason}", stacklevel=3)
        if self.batch is None and len(x):
            self.batch = batch_that_fits(self.model, x[:1], len(self.ascending))
        return self.batch or 1

    @cached_property
    def _compute(self) -> Callable[[nn.Module, Tensor, Tensor], None]:
        if self.method != "layers":
            return partial(_by_func if self.method == "func" else _one_by_one, coordinates=self.ascending)
        return partial(by_layers, pieces=pieces_of(self.model, self.ascending))


def _some_finite(x: Tensor) -> Tensor:
    """The first CHECKED samples that hold neither NaN nor infinite values."""
    rows = x.unsqueeze(1).flatten(1).isfinite().all(1).nonzero().flatten()
    return x[rows[:CHECKED]]


def why_not_by_layers(model: nn.Module, x: Tensor, coordinates: Tensor) -> str | None:
    """Why the rules for layers cannot be used for this model; none if they cover it and are right on these samples.

    Trying them out catches what the layers do not show, such as a parameter that the forward pass uses directly.
    """
    if fast_kernel(x.device.type) is plain_kernel:
        remedy = "install triton" if x.is_cuda else "with a C compiler, install fedtct again"
        return f"there is no compiled kernel here; to get it, {remedy}"
    coordinates = coordinates.sort().values
    x = x if len(x) > 1 else torch.cat([x, x])  # a model that mixes samples up shows it only with two
    try:
        right = _rules_are_right(model, x, coordinates)
        if not right and next(model.parameters()).dtype == torch.float32:
            # Rounding may have flipped a ReLU, and with it a hundredth of a sample's gradient.
            exact = copy.deepcopy(model).double()
            right = _rules_are_right(exact, x.double() if x.is_floating_point() else x, coordinates)
    except NoRule as reason:
        return str(reason)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # models, and compilers of kernels, may raise anything
        return f"rules for its layers do not apply ({first_line(error)})"
    return None if right else "rules for its layers miss a part of the gradient"


def _rules_are_right(model: nn.Module, x: Tensor, coordinates: Tensor) -> bool:
    size = (3, len(x), len(coordinates))
    fast, turned, right = torch.empty(size, dtype=next(model.parameters()).dtype, device=x.device)
    with evaluation_mode(model), full_precision():
        by_layers(model, x, fast, pieces_of(model, coordinates))
        by_layers(model, x.roll(1, 0), turned, pieces_of(model, coordinates))  # a model might sort its samples
        _one_by_one(model, x, right, coordinates)
    return all((found - right).norm() <= CHECK_TOLERANCE * right.norm() for found in (fast, turned.roll(-1, 0)))


def batch_that_fits(model: nn.Module, sample: Tensor, p: int) -> int:
    """How many samples to compute at a time, from the memory that activations and features of one take."""
    seen = 0

    def count(layer: nn.Module, args: tuple[Tensor, ...], output: object) -> None:
        nonlocal seen
        seen += sum(o.nbytes for o in (output if isinstance(output, tuple) else (output,)) if isinstance(o, Tensor))

    hooks = [layer.register_forward_hook(count) for layer in model.modules()]
    try:
        with evaluation_mode(model), torch.no_grad():
            model(sample.clone())
    finally:
        for hook in hooks:
            hook.remove()
    a_sample = ACTIVATION_COPIES * seen + p * next(model.parameters()).element_size()
    return max(1, min(BATCH.get(sample.device.type, 64), int(SHARE * free_bytes(sample.device) / a_sample)))


def _one_by_one(model: nn.Module, x: Tensor, result: Tensor, coordinates: Tensor) -> None:
    """The straightforward way, a backward pass a sample; for few samples faster than torch.func, which loads slowly."""
    parameters = {name: p.detach().requires_grad_() for name, p in model.named_parameters()}
    known, leaves = (parameters, dict(model.named_buffers())), list(parameters.values())
    with torch.enable_grad(), _no_cudnn_for_recurrence(model):
        for sample, row in zip(x.split(1), result, strict=True):
            logit = torch.func.functional_call(model, known, (sample.clone(),))[0, 0]
            gradients = torch.autograd.grad(logit, leaves, allow_unused=True, materialize_grads=True)
            row.copy_(torch.cat([g.reshape(-1) for g in gradients])[coordinates])


def _by_func(model: nn.Module, x: Tensor, result: Tensor, coordinates: Tensor) -> None:
    """The general way: torch.func differentiates every sample on its own."""
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    buffers = dict(model.named_buffers())

    def logit(parameters: dict[str, Tensor], sample: Tensor) -> Tensor:
        output: Tensor = torch.func.functional_call(model, (parameters, buffers), (sample.clone().unsqueeze(0),))
        return output[0, 0]

    def row(sample: Tensor) -> Tensor:
        gradients = torch.func.grad(logit)(parameters, sample)
        return torch.cat([g.reshape(-1) for g in gradients.values()])[coordinates]

    # Every sample of a chunk has a gradient of all parameters.
    size = sum(p.nbytes for p in parameters.values())
    chunk = max(1, min(16, int(SHARE * free_bytes(x.device) / (2 * size))))
    # The fused kernels of attention cannot be batched over samples.
    with sdpa_kernel(SDPBackend.MATH), _no_cudnn_for_recurrence(model), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop")  # our own warning says that it is slow
        result.copy_(torch.vmap(row, chunk_size=chunk)(x))


def _general_way(model: nn.Module, x: Tensor, coordinates: Tensor) -> str:
    """The faster of "func" and "loop" that works on these samples; an error of both is raised."""
    result = torch.empty(len(x), len(coordinates), dtype=next(model.parameters()).dtype, device=x.device)
    with evaluation_mode(model), full_precision():
        try:
            _by_func(model, x, result, coordinates)
        except Exception:  # for example, torch.func cannot trace what depends on a sample's values
            _one_by_one(model, x, result, coordinates)
            return "loop"
    return "func"


@contextlib.contextmanager
def _no_cudnn_for_recurrence(model: nn.Module) -> Iterator[None]:
    """Without cuDNN for a while if layers are recurrent: for these it has no backward pass in evaluation mode."""
    before = torch.backends.cudnn.enabled
    if any(isinstance(layer, nn.RNNBase) for layer in model.modules()):
        torch.backends.cudnn.enabled = False
    try:
        yield
    finally:
        torch.backends.cudnn.enabled = before
