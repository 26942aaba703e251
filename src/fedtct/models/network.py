"""A module whose parameters are views of one flat vector, which the algorithms compute with.

Every federated rule (averages, corrections, server momentum) is vector arithmetic. With the parameters in one
vector it is written as such, and a step of SGD is two operations whatever the number of layers.
"""

import contextlib
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from fedtct.errors import FedtctError
from fedtct.hardware.allocator import keep_freed_memory
from fedtct.hardware.precision import bf16_products
from fedtct.models.inputs import InputSpec

Layout = list[list[Any]]  # [name, shape] of every weight
BATCH_COUNT = "num_batches_tracked"  # BatchNorm's counter, which says nothing about the network


class Weights(NamedTuple):
    """All that a network has learnt, as two vectors."""

    parameters: Tensor  # in the order of module.parameters()
    buffers: Tensor  # the floating-point buffers: BatchNorm's running statistics


class Network:
    """A module on a device with flat parameters, flat gradients and flat buffers.

    ``precision`` is that of the forward pass, if it differs from the parameters'. With ``channels_last`` the weights of
    convolutions lie in memory as fast kernels want them; ``load`` and ``weights`` convert to and from the usual order.
    """

    copies_inputs = False  # whether the module gets copies, because it writes to its inputs

    def __init__(
        self,
        module: nn.Module,
        head: str,
        inputs: InputSpec,
        device: torch.device | str = "cpu",
        *,
        precision: torch.dtype | None = None,
        channels_last: bool = False,
    ) -> None:
        if any(isinstance(p, UninitializedParameter) for p in module.parameters()):
            raise FedtctError("the model has lazy layers, whose sizes are not known yet: run a sample through it first")
        if any(tensor.is_meta for tensor in (*module.parameters(), *module.buffers())):
            raise FedtctError("the model is on the meta device, where weights have no values: make it on the CPU")
        self.module = module.to(device)
        self.head, self.inputs, self.device = head, inputs, torch.device(device)
        if self.device.type == "cpu":
            keep_freed_memory()
        tensors = list(self.module.parameters())
        self.shapes = [p.shape for p in tensors]
        dtypes = {p.dtype for p in tensors}
        self.precision = precision
        self.channels_last = channels_last and any(len(shape) == 4 for shape in self.shapes)
        # On a processor, torch's GroupNorm crashes in the backward pass of channels-last images without a gradient.
        normed = any(isinstance(part, nn.GroupNorm) for part in self.module.modules())
        self._follows_inputs = self.channels_last and self.device.type == "cpu" and normed
        self._frozen = [p for p in tensors if not p.requires_grad]  # frozen by whoever made the module
        self.parameters = self.to_memory(_flatten(tensors, self.device))
        self.gradient = torch.zeros_like(self.parameters)
        self._set_pixel_scale()
        for parameter, w, g in zip(tensors, self.views(self.parameters), self.views(self.gradient), strict=True):
            parameter.data, parameter.grad = w, g
        buffers = list(weight_buffers(self.module).values())
        self.dtypes = dtypes | {b.dtype for b in buffers}  # of the module as it was given: the vectors have one each
        self.buffers = _flatten(buffers, self.device)
        # Other buffers, such as counters, are not sent: every training begins with their first values.
        others = {name: b for name, b in self.module.named_buffers() if not b.is_floating_point()}
        self._fixed = {name: (buffer, buffer.clone()) for name, buffer in others.items()}
        for buffer, piece in zip(buffers, self.buffers.split([b.numel() for b in buffers] or [0]), strict=False):
            buffer.data = piece.view(buffer.shape)

    def __call__(self, x: Tensor) -> Tensor:
        """Logits of raw samples."""
        x = self.prepare(x)
        if self._follows_inputs and torch.is_grad_enabled() and not x.requires_grad:
            x = x.detach().requires_grad_()
        if self.copies_inputs:
            x = x.clone()
        if self.precision is None:
            logits: Tensor = self.module(x)
            return logits
        # Without autocast's cache, because a captured graph must cast the weights anew at every replay.
        with self.arithmetic(), torch.autocast(self.device.type, self.precision, cache_enabled=False):
            logits = self.module(x)
        return logits.to(self.parameters.dtype)

    def arithmetic(self) -> contextlib.AbstractContextManager[None]:
        """The context for forward passes and their gradients."""
        return contextlib.nullcontext() if self.precision is None else bf16_products(self.device)

    def prepare(self, x: Tensor) -> Tensor:
        """Raw samples as the module wants them: pixels scaled and normalised, other data as it is."""
        x = x.to(self.device)
        if self.pixel_scale is not None:
            x = torch.addcmul(self.pixel_shift, x.to(self.parameters.dtype), self.pixel_scale)
        elif x.is_floating_point():
            x = x.to(self.parameters.dtype)
        return x.contiguous(memory_format=torch.channels_last) if self.channels_last and x.ndim == 4 else x

    def load(self, weights: Weights) -> None:
        """Take these weights."""
        sizes, own = [len(v) for v in weights], [len(self.parameters), len(self.buffers)]
        if sizes != own:
            raise FedtctError(f"these weights do not fit the model: (parameters, buffers) are {sizes}, not {own}")
        self.parameters.copy_(self.to_memory(weights.parameters.to(self.device)))
        self.buffers.copy_(weights.buffers)
        for buffer, first in self._fixed.values():
            buffer.copy_(first)

    def weights(self) -> Weights:
        """A copy of the present weights."""
        if not self.channels_last:
            return Weights(self.parameters.clone(), self.buffers.clone())
        flat = torch.cat([view.reshape(-1) for view in self.views(self.parameters)])
        return Weights(flat, self.buffers.clone())

    def layout(self) -> Layout:
        """The names and shapes of what the vectors consist of, in order."""
        tensors = (*self.module.named_parameters(), *weight_buffers(self.module).items())
        return [[name, list(tensor.shape)] for name, tensor in tensors]

    def fixed(self) -> dict[str, Tensor]:
        """The first values of other buffers, such as a permutation that the constructor drew; complex ones as pairs."""
        kept = {name: first for name, (_, first) in self._fixed.items() if not name.endswith(BATCH_COUNT)}
        return {name: torch.view_as_real(b) if b.is_complex() else b for name, b in kept.items()}

    def views(self, flat: Tensor) -> list[Tensor]:
        """Views of a vector, in the parameters' order in memory, with the parameters' shapes."""
        pieces = flat.split([shape.numel() for shape in self.shapes])
        return [self._view(piece, shape) for piece, shape in zip(pieces, self.shapes, strict=True)]

    def to_memory(self, flat: Tensor) -> Tensor:
        """Converts a vector from the order of module.parameters() to the parameters' order in memory."""
        if not self.channels_last:
            return flat
        result = torch.empty_like(flat)
        pieces = flat.split([shape.numel() for shape in self.shapes])
        for view, piece in zip(self.views(result), pieces, strict=True):
            view.copy_(piece.view(view.shape))
        return result

    def set_training(self, trainable: str) -> None:
        """Training mode for what is trainable; the rest is frozen, running statistics too.

        ``"all"``, ``"last-layer"`` for the head, or ``"last:3"`` for the last three of the module's own parts.
        """
        parts = {"all": [self.module], "last-layer": [self.module.get_submodule(self.head)]}.get(trainable)
        if parts is None:
            with_weights = [child for child in self.module.children() if any(True for _ in child.parameters())]
            parts = with_weights[-int(trainable.removeprefix("last:")) :]
        self.module.eval().requires_grad_(False)
        for part in parts:
            part.train().requires_grad_(True)
        for parameter in self._frozen:
            parameter.requires_grad_(False)

    @contextlib.contextmanager
    def tried_in_training(self, trainable: str) -> Iterator[None]:
        """Training mode for a while; afterwards the weights, with running statistics, are restored."""
        before = self.weights()
        self.set_training(trainable)
        try:
            yield
        finally:
            self.load(before)
            self.module.eval()

    def trainable_slices(self) -> list[slice]:
        """Where the trained parameters lie in the flat vector, in as few slices as possible."""
        slices: list[slice] = []
        start = 0
        for parameter in self.module.parameters():
            stop = start + parameter.numel()
            if parameter.requires_grad:
                joins = bool(slices) and slices[-1].stop == start
                slices = [*slices[:-1], slice(slices[-1].start, stop)] if joins else [*slices, slice(start, stop)]
            start = stop
        return slices

    def _view(self, piece: Tensor, shape: torch.Size) -> Tensor:
        if self.channels_last and len(shape) == 4:
            outputs, inputs, height, width = shape
            return piece.view(outputs, height, width, inputs).permute(0, 3, 1, 2)
        return piece.view(shape)

    def _set_pixel_scale(self) -> None:
        """(pixel / 255 − mean) / std, as one product and one sum a channel, in the parameters' precision."""
        self.pixel_scale: Tensor | None = None
        if self.inputs.mean:
            view = (1, -1) + (1,) * (len(self.inputs.shape) - 1)
            mean = torch.tensor(self.inputs.mean, dtype=torch.float64)
            std = torch.tensor(self.inputs.std, dtype=torch.float64)
            self.pixel_scale = (1 / (255 * std)).view(view).to(self.parameters)
            self.pixel_shift = (-mean / std).view(view).to(self.parameters)


def weight_buffers(module: nn.Module) -> dict[str, Tensor]:
    """The buffers that are sent with the parameters, such as running statistics, in their order."""
    return {name: buffer for name, buffer in module.named_buffers() if buffer.is_floating_point()}


def check_layout(trained: Layout, now: Layout) -> None:
    """Refuse a model whose weights lie in another order than those that were trained."""
    for was, this in zip_longest(trained, now, fillvalue=None):
        if was != this:
            raise FedtctError(
                f"the model is not the one that was trained: it has {_told(this)} instead of {_told(was)}. Build it "
                "with the same layers, in the same order"
            )


def _told(weight: list[Any] | None) -> str:
    return f"{weight[0]} {tuple(weight[1])}" if weight else "nothing"


@contextlib.contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; afterwards each layer has its own mode again."""
    modes = [(layer, layer.training) for layer in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for layer, training in modes:
            layer.training = training


def _flatten(tensors: Sequence[Tensor], device: torch.device) -> Tensor:
    return torch.cat([t.detach().reshape(-1) for t in tensors]) if tensors else torch.zeros(0, device=device)
