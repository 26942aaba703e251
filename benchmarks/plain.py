"""The straightforward ways, written as the paper and every tutorial write them: what ours is compared with."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.side_by_side import Work
from benchmarks.work import BATCH, CLASSES, LR, SHAPES, WEIGHT_DECAY, images
from fedtct.models import build_module


class PlainSimpleCNN(nn.Sequential):
    """SimpleCNN as it is usually written: convolution, ReLU, pooling."""

    def __init__(self) -> None:
        super().__init__(
            *(nn.Conv2d(1, 32, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, CLASSES)),
        )


def plain_module(model: str) -> nn.Module:
    """The network of that name without any of our doing."""
    return PlainSimpleCNN() if model == "simple-cnn" else build_module(model, SHAPES[model], CLASSES)


def scaled(pixels: Tensor, mean: float = 0.5, std: float = 0.25) -> Tensor:
    """Pixels as a network sees them."""
    return (pixels.float() / 255 - mean) / std


def training_flops(model: str, device: str = "cpu") -> float:
    """Multiplications and additions of a forward and a backward pass, an image."""
    module, (x, y) = plain_module(model).to(device), images(model, BATCH)
    counter = FlopCounterMode(display=False)
    with counter:
        F.cross_entropy(module(scaled(x.to(device))), y.to(device)).backward()
    return counter.get_total_flops() / BATCH


def train_epoch(module: nn.Module, x: Tensor, y: Tensor, order: Tensor, lr: float = LR, **scale: float) -> None:
    """An epoch of SGD."""
    optimizer = torch.optim.SGD(module.parameters(), lr=lr, weight_decay=WEIGHT_DECAY)
    module.train()
    for batch in order.split(BATCH):
        optimizer.zero_grad()
        F.cross_entropy(module(scaled(x[batch], **scale)), y[batch]).backward()
        optimizer.step()


def stage1(model: str, samples: int) -> Work:
    """A bare training loop over the same batches."""
    module, (x, y) = plain_module(model), images(model, samples)

    def work() -> float:
        train_epoch(module, x, y, torch.randperm(samples))
        return samples

    return work


def training_pass(model: str, samples: int) -> Work:
    """Forward and backward, as in training, and nothing else."""
    module, (x, y) = plain_module(model).train(), images(model, samples)
    prepared = scaled(x)

    def work() -> float:
        for xs, ys in zip(prepared.split(BATCH), y.split(BATCH), strict=True):
            module.zero_grad()
            F.cross_entropy(module(xs), ys).backward()
        return samples

    return work


def features(model: str, samples: int, p: int) -> Work:
    """The paper's listing: a backward pass for every sample, of which p entries are kept."""
    module, (x, _) = plain_module(model).eval(), images(model, samples)
    count = sum(w.numel() for w in module.parameters())
    coordinates = torch.randperm(count)[:p].sort().values

    def work() -> float:
        rows = []
        for sample in scaled(x):
            module.zero_grad()
            module(sample.unsqueeze(0))[0, 0].backward()
            gradients = [w.grad.flatten() for w in module.parameters() if w.grad is not None]
            rows.append(torch.cat(gradients)[coordinates])
        torch.stack(rows)
        return samples

    return work


def stage2(samples: int, p: int, steps: int) -> Work:
    """Some of a silo's steps one by one; the unit is a step."""
    z, y = torch.randn(samples, p + 1), torch.randn(samples, CLASSES)
    w, h = torch.zeros(p + 1, CLASSES), torch.zeros(p + 1, CLASSES)

    def work() -> float:
        local_steps(z, y, w, h, 1e-6, steps)
        return steps

    return work


def local_steps(z: Tensor, y: Tensor, w: Tensor, h: Tensor, lr: float, steps: int) -> Tensor:
    """W after steps of gradient descent that SCAFFOLD corrects by h."""
    for _ in range(steps):
        w = w - lr * (z.T @ (z @ w - y) / len(z) - h)
    return w
