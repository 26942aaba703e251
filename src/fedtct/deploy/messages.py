"""What will leave a silo: every message of a run with its arrays and bytes, found by running it on made-up data."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from fedtct.federation.local import LocalFederation
from fedtct.federation.wire import REMEMBERED, Envelope, pack, seal, weigh
from fedtct.least_squares import RidgePath, Sums
from fedtct.runs.config import RunConfig
from fedtct.silo import Message, Silo
from fedtct.stage2 import Ridge
from fedtct.tangent import Normaliser
from fedtct.tct import TCT

REVEALS = {
    "describe": "how many samples, which labels, the mean and spread of pixels",
    "train": "weights trained here: of few samples, some can be inferred",
    "evaluate": "how many samples the model classifies rightly here",
    "moments": "mean and variance of each feature here",
    "normalise": "one number: the largest eigenvalue",
    "regress": "a linear model trained here",
    "rate": "how many samples the linear model classifies rightly here",
    "assess": "how many samples linear models classify rightly here",
    "calibrate": "the loss on held-out samples at many temperatures",
    "sums": "the covariance of features, and the sum of features of each class",
}
PRIVATE = {
    "describe": "how many samples of which shape",
    "train": "weights trained here, clipped and noised: as much as ε says",
    "sums": "the same, noised: as much as ε says",
}


class Line(NamedTuple):
    """A question of a run: how often it is asked, what it brings and what goes back."""

    question: str
    times: int
    down: dict[str, Tensor]
    up: dict[str, Tensor]
    bytes_down: int
    bytes_up: int

    noise: float = 0.0

    @property
    def reveals(self) -> str:
        """What a reply can tell of the silo's data."""
        if self.noise:
            return PRIVATE.get(self.question, REVEALS[self.question])
        return REVEALS[self.question]


def messages(config: RunConfig, shape: tuple[int, ...], num_classes: int, half: bool = False) -> list[Line]:
    """The messages of a run for silos with such samples: pixels if they have channels, height and width."""
    short = replace(config, rounds=tuple(min(1, n) for n in config.rounds), local_epochs=1, patience=0, device="cpu")
    silos = [Silo(*samples(shape, num_classes), holdout=0.5) for _ in range(2)]
    recorder = _Recorder(silos, half)
    method = short.build(num_classes)
    if isinstance(method, TCT) and isinstance(method.stage2, Ridge):
        method = replace(method, stage2=_Unsolved(**vars(method.stage2)))
    method.fit(recorder)
    times = dict(zip(("train", "regress"), config.rounds, strict=False))
    lines = recorder.lines.values()
    return [line._replace(times=times.get(line.question, 1), noise=config.noise) for line in lines]


def samples(shape: tuple[int, ...], num_classes: int) -> tuple[Tensor, Tensor]:
    """Noise with every label on it."""
    y = torch.arange(num_classes).repeat(4)
    noise = torch.Generator().manual_seed(0)
    if len(shape) == 3:
        return torch.randint(256, (len(y), *shape), dtype=torch.uint8, generator=noise), y
    return torch.randn(len(y), *shape, generator=noise), y


def rows(lines: list[Line]) -> Iterator[tuple[str, ...]]:
    """A row of text for every message: question, times, direction, arrays, bytes."""
    for line in lines:
        for way, arrays, size in (("down", line.down, line.bytes_down), ("up", line.up, line.bytes_up)):
            listed = ", ".join(f"{name} {_shape(array)}" for name, array in arrays.items()) or "numbers only"
            yield line.question, f"{line.times:,}", way, listed, f"{size:,}"


class _Unsolved(Ridge):
    """Nobody wants to know the solution for made-up samples: it has the right shape, and takes no time."""

    def decompose(self, sums: Sums, normaliser: Normaliser) -> RidgePath:
        d, outputs = len(sums.s) - 1, sums.t.shape[1]
        nothing = sums.s.new_zeros
        return RidgePath(1, nothing(0), nothing(d, 0), nothing(0, outputs), nothing(outputs), 1.0)


class _Recorder(LocalFederation):
    """Keeps the first message of each question."""

    def __init__(self, silos: list[Silo], half: bool) -> None:
        super().__init__(silos, "cpu")
        self.half = half
        self.lines: dict[str, Line] = {}

    def deliver(self, question: str, message: Message) -> list[Message]:
        replies = super().deliver(question, message)
        own = seal(Envelope(question, "0" * 16))
        half = self.half and question in REMEMBERED
        down, up = pack(message, own, half), pack(replies[0], {}, half)
        self.lines.setdefault(
            question, Line(question, 1, _arrays(message), _arrays(replies[0]), weigh(down), weigh(up))
        )
        return replies


def _arrays(message: Message) -> dict[str, Tensor]:
    return {name: value for name, value in message.items() if isinstance(value, Tensor)}


def _shape(array: Tensor) -> str:
    kind = str(array.dtype).removeprefix("torch.")
    return f"{kind}[{'×'.join(map(str, array.shape))}]"
