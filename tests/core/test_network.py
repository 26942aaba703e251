"""A network's flat weights are its module's, however they lie in memory."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from core_helpers import flat, pooled, skewed_data, tct
from torch import nn

from fedtct import FedAvg, Ridge, Silo, tangent_features
from fedtct.models import InputSpec, NetworkSpec, Weights
from fedtct.models.plain import plain_module
from fedtct.models.pretrained import read_state_dict, write_state_dict

SHAPE = (3, 9, 9)


class Small(nn.Module):
    """A convolution, running statistics, an integer buffer (BatchNorm's counter) and two linear layers."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, (3, 2)), nn.BatchNorm2d(4)
        self.inner, self.head = nn.Linear(4, 5), nn.Linear(5, 2)

    def forward(self, x):
        return self.head(torch.tanh(self.inner(self.norm(self.conv(x)).mean((2, 3)))))


@pytest.fixture
def spec():
    torch.manual_seed(0)
    return NetworkSpec(Small(), InputSpec(SHAPE, torch.float32), 2)


@pytest.fixture(params=[False, True], ids=["plain", "channels last"])
def network(spec, request):
    return spec.build(channels_last=request.param)


def samples(n=4):
    return torch.randn(n, *SHAPE, generator=torch.Generator().manual_seed(1))


def test_weights_are_in_the_order_of_the_modules_parameters(spec, network):
    weights = network.weights()
    assert torch.equal(weights.parameters, flat(spec.model))
    assert torch.equal(weights.buffers, torch.cat([spec.model.norm.running_mean, spec.model.norm.running_var]))
    assert torch.allclose(network(samples()), spec.model.train()(samples()), atol=1e-6)


def test_loaded_weights_are_the_modules(spec, network):
    draws = torch.Generator().manual_seed(2)
    weights = Weights(*(torch.rand(len(v), generator=draws) for v in network.weights()))
    network.load(weights)
    assert all(torch.equal(a, b) for a, b in zip(network.weights(), weights, strict=True))
    assert torch.equal(flat(network.module), weights.parameters)
    assert torch.equal(torch.cat([network.module.norm.running_mean, network.module.norm.running_var]), weights.buffers)


def test_weights_are_a_copy(network):
    before = network.weights()
    network.load(Weights(*(v + 1 for v in before)))
    assert all(torch.equal(a, b + 1) for a, b in zip(network.weights(), before, strict=True))


def test_the_gradient_is_the_modules(spec, network):
    y = torch.tensor([0, 1, 1, 0])
    F.cross_entropy(network(samples()), y).backward()
    F.cross_entropy(spec.model(samples()), y).backward()
    expected = torch.cat([p.grad.reshape(-1) for p in spec.model.parameters()])
    assert torch.allclose(network.gradient, network.to_memory(expected), atol=1e-6)


def head_of(network):
    network.set_training("last-layer")
    return torch.cat([network.parameters[part] for part in network.trainable_slices()])


def test_the_head_is_the_last_linear_layer_or_the_named_one(spec, network):
    assert network.head == "head"
    assert torch.equal(head_of(network), flat(network.module.head))
    other = NetworkSpec(spec.model, spec.inputs, 5, head="inner").build()
    assert torch.equal(head_of(other), flat(spec.model.inner))


def test_building_neither_uses_nor_moves_torchs_own_generator():
    def draw(seed):
        torch.manual_seed(seed)
        built = NetworkSpec("mlp", InputSpec((3,), torch.float32), 2, seed=7).build()
        return built.weights().parameters, torch.rand(1), torch.manual_seed(seed) and torch.rand(1)

    (one, after, untouched), (other, _, _) = draw(1), draw(2)
    assert torch.equal(one, other)
    assert torch.equal(after, untouched)


def test_what_its_maker_froze_stays_frozen(spec):
    spec.model.inner.requires_grad_(False)
    network = spec.build()
    network.set_training("all")
    assert not network.module.inner.weight.requires_grad
    assert network.module.head.weight.requires_grad
    covered = sum(part.stop - part.start for part in network.trainable_slices())
    assert covered == sum(p.numel() for p in network.module.parameters() if p.requires_grad)


class Viewing(nn.Module):
    """Flattens its images with ``view``, as many do: not possible with channels last."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(4 * 49, 2)

    def forward(self, x):
        return self.head(self.norm(self.conv(x)).view(len(x), -1))


def test_a_module_that_cannot_take_channels_last_is_left_as_it_is():
    model = Viewing()
    network = NetworkSpec(model, InputSpec((1, 9, 9), torch.float32), 2).build(channels_last=True)
    assert not network.channels_last
    assert network.module.training  # trying it out left no trace
    assert torch.equal(network.weights().parameters, flat(model))
    x = torch.randn(4, 1, 9, 9)
    assert torch.equal(network(x), model.train()(x))


def test_a_module_without_images_has_no_channels():
    spec = NetworkSpec(nn.Linear(3, 2), InputSpec((3,), torch.float32), 2)
    assert not spec.build(channels_last=True).channels_last


def test_counters_begin_as_they_were_with_all_weights():
    """They do not travel: what a silo counted must not reach the next, nor be lost when a run goes on."""
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, momentum=None), nn.Linear(4, 2))
    network = NetworkSpec(model, InputSpec((3,), torch.float32), 2).build()
    start, ends = network.weights(), []
    for _ in range(2):
        network.load(start)
        network.module.train()
        for batch in torch.randn(3, 8, 3, generator=torch.Generator().manual_seed(0)):
            network(batch)
        ends.append(network.weights().buffers)
    assert torch.equal(*ends)


def test_a_state_dict_written_is_read_again(network, tmp_path):
    """Also that of a GPU's network, whose convolutions lie in channels-last order and within one vector."""
    write_state_dict(tmp_path / "state.safetensors", network.module)
    state = read_state_dict(tmp_path / "state.safetensors")
    assert state.keys() == network.module.state_dict().keys()
    assert all(torch.equal(state[name], value) for name, value in network.module.state_dict().items())


class InPlace(nn.Module):
    """Normalises its samples; in place, as it may do with tensors of its own."""

    def __init__(self, in_place):
        super().__init__()
        self.in_place, self.inner, self.head = in_place, nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x):
        x = x.sub_(1).div_(2) if self.in_place else (x - 1) / 2
        return self.head(torch.tanh(self.inner(x)))


def first_relu(in_place):
    return nn.Sequential(nn.ReLU(inplace=in_place), nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


@pytest.mark.parametrize("make", [InPlace, first_relu])
@pytest.mark.parametrize("method", [FedAvg(rounds=2), tct(None, Ridge(d=10), stage1=FedAvg(rounds=2))])
def test_samples_stay_as_they_are_whatever_a_module_does_to_its_input(make, method):
    data, models = skewed_data(), []
    x, y = pooled(data)
    given = [part.clone() for part, _ in data]
    for in_place in (False, True):
        torch.manual_seed(0)
        fit = replace(method, model=make(in_place)).fit([Silo(*part, holdout=0.2) for part in data], test=(x, y))
        models.append(fit.model)
        assert fit.model.score(x, y) == fit.history[-1].test_accuracy
    assert torch.equal(*(model.scores(x) for model in models))
    assert all(torch.equal(now, before) for (now, _), before in zip(data, given, strict=True))
    assert torch.equal(x, torch.cat(given))


@pytest.mark.parametrize("way", ["layers", "func", "loop", "auto"])
@pytest.mark.parametrize("make", [InPlace, first_relu])
def test_tangent_features_leave_samples_as_they_are(make, way):
    x, coordinates = torch.randn(5, 4), torch.arange(20)
    before, features = x.clone(), []
    for in_place in (False, True):
        torch.manual_seed(0)
        features.append(tangent_features(make(in_place), x, coordinates, method=way))
    assert torch.equal(x, before)
    assert torch.equal(*features)


def test_tokens_stay_as_they_are():
    model = nn.Sequential(Clamping(), nn.Embedding(5, 4), nn.Flatten(), nn.Linear(8, 2))
    tokens = torch.tensor([[0, 7], [9, 1]])
    network = NetworkSpec(model, InputSpec((2,), torch.int64), 2).build()
    network(tokens)
    assert tokens.max() == 9


class Clamping(nn.Module):
    def forward(self, x):
        return x.clamp_(max=4)


def test_the_usual_module_is_given_samples_without_a_copy(spec):
    assert not spec.build().copies_inputs


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_pixels_come_in_the_precision_of_the_weights(dtype):
    draws = torch.Generator().manual_seed(0)
    x, y = torch.randint(256, (30, 3, 4, 4), dtype=torch.uint8, generator=draws), torch.arange(30) % 2
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 2)).to(dtype)
    network = FedAvg(model, rounds=1).fit([Silo(x, y)]).model.network
    mean, std = (
        torch.tensor(v, dtype=torch.float64).view(1, 3, 1, 1) for v in (network.inputs.mean, network.inputs.std)
    )
    found, exact = network.prepare(x), (x.double() / 255 - mean) / std
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=16 * torch.finfo(dtype).eps)
    assert torch.equal(plain_module(network)(x), network(x))


@pytest.mark.parametrize("first", ["frozen", "none", "in place"])
def test_group_norm_of_what_needs_no_gradient_does_not_end_the_process(first):
    torch.manual_seed(0)
    start = {"frozen": nn.Conv2d(3, 4, 3).requires_grad_(False), "none": nn.Identity(), "in place": nn.ReLU(True)}
    width = 4 if first == "frozen" else 3
    norm, conv = nn.GroupNorm(1, width), nn.Conv2d(width, 4, 3)
    model = nn.Sequential(start[first], norm, conv, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    spec = NetworkSpec(model, InputSpec(SHAPE, torch.float32), 2)
    gradients = []
    for channels_last in (False, True):
        network = spec.build(channels_last=channels_last)
        assert network.channels_last is channels_last
        network(samples()).square().sum().backward()
        gradients.append(torch.cat([g.reshape(-1) for g in network.views(network.gradient)]))
    assert gradients[0].norm() > 0
    torch.testing.assert_close(*gradients)
    silos = [Silo(samples(8), torch.arange(8) % 2), Silo(samples(6), torch.arange(6) % 2)]
    assert tct(model, Ridge(d=10), stage1=FedAvg(rounds=1)).fit(silos).history[-1].train_accuracy is not None
