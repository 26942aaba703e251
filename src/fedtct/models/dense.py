"""Networks for vectors, tables and tiny images: a linear model and a two-layer perceptron."""

from math import prod

from torch import nn

HIDDEN = 200


def linear(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Softmax regression on the flattened input."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(input_shape), num_classes))


def mlp(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Two hidden layers of 200 ReLU units, the "2NN" of the FedAvg paper."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(prod(input_shape), HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, num_classes),
    )
