"""What a run sends: all its messages with their arrays and bytes, found by running a round or two of it here."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import fedtct
from fedtct.answers import LABELS, NAMES, NUMBERS
from fedtct.data.samples import as_samples, take
from fedtct.data.sources import Reading, read_silo
from fedtct.deploy.silo_config import SiloConfig
from fedtct.federation.flower.wire import SILO, VERSION, Envelope, fits_fp16, network_text, pack, seal, sent_bytes
from fedtct.federation.local import LocalFederation
from fedtct.least_squares import RidgePath, Sums
from fedtct.models import NetworkSpec
from fedtct.questions import QUESTIONS, Message
from fedtct.runs.config import RunConfig
from fedtct.silo import Silo, SiloData
from fedtct.stage2 import Ridge
from fedtct.tangent import Normaliser
from fedtct.tct import TCT

MOST_SAMPLES = 200  # of a file: what is sent has the same form for more
OF_THE_SAMPLES = {
    "pixels": "the mean and spread of the pixels of each channel",
    "float32": "how large their numbers are, as a root mean square",
    "table": "of each column its name, how many values are missing, and their mean and spread or which texts occur",
}
OF_THE_ANSWERS = {
    LABELS: "which labels occur, and which of them only in held-out samples",
    NAMES: "the names of the classes that occur, and which of them only in held-out samples",
    NUMBERS: "the mean and spread of what is to be learnt",
}


class Disclosure(NamedTuple):
    """A question of a run: how often it is asked, its message and the reply, and what the reply reveals."""

    question: str
    times: int
    down: Message
    up: Message
    bytes_down: int
    bytes_up: int
    reveals: str


def messages(config: RunConfig, x: Any, y: Any, num_classes: int | None, *, fp16: bool = False) -> list[Disclosure]:
    """The messages of a run for silos with such samples."""
    rounds = (min(1, config.rounds[0]), *(min(2, n) for n in config.rounds[1:]))
    short = replace(config, rounds=rounds, local_epochs=1, patience=0, device="cpu")
    recorder = _Recorder([_silo(x, y) for _ in range(2)], fp16)
    method = short.build(num_classes)
    if isinstance(method, TCT) and isinstance(method.stage2, Ridge):
        method = replace(method, stage2=_Unsolved(**vars(method.stage2)))
    method.fit(recorder)
    times = dict(zip(("train", "regress"), config.rounds, strict=False))
    return [line._replace(times=times.get(line.question, 1)) for line in recorder.lines]


def _silo(x: Any, y: Any) -> SiloData:
    """A silo that holds out the samples it trains on: with so few, a class might otherwise be held out as a whole."""
    silo = Silo(x, y)
    return SiloData(silo.name, silo.x, silo.y, silo.x, silo.y)


def made_up(shape: tuple[int, ...], num_classes: int) -> tuple[Tensor, Tensor]:
    """Made-up samples, noise with every label: pixels if the shape has channels, height and width."""
    y = torch.arange(num_classes).repeat(4)
    noise = torch.Generator().manual_seed(0)
    if len(shape) == 3:
        return torch.randint(256, (len(y), *shape), dtype=torch.uint8, generator=noise), y
    return torch.randn(len(y), *shape, generator=noise), y


def some_of(file: Path, config: RunConfig) -> tuple[Any, Any]:
    """Samples of a file such as silos have; a silo.toml says itself how its data is read."""
    if file.suffix == ".toml":
        silo = SiloConfig.read(file).load()
        x, y = silo.x, silo.y
    else:
        x, y, _ = read_silo(file, Reading.of(config))
        x, y = as_samples(x, y, str(file), config.task)
    chosen = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))[:MOST_SAMPLES].sort().values
    return take(x, chosen), take(y, chosen)


def rows(lines: list[Disclosure]) -> Iterator[tuple[str, ...]]:
    """A row of text for every message: question, times, direction, what is in it, bytes."""
    for line in lines:
        for way, message, size in (("down", line.down, line.bytes_down), ("up", line.up, line.bytes_up)):
            listed = ", ".join(_form(name, value) for name, value in message.items()) or "nothing"
            yield line.question, f"{line.times:,}", way, listed, f"{size:,}"


class _Unsolved(Ridge):
    """Ridge with an empty solution of the right shape: that of made-up samples would take time for nothing."""

    def decompose(self, sums: Sums, normaliser: Normaliser) -> RidgePath:
        d, outputs = len(sums.s) - 1, sums.t.shape[1]
        nothing = sums.s.new_zeros
        return RidgePath(1, nothing(0), nothing(d, 0), nothing(0, outputs), nothing(outputs), 1.0)


class _Recorder(LocalFederation):
    """A federation that keeps every message."""

    def __init__(self, silos: list[SiloData], fp16: bool) -> None:
        super().__init__(silos, "cpu")
        self.fp16, self.network = fp16, ""
        self.lines: list[Disclosure] = []

    def use(self, spec: NetworkSpec) -> None:
        super().use(spec)
        self.network = network_text(spec)

    def deliver(self, question: str, message: Message) -> list[Message]:
        replies = super().deliver(question, message)
        fp16 = self.fp16 and fits_fp16(question, message)
        own = seal(Envelope(question, "0" * 16, network=self.network)) | {VERSION: fedtct.__version__}
        down, up = pack(message, own, fp16), pack(replies[0], {SILO: "silo"}, fp16)
        revealed = _revealed(question, message, replies[0])
        if question == "regress":  # the second round's message may have more than the first's
            self.lines = [line for line in self.lines if line.question != question]
        self.lines.append(Disclosure(question, 1, message, replies[0], sent_bytes(down), sent_bytes(up), revealed))
        return replies


def _revealed(question: str, message: Message, reply: Message) -> str:
    """What a reply can tell of the silo's data."""
    if message.get("noise") or message.get("private"):
        return QUESTIONS[question].noised
    kinds = OF_THE_SAMPLES.get(reply.get("kind", ""), ""), OF_THE_ANSWERS.get(reply.get("answers", ""), "")
    parts = (QUESTIONS[question].reveals, *kinds)  # only a description tells of which kind data is
    return "; ".join(part for part in parts if part)


def _form(name: str, value: Any) -> str:
    """A name with the kind and size of what it stands for, if that is no single number."""
    if isinstance(value, str):
        return f"{name} text[{len(value)}]"
    if not isinstance(value, Tensor):
        return name
    return f"{name} {str(value.dtype).removeprefix('torch.')}[{'×'.join(map(str, value.shape))}]"
