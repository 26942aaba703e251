"""Attention and recurrent layers computed part by part, so that the rule for linear maps covers their weights.

Torch computes such a layer in one go. Here the same is written with one linear map for each weight; a weight that
serves at many steps, or for query, key and value, is simply used several times.
"""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from fedtct.tangent.rules import NoRule

Linear = Callable[[str, str, Tensor], Tensor]  # by the names of a layer's weight and bias; there may be no bias
State = tuple[Tensor, Tensor]  # of a recurrent layer: its output, and the cell state that only an LSTM has


def attention(
    layer: nn.MultiheadAttention,
    linear: Linear,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, None]:
    """All heads at once. Attention weights, which hardly any model reads, are not returned."""
    inputs = {id(x): x if layer.batch_first else x.transpose(0, 1) for x in (query, key, value)}
    projected = {which: linear("in_proj_weight", "in_proj_bias", x).chunk(3, -1) for which, x in inputs.items()}
    q, k, v = (
        projected[id(x)][third].unflatten(-1, (layer.num_heads, -1)).transpose(1, 2)
        for third, x in enumerate((query, key, value))
    )
    masks = []
    if key_padding_mask is not None:
        masks.append(_added(key_padding_mask[:, None, None], q))
    if attn_mask is not None:
        masks.append(_added(attn_mask if attn_mask.ndim == 2 else attn_mask.unflatten(0, (-1, layer.num_heads)), q))
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=sum(masks[1:], masks[0]) if masks else None)
    output: Tensor = layer.out_proj(mixed.transpose(1, 2).flatten(2))
    return output if layer.batch_first else output.transpose(0, 1), None


def _added(mask: Tensor, like: Tensor) -> Tensor:
    """A mask in the form that is added to scores: where a truth value is True, −∞."""
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, -torch.inf) if mask.dtype == torch.bool else mask


def recurrence(layer: nn.RNNBase, linear: Linear, x: Tensor, hx: Any = None) -> tuple[Tensor, Any]:
    """An RNN, GRU or LSTM step by step, all its layers and directions."""
    if isinstance(x, PackedSequence):
        raise NoRule("a padded sequence has a rule, a packed one has none")
    x = x if layer.batch_first else x.transpose(0, 1)
    ways = ["", "_reverse"] if layer.bidirectional else [""]
    starts = _starts(layer, x, hx, layer.num_layers * len(ways))
    ends: list[State] = []
    for number in range(layer.num_layers):
        outputs = []
        for way in ways:
            given, last = _along(layer, linear, f"l{number}{way}", x.flip(1) if way else x, starts[len(ends)])
            outputs.append(given.flip(1) if way else given)
            ends.append(last)
        x = torch.cat(outputs, -1)
    h, c = map(torch.stack, zip(*ends, strict=True))
    return x if layer.batch_first else x.transpose(0, 1), (h, c) if layer.mode == "LSTM" else h


def _starts(layer: nn.RNNBase, x: Tensor, hx: Any, count: int) -> list[State]:
    if hx is None:
        h = x.new_zeros(count, len(x), layer.proj_size or layer.hidden_size)
        hx = (h, x.new_zeros(count, len(x), layer.hidden_size)) if layer.mode == "LSTM" else h
    return list(zip(*(hx if layer.mode == "LSTM" else (hx, hx)), strict=True))


def _along(layer: nn.RNNBase, linear: Linear, name: str, x: Tensor, state: State) -> tuple[Tensor, State]:
    """One layer in one direction: all that it gives, and its last state."""
    step, outputs = STEPS[layer.mode], []
    for entry in linear(f"weight_ih_{name}", f"bias_ih_{name}", x).unbind(1):
        h, c = step(entry, linear(f"weight_hh_{name}", f"bias_hh_{name}", state[0]), state)
        state = (linear(f"weight_hr_{name}", "", h), c) if layer.proj_size else (h, c)
        outputs.append(state[0])
    return torch.stack(outputs, 1), state


def cell(layer: nn.RNNCellBase, linear: Linear, x: Tensor, hx: Any = None) -> Any:
    """A single step."""
    mode = f"RNN_{layer.nonlinearity}".upper() if isinstance(layer, nn.RNNCell) else type(layer).__name__[:-4]
    if hx is None:
        h = x.new_zeros(len(x), layer.hidden_size)
        hx = (h, h) if mode == "LSTM" else h
    state = hx if mode == "LSTM" else (hx, hx)
    entry, memory = linear("weight_ih", "bias_ih", x), linear("weight_hh", "bias_hh", state[0])
    h, c = STEPS[mode](entry, memory, state)
    return (h, c) if mode == "LSTM" else h


def _lstm(entry: Tensor, memory: Tensor, state: State) -> State:
    i, f, g, o = (entry + memory).chunk(4, -1)
    c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _gru(entry: Tensor, memory: Tensor, state: State) -> State:
    (r, z, n), (hr, hz, hn) = entry.chunk(3, -1), memory.chunk(3, -1)
    z = (z + hz).sigmoid()
    h = (1 - z) * (n + (r + hr).sigmoid() * hn).tanh() + z * state[0]
    return h, h


def _rnn(entry: Tensor, memory: Tensor, state: State, *, of: Callable[[Tensor], Tensor]) -> State:
    h = of(entry + memory)
    return h, h


STEPS: dict[str, Callable[[Tensor, Tensor, State], State]] = {
    "LSTM": _lstm,
    "GRU": _gru,
    "RNN_TANH": partial(_rnn, of=torch.tanh),
    "RNN_RELU": partial(_rnn, of=torch.relu),
}
PARTS: dict[type[nn.Module], Callable[..., Any]] = {
    nn.MultiheadAttention: attention,
    nn.LSTM: recurrence,
    nn.GRU: recurrence,
    nn.RNN: recurrence,
    nn.LSTMCell: cell,
    nn.GRUCell: cell,
    nn.RNNCell: cell,
}


def has_parts(layer: nn.Module) -> bool:
    """Whether a layer is computed part by part here, with the settings that it has."""
    if isinstance(layer, nn.MultiheadAttention) and (
        layer.in_proj_weight is None or layer.bias_k is not None or layer.add_zero_attn
    ):
        return False
    return type(layer) in PARTS


@contextlib.contextmanager
def in_parts(model: nn.Module, linear: Callable[[nn.Module, str, str, Tensor], Tensor]) -> Iterator[None]:
    """For a while, layers that have parts are computed by them, and ``linear`` does what their weights do."""
    layers = [layer for layer in model.modules() if has_parts(layer)]
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # it would go round the parts where nothing asks for gradients
    for layer in layers:
        layer.forward = partial(PARTS[type(layer)], layer, partial(linear, layer))
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
        for layer in layers:
            del layer.forward
