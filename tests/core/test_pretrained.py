"""Starting weights from a file, torchvision's ResNet-18 among them."""

from dataclasses import replace

import pytest
import torch
from core_helpers import skewed_silos, tiny_net
from safetensors.torch import save_file
from torch import nn

from fedtct import Classifier, FedAvg, FedtctError, Silo
from fedtct.models import build_module
from fedtct.models.resnet import ResNet18, batch_norm
from fedtct.session import Session

CLASSES = 3


def images(channels: int = 3) -> torch.Tensor:
    draws = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (6, channels, 16, 16), generator=draws, dtype=torch.uint8)


def image_silos(channels: int = 3) -> list[Silo]:
    return [Silo(images(channels), torch.arange(6) % CLASSES)]


@pytest.fixture(scope="module")
def imagenet_state():
    """What torchvision's file holds: a 7×7 stem, 1,000 classes, running statistics and their counters."""
    torch.manual_seed(0)
    module = ResNet18(3, 1000, batch_norm, stem="imagenet")
    for name, value in module.named_buffers():
        if "running" in name:
            value.uniform_(0.5, 1.5)
    return module.state_dict()


@pytest.fixture(scope="module")
def imagenet_file(imagenet_state, tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "resnet18.pth"
    torch.save(imagenet_state, path)
    return path


def assert_taken_over(network, state):
    own = network.module.state_dict()
    body = [name for name in state if not name.startswith("fc.")]
    assert all(torch.equal(own[name], state[name]) for name in body)
    assert own["fc.weight"].shape == (CLASSES, 512)


@pytest.mark.parametrize("kind", ["pth", "safetensors"])
def test_imagenet_weights_keep_their_stem_and_get_a_fresh_head(kind, imagenet_state, imagenet_file, tmp_path):
    path = imagenet_file
    if kind == "safetensors":
        path = tmp_path / "resnet18.safetensors"
        save_file(imagenet_state, path)
    network = Session.open(image_silos(), "resnet18-bn", init_weights=path, seed=4).network
    assert_taken_over(network, imagenet_state)
    assert network.module.conv1.kernel_size == (7, 7)
    assert isinstance(network.module.maxpool, nn.MaxPool2d)
    fresh = build_module("resnet18-bn", (3, 16, 16), CLASSES, seed=4, stem="imagenet")
    assert torch.equal(network.module.fc.weight, fresh.fc.weight)


def test_a_model_from_imagenet_weights_is_saved_with_its_stem(imagenet_file, tmp_path):
    model = FedAvg("resnet18-bn", rounds=0, init_weights=imagenet_file).fit(image_silos()).model
    model.save(tmp_path)
    loaded = Classifier.load(tmp_path)
    assert loaded.network.module.conv1.kernel_size == (7, 7)
    assert torch.equal(loaded.scores(images()), model.scores(images()))


def test_images_that_are_small_for_imagenet_weights_are_scaled_up(imagenet_state):
    module = ResNet18(3, 1000, batch_norm, stem="imagenet").eval()
    module.load_state_dict(imagenet_state)
    x = images()[:2, :, :, 2:].float()
    large = nn.functional.interpolate(x, size=(146, 128), mode="bilinear")
    with torch.no_grad():
        scaled, as_it_is = module(x), module(large)
        module.least = 1
        assert torch.equal(as_it_is, module(large))
    assert torch.equal(scaled, as_it_is)


def test_without_a_file_the_stem_is_that_for_small_images():
    module = Session.open(image_silos(), "resnet18-bn").network.module
    assert module.conv1.kernel_size == (3, 3)
    assert isinstance(module.maxpool, nn.Identity)


@pytest.mark.parametrize("save", [torch.save, save_file], ids=["torch", "safetensors"])
def test_a_state_dict_of_the_same_model_is_taken_whole(save, tmp_path):
    path = tmp_path / ("weights.pt" if save is torch.save else "weights.safetensors")
    state = tiny_net(norm=True, seed=5).state_dict()
    save(state, path)
    network = Session.open(skewed_silos(), tiny_net(norm=True, seed=6), init_weights=path).network
    assert all(torch.equal(network.module.state_dict()[name], value) for name, value in state.items())


STATE = tiny_net().state_dict()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        (b"no tensors here", "cannot be read"),
        (tiny_net(), "cannot be read"),  # a pickled module: reading it could run code
        ({"epoch": 3, "model": STATE}, "does not hold a state dict"),
        (list(STATE.values()), "does not hold a state dict"),
        ({k: v for k, v in STATE.items() if k != "0.bias"}, r"1 tensors are missing from the file \(first: 0.bias\)"),
        (STATE | {"extra.weight": torch.zeros(2)}, r"1 tensors do not fit the model \(first: extra.weight\)"),
        (STATE | {"0.weight": torch.zeros(6, 5)}, r"1 tensors do not fit the model \(first: 0.weight\)"),
    ],
    ids=["missing", "not torch's", "pickled", "checkpoint", "list", "too few", "too many", "another shape"],
)
def test_a_wrong_file_is_refused(content, message, tmp_path):
    path = tmp_path / "weights.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    with pytest.raises(FedtctError, match=f"init_weights: .*{message}"):
        FedAvg(tiny_net(), init_weights=path, rounds=1).fit(skewed_silos())


def test_a_broken_safetensors_file_is_refused(tmp_path):
    path = tmp_path / "weights.safetensors"
    path.write_bytes(b"no tensors here")
    with pytest.raises(FedtctError, match=r"init_weights: .*cannot be read"):
        FedAvg(tiny_net(), init_weights=path, rounds=1).fit(skewed_silos())


@pytest.mark.parametrize(("model", "channels"), [("resnet18-gn", 3), ("resnet18-bn", 1), ("simple-cnn", 3)])
def test_imagenet_weights_do_not_fit_other_models_or_images(model, channels, imagenet_file):
    with pytest.raises(FedtctError, match=r"init_weights: \d+ tensors do not fit the model"):
        FedAvg(model, init_weights=imagenet_file, rounds=1).fit(image_silos(channels))


def test_a_model_that_was_saved_is_what_one_starts_from_in_the_way_that_the_error_says(tmp_path):
    train = FedAvg(tiny_net(norm=True), rounds=1)
    first = train.fit(skewed_silos()).model
    first.export(tmp_path / "first.safetensors")
    with pytest.raises(FedtctError, match=r"network\.module\.state_dict\(\) with torch\.save"):
        replace(train, init_weights=tmp_path / "first.safetensors").fit(skewed_silos())

    loaded = Classifier.load(tmp_path / "first.safetensors", tiny_net(norm=True))
    torch.save(loaded.network.module.state_dict(), tmp_path / "first.pt")
    second = replace(train, init_weights=tmp_path / "first.pt", rounds=0).fit(skewed_silos()).model
    x = skewed_silos()[0].x
    assert torch.equal(second.scores(x), first.scores(x))
