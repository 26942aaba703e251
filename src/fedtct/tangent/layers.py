"""The gradients of many samples from one backward pass: for every use of a parameter, the rule of its layer."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedtct.tangent.convolutions import fast_convolutions
from fedtct.tangent.dots import Dots
from fedtct.tangent.parts import has_parts, in_parts
from fedtct.tangent.rules import NoRule, Rule, linear, rule_for


@dataclass
class _Use:
    """A use of some parameters in a forward pass: their layer's input and output, and the rule for their gradients."""

    rule: Rule
    layer: nn.Module
    parameters: dict[str, nn.Parameter]  # by the names that the rule has for them
    x: Tensor
    output: Tensor

    def __post_init__(self) -> None:
        if not self.output.requires_grad:
            self.output.requires_grad_()  # no parameter asks for gradients, so the graph starts here
        self.versions = (self.x._version, self.output._version)

    @property
    def changed(self) -> bool:
        """Whether the input or the output was written to since."""
        return self.versions != (self.x._version, self.output._version)


@dataclass(frozen=True)
class _Piece:
    """The sampled entries of one parameter, and the columns of the result that they fill."""

    entries: Tensor
    columns: slice


@dataclass(frozen=True)
class Pieces:
    """Which entries of which parameters are sampled, and which layers use these parameters."""

    of: dict[nn.Parameter, _Piece]
    layers: list[tuple[nn.Module, Rule]]
    own: dict[str, nn.Parameter]  # of modules without a rule: of shape (1, …), as added to every sample, say


def pieces_of(model: nn.Module, coordinates: Tensor) -> Pieces:
    """The pieces that ascending coordinates make up; refused if there is no rule for one of them."""
    parameters = list(model.parameters())
    ends = torch.tensor([p.numel() for p in parameters]).cumsum(0)
    places = [0, *torch.searchsorted(coordinates, ends.to(coordinates)).tolist()]
    of: dict[nn.Parameter, _Piece] = {}
    for parameter, end, start, stop in zip(parameters, ends.tolist(), places, places[1:], strict=False):
        if stop > start:
            of[parameter] = _Piece(coordinates[start:stop] - (end - parameter.numel()), slice(start, stop))
    pieces = Pieces(of, [], {})
    for path, layer in model.named_modules():
        sampled = {name: p for name, p in layer.named_parameters(path, recurse=False) if p in of}
        if not sampled or has_parts(layer):
            continue
        if (rule := rule_for(layer)) is not None:
            pieces.layers.append((layer, rule))
        elif all(p.ndim > 1 and len(p) == 1 for p in sampled.values()):
            pieces.own.update(sampled)
        else:
            name = type(layer).__name__ if any(layer.children()) else layer  # with its settings: they may be why
            raise NoRule(f"no rule for {name}")
    return pieces


def by_layers(model: nn.Module, x: Tensor, result: Tensor, pieces: Pieces) -> None:
    """One forward pass, one backward pass for the gradients of activations alone, and then the rules."""
    uses: list[_Use] = []
    x = x.clone()

    def remember(rule: Rule, layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        uses.append(_Use(rule, layer, dict(layer.named_parameters(recurse=False)), args[0], output))

    def part(layer: nn.Module, weight: str, bias: str, x: Tensor) -> Tensor:
        names = {"weight": weight, "bias": bias}
        named = {name: p for name, of in names.items() if (p := getattr(layer, of, None)) is not None}
        output = F.linear(x, **named)
        uses.append(_Use(linear, layer, named, x, output))
        return output

    hooks = [layer.register_forward_hook(partial(remember, rule)) for layer, rule in pieces.layers]
    # A parameter that all samples share is expanded to one for each: then each has a gradient of its own.
    own = {name: p.detach().expand(len(x), *p.shape[1:]).requires_grad_() for name, p in pieces.own.items()}
    try:
        with _frozen(model), torch.enable_grad(), fast_convolutions(x.device), in_parts(model, part):
            logits = torch.func.functional_call(model, own, (x,)) if own else model(x)
            logit = logits[:, 0].sum()
            if any(use.changed for use in uses):
                raise NoRule("an activation is changed in place")
            outputs = [*(use.output for use in uses), *own.values()]
            gradients = torch.autograd.grad(logit, outputs, allow_unused=True, materialize_grads=True)
    finally:
        for hook in hooks:
            hook.remove()
    with torch.no_grad():
        for p, gradient in zip(pieces.own.values(), gradients[len(uses) :], strict=True):
            result[:, pieces.of[p].columns] = gradient.flatten(1)[:, pieces.of[p].entries]
        _add_up(result, pieces, _together(uses, gradients))


def _together(uses: list[_Use], gradients: Sequence[Tensor]) -> Iterator[tuple[_Use, Tensor, Tensor]]:
    """Every use with its input and the gradient of its output; all uses of one linear map are joined into one.

    A recurrent layer uses its weights at every step: one dot product over all steps is faster than a sum of many.
    """
    groups: dict[tuple[int, ...], list[tuple[_Use, Tensor]]] = {}
    for number, (use, gradient) in enumerate(zip(uses, gradients, strict=False)):
        which = tuple(map(id, use.parameters.values())) if use.rule is linear else (number,)
        groups.setdefault(which, []).append((use, gradient))
    for group in groups.values():
        use, gradient = group[0]
        if len(group) == 1:
            yield use, use.x, gradient
        else:
            yield use, _places([use.x for use, _ in group]), _places([gradient for _, gradient in group])


def _places(parts: list[Tensor]) -> Tensor:
    """Parts with any number of places, joined: (samples, places, width)."""
    return torch.cat([part.reshape(len(part), -1, part.shape[-1]) for part in parts], 1)


def _add_up(result: Tensor, pieces: Pieces, uses: Iterator[tuple[_Use, Tensor, Tensor]]) -> None:
    """Fill the result: a parameter's gradient is the sum over its uses, and zero if there are none."""
    unused = set(pieces.of) - set(pieces.own.values())
    for use, x, gradient in uses:
        if len(x) != len(result):
            raise NoRule(
                f"{type(use.layer).__name__} sees {len(x)} rows for {len(result)} samples: "
                "samples must be its first dimension (batch_first=True)"
            )
        for name, parameter in use.parameters.items():
            if parameter not in pieces.of:
                continue
            columns = result[:, pieces.of[parameter].columns]
            place = columns if parameter in unused else torch.empty_like(columns)
            values = use.rule(use.layer, x, gradient, name, pieces.of[parameter].entries)
            values.write(place) if isinstance(values, Dots) else place.copy_(values)
            if place is not columns:
                columns += place
            unused.discard(parameter)
    for parameter in unused:
        result[:, pieces.of[parameter].columns] = 0


@contextlib.contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    """For a while no parameter asks for a gradient: weight gradients, a third of the work, are never formed.

    And layers such as ReLU(inplace=True) do not overwrite their input, which a rule may need.
    """
    asked = [p for p in model.parameters() if p.requires_grad]
    in_place: list[Any] = [layer for layer in model.modules() if getattr(layer, "inplace", None) is True]
    for parameter in asked:
        parameter.requires_grad_(False)
    for layer in in_place:
        layer.inplace = False
    try:
        yield
    finally:
        for parameter in asked:
            parameter.requires_grad_(True)
        for layer in in_place:
            layer.inplace = True
