"""A module whose parameters are views of one flat vector: what the algorithms compute with.

Every federated rule (averages, corrections, server momentum) is vector arithmetic. With the parameters in one
vector it is written as such, and a step of SGD is two operations whatever the number of layers.
"""

import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from fedtct.data.samples import as_inputs
from fedtct.data.tables import TableCode, is_table
from fedtct.errors import FedtctError
from fedtct.memory import keep_freed_memory
from fedtct.models.head import find_head, head_size, other_heads
from fedtct.models.pretrained import StateDict, load_state_dict
from fedtct.models.registry import Model, build_module, build_own
from fedtct.tasks import UNNAMED, Answers, Classification, Task, task_from

BATCH_COUNT = "num_batches_tracked"  # BatchNorm's counter, which says nothing about the network


class Weights(NamedTuple):
    """All that a network has learnt, as two vectors."""

    parameters: Tensor  # in the order of module.parameters()
    buffers: Tensor  # the floating-point buffers: BatchNorm's running statistics


@dataclass(frozen=True)
class InputSpec:
    """What a sample looks like, and how raw pixels or a table's rows become the numbers a network sees."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    mean: tuple[float, ...] = ()  # per channel, of pixels scaled to [0, 1]; empty for other data than uint8
    std: tuple[float, ...] = ()
    table: TableCode | None = None

    def encode(self, samples: Any, whose: str) -> Tensor:
        """Samples as a network takes them; refused if they are of another shape or kind than the silos'."""
        if self.table is not None:
            return self.table.encode(samples, whose)
        if is_table(samples):
            samples = samples.to_numpy()
            if samples.dtype == object:
                raise FedtctError(f"{whose} is a table with texts, the model takes arrays of shape {self.shape}")
        x: Tensor = as_inputs(samples, whose)
        if tuple(x.shape[1:]) != self.shape:
            raise FedtctError(f"{whose}: samples have shape {tuple(x.shape[1:])}, expected {self.shape}")
        if x.dtype == torch.int64 and self.dtype.is_floating_point:
            return x.to(self.dtype)  # bytes are not: they may be pixels that others have scaled
        if x.dtype != self.dtype:
            raise FedtctError(f"{whose}: samples are {x.dtype}, expected {self.dtype} as in training")
        return x

    def examples(self, count: int = 1) -> Tensor:
        """Made-up samples to try a model on: numbers from 0 to 1, which may be codes too, and pixels of any value."""
        drawn = torch.rand(count, *self.shape, generator=torch.Generator().manual_seed(0))
        return (drawn * 255 if self.dtype == torch.uint8 else drawn).to(self.dtype)

    def record(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "shape": list(self.shape),
            "dtype": str(self.dtype).removeprefix("torch."),
            "mean": list(self.mean),
            "std": list(self.std),
            "table": self.table and self.table.record(),
        }

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "InputSpec":
        """What ``record`` told."""
        table = record.get("table")
        return cls(
            tuple(record["shape"]),
            getattr(torch, record["dtype"]),
            tuple(record["mean"]),
            tuple(record["std"]),
            TableCode.from_record(table) if table else None,
        )


@dataclass(frozen=True)
class NetworkSpec:
    """Everything but the weights: enough to build the same network on every machine."""

    model: str | nn.Module
    inputs: InputSpec
    num_classes: int  # outputs: one of a regression
    head: str | None = None
    stem: str = "small"
    task: Task = UNNAMED
    seed: int = 0  # that what a constructor draws is drawn from
    fixed: Mapping[str, Tensor] = field(default_factory=dict, compare=False)  # as Network.fixed told them

    def encode(self, x: Any, y: Answers, whose: str) -> tuple[Tensor, Tensor]:
        """Samples and what is to be learnt of them, as networks and losses take them."""
        return self.inputs.encode(x, whose), self.task.encode(y, self.num_classes, whose)

    def record(self) -> dict[str, Any]:
        """Plain values, for JSON; of a model that is no name, only its class is told, and the seed it was made with."""
        named = isinstance(self.model, str)
        own = {} if named else {"seed": self.seed}
        return own | {
            "model": self.model if named else None,
            "class": None if named else type(self.model).__name__,
            "num_classes": self.num_classes,
            "head": self.head,
            "stem": self.stem,
            "inputs": self.inputs.record(),
            "task": self.task.record(),
        }

    @classmethod
    def from_record(cls, record: dict[str, Any], model: Model | None = None) -> "NetworkSpec":
        """What ``record`` told; ``model``, or what that function makes, stands in for one that is no name."""
        inputs, outputs, seed = InputSpec.from_record(record["inputs"]), record["num_classes"], record.get("seed", 0)
        if model is not None and not isinstance(model, str | nn.Module):
            model = build_own(model, inputs.shape, outputs, seed)
        return cls(
            model if model is not None else record["model"],
            inputs,
            outputs,
            record["head"],
            record["stem"],
            task_from(record["task"]) if "task" in record else UNNAMED,
            seed,
        )

    def build(
        self,
        device: torch.device | str = "cpu",
        *,
        state: StateDict | None = None,
        precision: torch.dtype | None = None,
        channels_last: bool = False,
    ) -> "Network":
        """The network on a device, with weights from ``state``, else its own, else drawn from the seed.

        ``channels_last`` is granted where the module can take it; convolutions are then faster.
        """
        if isinstance(self.model, nn.Module):
            module = _copied(self.model)
        else:
            module = build_module(self.model, self.inputs.shape, self.num_classes, seed=self.seed, stem=self.stem)
        head = find_head(module, self.head)
        outputs = head_size(module, head)
        if outputs != self.num_classes:
            classes = isinstance(self.task, Classification)
            wanted = f"the silos have {self.num_classes} classes" if classes else "a regression needs 1"
            raise FedtctError(f"the model's head '{head}' has {outputs} outputs, {wanted}{other_heads(module)}")
        if state is not None:
            load_state_dict(module, state, head)
        _fix(module, self.fixed)
        network = Network(module, head, self.inputs, device, precision=precision, channels_last=channels_last)
        if network.channels_last and isinstance(self.model, nn.Module) and not _takes_a_sample(network):
            network = Network(module, head, self.inputs, device, precision=precision)
        network.copies_inputs = isinstance(self.model, nn.Module) and _writes_to_samples(network)
        return network


class Network:
    """A module on a device with flat parameters, flat gradients and flat buffers.

    ``precision`` is that of the forward pass, if it is another than the parameters'. With ``channels_last`` the
    convolutions' weights lie in memory as the fast kernels want them; weights that come and go do not show it.
    """

    copies_inputs = False  # for a module that writes to what it is given: samples are their owner's

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
        self.module = module.to(device)
        self.head, self.inputs, self.device = head, inputs, torch.device(device)
        if self.device.type == "cpu":
            keep_freed_memory()
        self._set_pixel_scale()
        tensors = list(self.module.parameters())
        self.shapes = [p.shape for p in tensors]
        dtypes = {p.dtype for p in tensors}
        self.precision = precision
        self.channels_last = channels_last and any(len(shape) == 4 for shape in self.shapes)
        self._frozen = [p for p in tensors if not p.requires_grad]  # by whoever made the module
        self.parameters = self.to_memory(_flatten(tensors, self.device))
        self.gradient = torch.zeros_like(self.parameters)
        for parameter, w, g in zip(tensors, self.views(self.parameters), self.views(self.gradient), strict=True):
            parameter.data, parameter.grad = w, g
        buffers = [b for b in self.module.buffers() if b.is_floating_point()]
        self.dtypes = dtypes | {b.dtype for b in buffers}  # before each vector has one
        self.buffers = _flatten(buffers, self.device)
        # Counters and what a constructor drew: they do not travel, so every training begins with them as they were.
        others = {name: b for name, b in self.module.named_buffers() if not b.is_floating_point()}
        self._fixed = {name: (buffer, buffer.clone()) for name, buffer in others.items()}
        for buffer, piece in zip(buffers, self.buffers.split([b.numel() for b in buffers] or [0]), strict=False):
            buffer.data = piece.view(buffer.shape)

    def __call__(self, x: Tensor) -> Tensor:
        """Logits of raw samples."""
        x = self.prepare(x)
        if self.copies_inputs:
            x = x.clone()
        if self.precision is None:
            logits: Tensor = self.module(x)
            return logits
        # Without its cache, because a captured graph must cast the weights anew at every replay.
        with torch.autocast(self.device.type, self.precision, cache_enabled=False):
            logits = self.module(x)
        return logits.to(self.parameters.dtype)

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

    def fixed(self) -> dict[str, Tensor]:
        """The buffers that are no weights, such as a permutation that the constructor drew; complex ones as pairs."""
        kept = {name: first for name, (_, first) in self._fixed.items() if not name.endswith(BATCH_COUNT)}
        return {name: torch.view_as_real(b) if b.is_complex() else b for name, b in kept.items()}

    def views(self, flat: Tensor) -> list[Tensor]:
        """A vector that lies in memory as the parameters do, as tensors of the parameters' shapes."""
        pieces = flat.split([shape.numel() for shape in self.shapes])
        return [self._view(piece, shape) for piece, shape in zip(pieces, self.shapes, strict=True)]

    def to_memory(self, flat: Tensor) -> Tensor:
        """A vector in the order of module.parameters(), as the parameters lie in memory."""
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
        """Training mode for a while; then the weights, running statistics too, are what they were."""
        before = self.weights()
        self.set_training(trainable)
        try:
            yield
        finally:
            self.load(before)
            self.module.eval()

    def trainable_slices(self) -> list[slice]:
        """Where the parameters in training lie in the flat vector, in as few pieces as possible."""
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
        """(pixel / 255 − mean) / std, as one product and one sum a channel."""
        self.pixel_scale: Tensor | None = None
        if self.inputs.mean:
            view = (1, -1) + (1,) * (len(self.inputs.shape) - 1)
            mean = torch.tensor(self.inputs.mean, dtype=torch.float64)
            std = torch.tensor(self.inputs.std, dtype=torch.float64)
            self.pixel_scale = (1 / (255 * std)).float().view(view).to(self.device)
            self.pixel_shift = (-mean / std).float().view(view).to(self.device)


@contextlib.contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; each layer then has its own mode back."""
    modes = [(layer, layer.training) for layer in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for layer, training in modes:
            layer.training = training


@torch.no_grad()
def _takes_a_sample(network: Network) -> bool:
    """With channels last, a module that calls ``view`` on its images does not."""
    with evaluation_mode(network.module):
        try:
            network(network.inputs.examples())
        except RuntimeError:
            return False
    return True


@torch.no_grad()
def _writes_to_samples(network: Network) -> bool:
    """Whether the module computes in place on what it is given, as nn.ReLU(inplace=True) does if it comes first.

    Tokens are not tried, since one that the module does not know would end the process on a GPU; copying them is cheap.
    """
    if network.inputs.dtype == torch.int64:
        return True
    x = network.prepare(network.inputs.examples())
    before, version = x.clone(), x._version
    with evaluation_mode(network.module), contextlib.suppress(Exception):  # that it fails is told where it is tried
        network.module(x)
    return x._version != version or not torch.equal(x, before)


def _copied(module: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(module)
    except RuntimeError as error:  # of a tensor that is computed from parameters: torch's advice is a link
        raise FedtctError(
            "the model cannot be copied: remove its weight_norm or pruning (remove_weight_norm, prune.remove), or make "
            "it with torch.nn.utils.parametrizations"
        ) from error
    except Exception as error:
        raise FedtctError("the model cannot be copied", error) from error


def _fix(module: nn.Module, fixed: Mapping[str, Tensor]) -> None:
    """Give a module the buffers that ``Network.fixed`` told."""
    buffers = dict(module.named_buffers())
    for name, value in fixed.items():
        own = buffers.get(name, torch.empty(0))
        like = torch.view_as_real(own) if own.is_complex() else own
        if (like.shape, like.dtype) != (value.shape, value.dtype):
            raise FedtctError(f"the saved buffer '{name}' does not fit the model: it is not the one that was trained")
        value = value.to(own.device, copy=True)
        own.data = torch.view_as_complex(value) if own.is_complex() else value


def _flatten(tensors: Sequence[Tensor], device: torch.device) -> Tensor:
    return torch.cat([t.detach().reshape(-1) for t in tensors]) if tensors else torch.zeros(0, device=device)
