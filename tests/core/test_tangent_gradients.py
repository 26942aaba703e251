"""Tangent features are what a loop of autograd over samples gives, for every kind of model."""

import pytest
import torch
from tangent_models import (
    BY_FUNC,
    BY_LAYERS,
    HIDDEN_USE,
    Convolutions,
    Depends,
    InPlace,
    Norms,
    OwnParameter,
    Residual,
    Sorts,
    Words,
)
from torch import nn

from fedtct import FedtctError, tangent_features
from fedtct.models import MODELS, build_module
from fedtct.tangent import gradients
from fedtct.tangent.gradients import NoRule, batch_that_fits, why_not_by_layers

VECTOR, SMALL_IMAGE = (12,), (2, 9, 8)

pytestmark = [
    pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel"),
    pytest.mark.filterwarnings("ignore:tangent features are computed by torch.func"),
]


def randomised(module: nn.Module, seed: int = 0) -> nn.Module:
    """In float64, with norms and running statistics as training leaves them, not as they begin."""
    draws = torch.Generator().manual_seed(seed)
    module = module.double()
    with torch.no_grad():
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if name.endswith("running_var"):
                tensor.uniform_(0.5, 2, generator=draws)
            elif name.endswith("running_mean"):
                tensor.normal_(0, 0.5, generator=draws)
            elif tensor.ndim == 1:
                tensor.add_(0.3 * torch.randn(tensor.shape, generator=draws, dtype=torch.float64))
    return module


def samples(shape: tuple[int, ...], n: int = 3) -> torch.Tensor:
    return torch.randn(n, *shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def some_coordinates(module: nn.Module, count: int) -> torch.Tensor:
    """In random order, and some from every parameter."""
    draws = torch.Generator().manual_seed(2)
    chosen, start = [], 0
    sizes = [p.numel() for p in module.parameters()]
    for size in sizes:
        chosen.append(start + torch.randperm(size, generator=draws)[: 1 + count * size // sum(sizes)])
        start += size
    chosen = torch.cat(chosen)
    return chosen[torch.randperm(len(chosen), generator=draws)]


def loop_over_samples(module: nn.Module, x: torch.Tensor, coordinates: torch.Tensor) -> torch.Tensor:
    module.eval()
    parameters = list(module.parameters())
    rows = []
    for sample in x:
        gradients = torch.autograd.grad(
            module(sample.unsqueeze(0))[0, 0], parameters, allow_unused=True, materialize_grads=True
        )
        rows.append(torch.cat([g.reshape(-1) for g in gradients])[coordinates])
    return torch.stack(rows)


def assert_right(module, x, coordinates, **options):
    expected = loop_over_samples(module, x, coordinates)
    found = tangent_features(module, x, coordinates, **options)
    assert expected.norm() > 0
    assert (found - expected).norm() <= 1e-10 * expected.norm()


@pytest.mark.parametrize("name", MODELS)
def test_registered_models(name):
    shape = {"simple-cnn": (3, 16, 16), "resnet18-bn": (3, 8, 8), "resnet18-gn": (3, 8, 8)}.get(name, VECTOR)
    module, x = randomised(build_module(name, shape, 3)), samples(shape)
    coordinates = some_coordinates(module, 2000)
    assert_right(module, x, coordinates)
    assert why_not_by_layers(module, x[:1], coordinates) is None


def test_all_coordinates_of_a_network():
    module, x = randomised(build_module("mlp", VECTOR, 3)), samples(VECTOR)
    assert_right(module, x, torch.arange(sum(p.numel() for p in module.parameters())))


@pytest.mark.parametrize("model", [*BY_LAYERS, *BY_FUNC])
@pytest.mark.parametrize("share", [0.02, 1.0], ids=["few", "all"])
def test_own_models(model, share):
    torch.manual_seed(0)
    module, x = randomised(model()), samples(SMALL_IMAGE)
    count = sum(p.numel() for p in module.parameters())
    coordinates = some_coordinates(module, int(share * count))
    assert (why_not_by_layers(module, x, coordinates) is None) == (model in BY_LAYERS)
    assert_right(module, x, coordinates)


@pytest.mark.parametrize("method", ["func", "layers"])
@pytest.mark.parametrize("share", [0.3, 1.0], ids=["few", "all"])
def test_embeddings(method, share):
    torch.manual_seed(0)
    module, x = Words().double(), torch.randint(7, (5, 3, 4))
    coordinates = some_coordinates(module, int(share * sum(p.numel() for p in module.parameters())))
    assert why_not_by_layers(module, x, coordinates) is None
    assert_right(module, x, coordinates, method=method)


@pytest.mark.parametrize("options", [{"max_norm": 1.0}, {"scale_grad_by_freq": True}])
def test_embeddings_that_no_rule_covers(options):
    module = nn.Sequential(nn.Embedding(7, 5, **options), nn.Flatten(), nn.Linear(15, 2))
    with pytest.raises(NoRule):
        tangent_features(module, torch.randint(7, (5, 3)), torch.arange(9), method="layers")


def channels_last(module, x):
    return module.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("model", [Convolutions, Residual])
def test_how_images_lie_in_memory_does_not_matter(model):
    module, x = channels_last(randomised(model()), samples(SMALL_IMAGE))
    assert_right(module, x, some_coordinates(module, 200), method="layers")


def test_the_batch_fits_the_memory_that_is_left(monkeypatch):
    module, x = randomised(Convolutions()), samples(SMALL_IMAGE)
    assert batch_that_fits(module, x[:1], 1000) == gradients.BATCH["cpu"]
    monkeypatch.setattr(gradients, "free_bytes", lambda device: 10**6)
    assert 1 <= batch_that_fits(module, x[:1], 10_000) < gradients.BATCH["cpu"]
    assert_right(module, x, some_coordinates(module, 100))
    assert_right(module, x, some_coordinates(module, 100), method="func")


@pytest.mark.parametrize("model", BY_LAYERS)
def test_all_ways_agree(model):
    torch.manual_seed(0)
    module, x = randomised(model()), samples(SMALL_IMAGE)
    for method in ["layers", "func", "loop"]:
        assert_right(module, x, some_coordinates(module, 50), method=method)


@pytest.mark.parametrize("model", [model for model in BY_FUNC if model not in HIDDEN_USE])
def test_rules_are_not_applied_where_they_do_not_hold(model):
    module = randomised(model())
    with pytest.raises(NoRule):
        tangent_features(module, samples(SMALL_IMAGE), some_coordinates(module, 50), method="layers")


@pytest.mark.parametrize("model", BY_FUNC)
def test_it_says_that_it_goes_the_general_way_and_why(model):
    module, x = randomised(model()), samples(SMALL_IMAGE)
    with pytest.warns(UserWarning, match="are computed by torch.func, which is slower: .+"):
        tangent_features(module, x, some_coordinates(module, 50))


def test_what_torch_func_cannot_follow_goes_a_sample_at_a_time():
    module, x = randomised(Depends()), samples(SMALL_IMAGE)
    with pytest.warns(
        UserWarning,
        match="are computed one sample at a time, which is slow: rules for its layers miss a part of the gradient",
    ):
        assert_right(module, x, some_coordinates(module, 50))


@pytest.mark.parametrize("descending", [False, True])
def test_a_model_that_sorts_samples_is_found_out_though_they_are_sorted(descending):
    module, x = randomised(Sorts()), samples((4,))
    x = x[x[:, 0].argsort(descending=descending)]
    with pytest.warns(UserWarning, match="rules for its layers miss a part of the gradient"):
        assert_right(module, x, some_coordinates(module, 10))


def test_without_a_compiled_kernel_it_goes_the_general_way(monkeypatch):
    module, x = randomised(Convolutions()), samples(SMALL_IMAGE)
    monkeypatch.setattr(gradients, "fast_kernel", lambda device: gradients.plain_kernel)
    with pytest.warns(UserWarning, match="with a C compiler, install fedtct again"):
        assert_right(module, x, some_coordinates(module, 50))


@pytest.mark.parametrize("model", [Convolutions, OwnParameter])
def test_without_gradients_being_recorded(model):
    module, x = randomised(model()), samples(SMALL_IMAGE)
    coordinates = some_coordinates(module, 50)
    expected = tangent_features(module, x, coordinates)
    with torch.no_grad():
        assert torch.equal(tangent_features(module, x, coordinates), expected)


def test_coordinates_may_repeat_and_batches_do_not_matter():
    module, x = randomised(Convolutions()), samples(SMALL_IMAGE, n=7)
    coordinates = torch.tensor([5, 3, 5, 0, 3])
    assert_right(module, x, coordinates, batch=2)


@pytest.mark.parametrize("model", [Norms, InPlace])
def test_the_model_is_left_as_it_was(model):
    module, x = randomised(model()).train(), samples(SMALL_IMAGE)
    layers = list(module.modules())
    frozen = module.head.requires_grad_(False).eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    tangent_features(module, x, some_coordinates(module, 20))
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert [p.requires_grad for p in module.parameters()] == [True] * (len(list(module.parameters())) - 2) + [False] * 2
    assert all(p.grad is None for p in module.parameters())
    assert [layer for layer in layers if not layer.training] == [frozen]
    assert not any(layer._forward_hooks for layer in layers)
    assert all(layer.inplace for layer in layers if isinstance(layer, nn.ReLU))


@pytest.mark.parametrize("coordinates", [[], [-1], [0, 10**6]])
def test_coordinates_must_be_the_models(coordinates):
    with pytest.raises(FedtctError, match=r"coordinates must lie in 0 … \d+"):
        tangent_features(Norms(), samples(SMALL_IMAGE).float(), torch.tensor(coordinates, dtype=torch.int64))


def test_a_method_must_be_known():
    with pytest.raises(FedtctError, match=r"unknown method 'fast'\. Known: auto, layers, func, loop"):
        tangent_features(nn.Linear(3, 2), torch.zeros(1, 3), torch.tensor([0]), method="fast")
