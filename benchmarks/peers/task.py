"""The work that all frameworks do, read from a file: images, starting weights and the order of every batch.

Nothing here knows any framework, ours included.
"""

import json
import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

FOLDER = Path(os.environ["TASK"])  # where the task lies, and where results go; every process of a run knows it
LR, BATCH = 0.05, 64


class Task(NamedTuple):
    """Silos' images x (silo, sample, …) and labels y, test data, and order (round, silo, epoch, sample)."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    order: Tensor


@cache
def load() -> Task:
    """The task in the folder."""
    with np.load(FOLDER / "task.npz") as file:
        return Task(*(torch.from_numpy(file[name]) for name in Task._fields))


def network() -> nn.Sequential:
    """SimpleCNN with the starting weights."""
    module = nn.Sequential(
        *(nn.Conv2d(1, 32, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10)),
    )
    with np.load(FOLDER / "start.npz") as file:
        start = torch.from_numpy(file["parameters"])
    nn.utils.vector_to_parameters(start, module.parameters())
    return module


def batches(silo: int, number: int) -> list[tuple[Tensor, Tensor]]:
    """A silo's batches of one round."""
    task = load()
    indices = [batch for epoch in task.order[number, silo] for batch in epoch.split(BATCH)]
    return [(task.x[silo, batch], task.y[silo, batch]) for batch in indices]


def train(module: nn.Module, silo: int, number: int) -> None:
    """A silo's part of a round."""
    optimizer = torch.optim.SGD(module.parameters(), lr=LR)
    module.train()
    for x, y in batches(silo, number):
        optimizer.zero_grad()
        F.cross_entropy(module(x), y).backward()
        optimizer.step()


@torch.no_grad()
def accuracy(module: nn.Module) -> float:
    """On the test data."""
    task = load()
    module.eval()
    return float((module(task.test_x).argmax(1) == task.test_y).double().mean())


def finish(name: str, module: nn.Module) -> None:
    """Write what the run ended with."""
    weights = nn.utils.parameters_to_vector(module.parameters()).detach().numpy()
    np.save(FOLDER / f"{name}.npy", weights)
    (FOLDER / f"{name}.json").write_text(json.dumps({"accuracy": accuracy(module)}))
