"""What holds on a GPU alone: `make test-gpu` runs these on it, and everywhere else they are skipped.

Triton's kernels are tested without a GPU, too, in its interpreter, by test_products.py, test_dots.py and
test_convolutions.py. Here they are compiled.
"""

import random
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from core_helpers import skewed_data, skewed_silos, tiny_net
from torch import Tensor, nn

from fedtct import (
    TCT,
    FedAdam,
    FedAvg,
    FedDyn,
    FedProx,
    FedtctError,
    LocalFederation,
    Ridge,
    Scaffold,
    ScaffoldRegression,
    TangentClassifier,
    TangentFeatures,
    tangent_features,
)
from fedtct.least_squares import products
from fedtct.models import NetworkSpec, build_module
from fedtct.tangent import convolutions
from fedtct.tangent.dots import fast_kernel, plain_kernel

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here: make test-gpu is for one")
GPU = "cuda"
HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)
UNWANTED = ".*(cannot use their GPU kernel|cannot be captured|cannot be compiled|is a prototype feature)"


@pytest.fixture(autouse=True)
def _no_unwanted_warning() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=UNWANTED)
        yield


class OneByOne(LocalFederation):
    """Silos that are not trained side by side, on a GPU either."""

    def use(self, spec: NetworkSpec) -> None:
        super().use(spec)
        self.trainer = None


def small_cnn() -> nn.Module:
    """In float64, so that laws hold to many digits."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 64, 3)
        return nn.Sequential(*layers).double()


def silos_with_images() -> list[tuple[Tensor, Tensor]]:
    draws = torch.Generator().manual_seed(0)
    y = torch.arange(60) % 3
    x = torch.randn(60, 1, 8, 8, generator=draws) + y.view(-1, 1, 1, 1)
    return [(x[part], y[part]) for part in torch.arange(60).split([30, 20, 10])]


def error(found: Tensor, exact: Tensor) -> float:
    found, exact = found.cpu().double(), exact.cpu().double()
    return float((found - exact).norm() / exact.norm())


@pytest.mark.skipif(not HOPPER, reason="these kernels are for Hopper and what comes after it")
@pytest.mark.parametrize("module", [products, convolutions], ids=["products", "convolutions"])
def test_compiled_kernels_are_right(module):
    assert module._kernel_works(torch.device(GPU))


@pytest.mark.parametrize("length", [1, 9, 150])
def test_the_compiled_kernel_of_short_products_is_the_plain_one(length):
    draws = torch.Generator().manual_seed(length)
    g, x = (torch.randn(3, length + 40, generator=draws).to(GPU) for _ in range(2))
    g_at, x_at = (torch.randint(41, (300,), generator=draws).to(GPU) for _ in range(2))
    found, exact = torch.full((3, 305), 7.0, device=GPU), torch.zeros(3, 300, device=GPU)
    fast_kernel(GPU)(g, x, g_at, x_at, length, found[:, 2:-3])
    plain_kernel(g, x, g_at, x_at, length, exact)
    assert fast_kernel(GPU) is not plain_kernel
    torch.testing.assert_close(found[:, 2:-3], exact, rtol=1e-4, atol=1e-4)
    assert (found[:, [0, 1, -3, -2, -1]] == 7).all()


@pytest.mark.parametrize("name", ["mlp", "simple-cnn", "resnet18-bn", "resnet18-gn"])
def test_tangent_features_are_those_of_the_processor(name):
    shape = (1, 28, 28) if name == "simple-cnn" else (3, 32, 32)
    network = build_module(name, shape, 3, seed=0)
    x = torch.randn(5, *shape, generator=torch.Generator().manual_seed(0))
    coordinates = torch.arange(0, sum(p.numel() for p in network.parameters()), 97)
    expected = tangent_features(network, x, coordinates)
    assert error(tangent_features(network.to(GPU), x.to(GPU), coordinates.to(GPU)), expected) < 1e-3


def test_side_by_side_silos_learn_without_labels_what_they_learn_one_by_one():
    def learnt(engine: type[LocalFederation], device: str) -> Tensor:
        stage1 = FedAvg(rounds=3, lr=0.01, local_epochs=2, batch_size=8, pretext="rotations", augment="crop-flip")
        federation = engine(silos_with_images(), device, precision="fp32")
        return TCT(small_cnn(), stage1, TangentFeatures(p=50), Ridge(d=50)).fit(federation).model.recipe.parameters

    found = learnt(LocalFederation, GPU)
    assert error(found, learnt(OneByOne, GPU)) < 1e-8
    assert error(found, learnt(LocalFederation, "cpu")) < 1e-8


@pytest.mark.parametrize("method", [FedAvg, FedProx, Scaffold, FedDyn, FedAdam])
def test_side_by_side_silos_learn_what_they_learn_one_by_one(method):
    def learnt(engine: type[LocalFederation], device: str) -> Tensor:
        federation = engine(silos_with_images(), device, precision="fp32")
        model = method(small_cnn(), rounds=3, lr=0.01, local_epochs=2, batch_size=8).fit(federation).model
        return torch.cat([model.scores(x).cpu() for x, _ in silos_with_images()])

    side_by_side = learnt(LocalFederation, GPU)
    assert error(side_by_side, learnt(OneByOne, GPU)) < 1e-9
    assert error(side_by_side, learnt(LocalFederation, "cpu")) < 1e-9


HALF = 2**-11  # rounding of features where they are kept, which Ridge does not


@pytest.mark.parametrize(
    ("stage2", "bound"), [(Ridge(), 1e-5), (ScaffoldRegression(rounds=20, steps=50), HALF)], ids=["ridge", "scaffold"]
)
def test_tct_is_that_of_the_processor(stage2, bound):
    def scores(device: str) -> Tensor:
        tct = TCT(small_cnn(), FedAvg(rounds=2, lr=0.01), TangentFeatures(p=200), stage2)
        model = tct.fit(LocalFederation(silos_with_images(), device, precision="fp32")).model
        return torch.cat([model.scores(x).cpu() for x, _ in silos_with_images()])

    assert error(scores(GPU), scores("cpu")) < bound


def test_bf16_learns_as_well():
    parts = skewed_data((200, 100, 60))
    x, y = (torch.cat(values) for values in zip(*parts, strict=True))

    def accuracy(precision: str) -> float:
        federation = LocalFederation(parts, GPU, precision=precision)
        return TCT("mlp", FedAvg(rounds=3), TangentFeatures(p=500), Ridge()).fit(federation).model.score(x, y)

    assert accuracy("bf16") > accuracy("fp32") - 0.05


def test_a_model_of_a_gpu_is_read_where_there_is_none(tmp_path):
    model = TCT(tiny_net(), FedAvg(rounds=1), stage2=Ridge()).fit(LocalFederation(skewed_silos(), GPU)).model
    model.save(tmp_path / "model")
    read = TangentClassifier.load(tmp_path / "model", tiny_net(), device="cpu")
    x, _ = skewed_data()[0]
    torch.testing.assert_close(read.scores(x), model.scores(x).cpu(), rtol=1e-6, atol=1e-6)


def test_samples_on_a_gpu_are_scored():
    parts = skewed_data()
    model = FedAvg("mlp", rounds=2).fit(parts).model
    x, y = (torch.cat(values) for values in zip(*parts, strict=True))
    assert model.score(x.to(GPU), y.to(GPU)) == model.score(x, y)


def test_draws_of_the_program_are_its_own():
    torch.cuda.manual_seed(3)
    before = torch.cuda.get_rng_state()
    FedAvg("mlp", rounds=1).fit(LocalFederation(skewed_silos()))
    assert torch.equal(torch.cuda.get_rng_state(), before)


class Odd(nn.Module):
    """A model with a parameter that it does not use, and whatever else its forward may do."""

    def __init__(self, also: Callable[[Tensor], object] = lambda x: None):
        super().__init__()
        self.net, self.unused, self.also = small_cnn(), nn.Parameter(torch.ones(3, dtype=torch.float64)), also

    def forward(self, x):
        self.also(x)
        return self.net(x)


def learnt_by(model: nn.Module, device: str) -> Tensor:
    federation = LocalFederation(silos_with_images(), device, precision="fp32")
    fitted = FedAvg(model, rounds=2, lr=0.01, local_epochs=1, batch_size=8).fit(federation).model
    return torch.cat([fitted.scores(x).cpu() for x, _ in silos_with_images()])


def test_a_parameter_that_is_not_used_is_no_obstacle():
    assert error(learnt_by(Odd(), GPU), learnt_by(Odd(), "cpu")) < 1e-9


@pytest.mark.parametrize(
    ("also", "reason"),
    [
        (lambda x: x.sum().item(), "synchroniz"),
        (lambda x: torch.rand([]), "draws random numbers on the processor"),
        (lambda x: random.random(), "draws random numbers on the processor"),
    ],
    ids=["waits", "torch draws", "python draws"],
)
def test_a_step_that_no_graph_can_hold_is_taken_as_on_a_processor(also, reason):
    before = torch.cuda.current_stream()
    with pytest.warns(UserWarning, match=f"cannot be captured: training step by step .*{reason}"):
        found = learnt_by(Odd(also), GPU)
    assert torch.cuda.current_stream() == before
    assert error(found, learnt_by(Odd(also), "cpu")) < 1e-9
    assert (
        error(learnt_by(small_cnn(), GPU), learnt_by(small_cnn(), "cpu")) < 1e-9
    )  # whoever comes after it is captured


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(7, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.words(x).mean(1))


def test_a_token_that_nobody_knows_leaves_the_gpu_usable():
    x, y = torch.randint(7, (20, 4), generator=torch.Generator().manual_seed(0)), torch.arange(20) % 3
    model = FedAvg(Words(), rounds=1).fit(LocalFederation([(x, y)], GPU)).model
    with pytest.raises(FedtctError, match="the model cannot take"):
        model.predict(x + 3)
    assert len(model.predict(x)) == 20


def test_features_of_a_sample_do_not_depend_on_those_beside_it():
    network = build_module("resnet18-gn", (3, 32, 32), 3).to(GPU)
    x = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0)).to(GPU)
    coordinates = torch.arange(0, sum(p.numel() for p in network.parameters()), 97, device=GPU)
    far = x.clone()
    far[1] *= 1e20
    found, beside = (tangent_features(network, some, coordinates) for some in (x, far))
    assert error(beside[[0, 2]], found[[0, 2]]) < 1e-6
