"""The names of models, and how each is built for a given input shape and number of classes."""

from collections.abc import Callable

from torch import nn

from fedtct.errors import FedtctError
from fedtct.importing import is_function_name
from fedtct.models import dense
from fedtct.models.resnet import Norm, ResNet18, batch_norm, group_norm
from fedtct.models.simple_cnn import SimpleCNN
from fedtct.seeds import seeded

Builder = Callable[[tuple[int, ...], int, str], nn.Module]
Own = Callable[[tuple[int, ...], int], nn.Module]  # a user's own: input shape and number of outputs to a module
Model = str | nn.Module | Own


def _image_shape(name: str, shape: tuple[int, ...]) -> tuple[int, int, int]:
    if len(shape) != 3:
        grey = "Grey images need a channel: x[:, None]. Otherwise use" if len(shape) == 2 else "Use"
        raise FedtctError(
            f"model '{name}' takes images (channels, height, width), but the data has shape {shape}. {grey} model "
            "'mlp' or 'linear', or give an nn.Module of your own."
        )
    return shape[0], shape[1], shape[2]


def _simple_cnn(shape: tuple[int, ...], classes: int, stem: str) -> nn.Module:
    return SimpleCNN(*_image_shape("simple-cnn", shape), classes)


def _resnet18(name: str, norm: Norm) -> Builder:
    def build(shape: tuple[int, ...], classes: int, stem: str) -> nn.Module:
        return ResNet18(_image_shape(name, shape)[0], classes, norm, stem)

    return build


MODELS: dict[str, Builder] = {
    "linear": lambda shape, classes, stem: dense.linear(shape, classes),
    "mlp": lambda shape, classes, stem: dense.mlp(shape, classes),
    "simple-cnn": _simple_cnn,
    "resnet18-bn": _resnet18("resnet18-bn", batch_norm),
    "resnet18-gn": _resnet18("resnet18-gn", group_norm),
}


def check_model_name(name: str) -> None:
    """Refuse a name that is not registered."""
    if is_function_name(name):  # commands import it and hand on the function
        raise FedtctError(f"'{name}' is for commands: in Python use the function itself as model, or an nn.Module")
    if name not in MODELS:
        known = ", ".join(MODELS)
        raise FedtctError(
            f"unknown model '{name}'. Known models: {known}. For your own, use module:function in commands, and that "
            "function or an nn.Module in Python."
        )


def build_module(
    name: str, input_shape: tuple[int, ...], num_classes: int, *, seed: int = 0, stem: str = "small"
) -> nn.Module:
    """A registered model with weights drawn on the CPU from ``seed``: the same on every machine."""
    check_model_name(name)
    with seeded(seed):
        return MODELS[name](input_shape, num_classes, stem)


def build_own(build: Own, input_shape: tuple[int, ...], outputs: int, seed: int = 0) -> nn.Module:
    """What a user's function makes, with weights drawn from ``seed`` unless it draws them otherwise."""
    name = getattr(build, "__name__", "the model")
    with seeded(seed):
        try:
            module = build(input_shape, outputs)
        except Exception as error:
            raise FedtctError(f"{name}({input_shape}, {outputs}) failed", error) from error
    if not isinstance(module, nn.Module):
        raise FedtctError(f"{name}({input_shape}, {outputs}) gave {type(module).__name__}, not an nn.Module")
    return module
