"""Everything that determines a network except its weights, so that every silo builds the same one."""

import contextlib
import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from fedtct.errors import FedtctError
from fedtct.models.head import find_head, head_size, other_heads
from fedtct.models.inputs import InputSpec
from fedtct.models.network import Network, evaluation_mode
from fedtct.models.pretrained import StateDict, load_state_dict
from fedtct.models.registry import Model, build_module, build_own
from fedtct.tasks import NUMBERED, Answers, Classification, Task, task_from


@dataclass(frozen=True)
class NetworkSpec:
    """Everything but the weights: enough to build the same network on every machine."""

    model: str | nn.Module
    inputs: InputSpec
    num_classes: int  # the number of outputs, which is 1 for a regression
    head: str | None = None
    stem: str = "small"
    task: Task = NUMBERED
    seed: int = 0  # for everything that the model's constructor draws
    fixed: Mapping[str, Tensor] = field(default_factory=dict, compare=False)  # other buffers, from Network.fixed

    def encode(self, x: Any, y: Answers, whose: str) -> tuple[Tensor, Tensor]:
        """Samples and what is to be learnt of them, as networks and losses take them."""
        return self.inputs.encode(x, whose), self.task.encode(y, self.num_classes, whose)

    def record(self) -> dict[str, Any]:
        """Plain values, for JSON; of a model that has no registered name only its class and seed."""
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
        """The inverse of ``record``; ``model``, a module or a function that makes it, is needed if it has no name."""
        inputs = InputSpec.from_record(record["inputs"])
        outputs, seed = int(record["num_classes"]), int(record.get("seed", 0))
        if model is not None and not isinstance(model, str | nn.Module):
            model = build_own(model, inputs.shape, outputs, seed)
        return cls(
            model if model is not None else record["model"],
            inputs,
            outputs,
            record["head"],
            record["stem"],
            task_from(record["task"]),
            seed,
        )

    def build(
        self,
        device: torch.device | str = "cpu",
        *,
        state: StateDict | None = None,
        precision: torch.dtype | None = None,
        channels_last: bool = False,
    ) -> Network:
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
            raise FedtctError(f"the model's head '{head}' has {outputs} outputs, but {wanted}{other_heads(module)}")
        if state is not None:
            load_state_dict(module, state, head)
        _fix(module, self.fixed)
        network = Network(module, head, self.inputs, device, precision=precision, channels_last=channels_last)
        if network.channels_last and isinstance(self.model, nn.Module) and not _takes_a_sample(network):
            network = Network(module, head, self.inputs, device, precision=precision)
        network.copies_inputs = isinstance(self.model, nn.Module) and _writes_to_samples(network)
        return network


@torch.no_grad()
def _takes_a_sample(network: Network) -> bool:
    """Whether the module takes a sample; one that calls ``view`` on images fails if channels come last."""
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
    with evaluation_mode(network.module), contextlib.suppress(Exception):  # try_model reports failures
        network.module(x)
    return x._version != version or not torch.equal(x, before)


def _copied(module: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(module)
    except RuntimeError as error:  # for a tensor computed from parameters, where torch only gives a link
        raise FedtctError(
            "the model cannot be copied: remove its weight_norm or pruning (remove_weight_norm, prune.remove), or make "
            "it with torch.nn.utils.parametrizations"
        ) from error
    except Exception as error:
        raise FedtctError("the model cannot be copied", error) from error


def _fix(module: nn.Module, fixed: Mapping[str, Tensor]) -> None:
    """Give a module the buffers that came from ``Network.fixed``."""
    buffers = dict(module.named_buffers())
    for name, value in fixed.items():
        own = buffers.get(name, torch.empty(0))
        like = torch.view_as_real(own) if own.is_complex() else own
        if (like.shape, like.dtype) != (value.shape, value.dtype):
            raise FedtctError(f"the saved buffer '{name}' does not fit the model: it is not the one that was trained")
        value = value.to(own.device, copy=True)
        own.data = torch.view_as_complex(value) if own.is_complex() else value
