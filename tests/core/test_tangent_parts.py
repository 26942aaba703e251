"""Attention and recurrent layers have rules: what these give is what a loop of autograd over samples gives."""

import pytest
import torch
from torch import nn

from fedtct import tangent_features
from fedtct.tangent.gradients import why_not_by_layers

STEPS, WIDTH, HIDDEN = 5, 6, 8

pytestmark = pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask")


class Recurrent(nn.Module):
    """All that a recurrent layer gives is used, and it starts from a state that depends on the sample, if asked to."""

    def __init__(self, kind, starts=False, **options):
        super().__init__()
        self.rnn = kind(WIDTH, HIDDEN, **options)
        ways = 2 if self.rnn.bidirectional else 1
        self.start = nn.Linear(WIDTH, HIDDEN) if starts else None
        self.seats = ways * self.rnn.num_layers
        self.head = nn.Linear(ways * (self.rnn.proj_size or HIDDEN), 2)

    def forward(self, x):
        state = None
        if self.start is not None:
            state = self.start(x[:, 0]).repeat(self.seats, 1, 1)  # whole: CUDA takes no expanded state
            if isinstance(self.rnn, nn.LSTM):
                state = (state[..., : self.rnn.proj_size or HIDDEN].contiguous(), state.tanh())
        given, ends = self.rnn(x if self.rnn.batch_first else x.transpose(0, 1), state)
        ends = torch.cat(ends, -1) if isinstance(ends, tuple) else ends
        ends = ends.transpose(0, 1).flatten(1).tanh().sum(1, keepdim=True)
        return self.head(given.mean(1 if self.rnn.batch_first else 0).tanh()) + ends


class Cells(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.cell, self.head = kind(WIDTH, HIDDEN, **options), nn.Linear(HIDDEN, 2)

    def forward(self, x):
        state = None
        for step in x.unbind(1):
            state = self.cell(step, state)
        return self.head(state[0] if isinstance(state, tuple) else state)


class Attention(nn.Module):
    """Of a sequence to itself or to another, with masks of every form."""

    def __init__(self, masks=(), crossed=False, **options):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, **{"batch_first": True} | options)
        self.masks, self.crossed, self.head = masks, crossed, nn.Linear(WIDTH, 2)

    def forward(self, x):
        asks, masks = x.flip(1)[:, :3].tanh() if self.crossed else x, {}
        if "padding" in self.masks:
            masks["key_padding_mask"] = (x[:, :, 0] > 0.5) & (torch.arange(STEPS) > 0)  # something is left to see
        if "causal" in self.masks:
            masks["attn_mask"] = nn.Transformer.generate_square_subsequent_mask(STEPS, dtype=x.dtype)
        if "each" in self.masks:
            masks["attn_mask"] = (asks @ x.transpose(1, 2)).repeat_interleave(2, 0)
        if self.attention.batch_first:
            return self.head((self.attention(asks, x, x, **masks)[0]).mean(1))
        x = x.transpose(0, 1)
        return self.head(self.attention(x, x, x, **masks)[0].mean(0))


class Transformer(nn.Module):
    """An encoder on samples as they are, with a first word of its own and learnt places."""

    def __init__(self, **options):
        super().__init__()
        self.word = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.places = nn.Parameter(torch.randn(1, STEPS + 1, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 12, batch_first=True, **options)
        self.first = nn.TransformerEncoderLayer(WIDTH, 2, 12, batch_first=True, **options)
        self.layers, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(WIDTH, 2)

    def forward(self, x):
        x = torch.cat([self.word.expand(len(x), -1, -1), self.first(x)], 1) + self.places
        return self.head(self.layers(x)[:, 0])


class Decoder(nn.Module):
    """Attention to itself, then to another sequence."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.TransformerDecoderLayer(WIDTH, 2, 12, batch_first=True), nn.Linear(WIDTH, 2)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(STEPS, dtype=x.dtype)
        return self.head(self.layer(x, x.flip(2).tanh(), tgt_mask=mask, tgt_is_causal=True).mean(1))


MODELS = {
    "lstm": lambda: Recurrent(nn.LSTM),
    "lstm, all options": lambda: Recurrent(
        nn.LSTM, True, batch_first=True, num_layers=2, bidirectional=True, proj_size=3, dropout=0.5
    ),
    "gru": lambda: Recurrent(nn.GRU, batch_first=True),
    "gru, all options": lambda: Recurrent(nn.GRU, True, num_layers=2, bidirectional=True, bias=False),
    "rnn": lambda: Recurrent(nn.RNN, True, nonlinearity="relu"),
    "lstm cell": lambda: Cells(nn.LSTMCell),
    "gru cell": lambda: Cells(nn.GRUCell, bias=False),
    "rnn cell": lambda: Cells(nn.RNNCell),
    "attention": Attention,
    "attention, steps first": lambda: Attention(("padding", "causal"), batch_first=False, bias=False),
    "attention to others": lambda: Attention(("padding", "each"), crossed=True),
    "decoder": Decoder,
    "transformer": lambda: Transformer(norm_first=True, activation="gelu"),
}


def samples(n: int = 3) -> torch.Tensor:
    return torch.randn(n, STEPS, WIDTH, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def module_and_coordinates(model) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    module = model().double().eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, 0, 0.4)  # biases of attention begin at zero
    return module, torch.arange(sum(p.numel() for p in module.parameters()))


@pytest.mark.parametrize("name", MODELS)
def test_rules_of_parts_give_what_autograd_gives(name):
    module, every = module_and_coordinates(MODELS[name])
    x, some = samples(), every[::7]
    expected = tangent_features(module, x, every, method="loop")
    assert why_not_by_layers(module, x, every) is None
    for chosen in (every, some):
        found = tangent_features(module, x, chosen, method="layers")
        assert (found - expected[:, chosen]).norm() <= 1e-10 * expected.norm() > 0
    before = module(x)
    assert "forward" not in vars(module) | vars(next(iter(module.children())))
    assert torch.equal(module(x), before)


@pytest.mark.parametrize("options", [{"kdim": 3, "vdim": 3}, {"add_bias_kv": True}, {"add_zero_attn": True}])
def test_attention_that_no_rule_covers(options):
    class Other(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True, **options)
            self.head = nn.Linear(WIDTH, 2)

        def forward(self, x):
            y = x[..., :3] if "kdim" in options else x
            return self.head(self.attention(x, y, y)[0].mean(1))

    module, every = module_and_coordinates(Other)
    assert why_not_by_layers(module, samples(), every) == "no rule for MultiheadAttention"
    with pytest.warns(UserWarning, match="by torch.func, which is slower: no rule for MultiheadAttention"):
        found = tangent_features(module, samples(), every)
    torch.testing.assert_close(found, tangent_features(module, samples(), every, method="loop"))


@pytest.mark.parametrize("n", [1, 3])
def test_a_value_for_all_samples_that_is_used_otherwise_has_no_rule(n):
    class First(nn.Module):
        def __init__(self):
            super().__init__()
            self.places, self.head = nn.Parameter(torch.randn(1, STEPS, WIDTH)), nn.Linear(WIDTH, 2)

        def forward(self, x):
            return self.head((x + self.places[0]).tanh().mean(1))

    module, every = module_and_coordinates(First)
    assert why_not_by_layers(module, samples(n), every) == "rules for its layers miss a part of the gradient"


def test_a_recurrent_layer_that_goes_the_general_way():
    """torch.func cannot batch it: every sample has a pass of its own."""

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.rest = nn.Parameter(torch.ones(WIDTH)), Recurrent(nn.GRU)

        def forward(self, x):
            return self.rest(self.scale * x)

    module, every = module_and_coordinates(Scaled)
    with pytest.warns(UserWarning, match="are computed one sample at a time, which is slow: no rule for Scaled"):
        found = tangent_features(module, samples(), every)
    assert torch.equal(found, tangent_features(module, samples(), every, method="loop"))
