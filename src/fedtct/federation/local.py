"""A federation whose silos live in this process: simulation, and the reference for every other engine."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from fedtct.data.tables import is_table
from fedtct.errors import FedtctError, check_whole, listing
from fedtct.federation.base import Cost, Federation, Replies
from fedtct.hardware.devices import pick_device, pick_precision
from fedtct.models import NetworkSpec
from fedtct.questions import Message, about
from fedtct.seated_silo import SeatedSilo
from fedtct.seeds import generator
from fedtct.silo import Silo, SiloData, pool
from fedtct.training.graphs import GraphTrainer


class LocalFederation(Federation):
    """Silos in this process, on one device. Pairs (x, y) and torch Datasets count as silos, too.

    On a GPU, silos train side by side.

    - ``precision``: for training and rating networks: "fp32", "bf16" or "auto". "auto" is bf16 on a GPU that supports
      it, except for rows of numbers, because bf16 keeps hardly three digits
    - ``per_round``: how many silos, drawn anew each time, train in a round of stage 1; in stage 2 all take part
    """

    def __init__(
        self,
        silos: Sequence[Any],
        device: torch.device | str = "auto",
        *,
        precision: str = "auto",
        per_round: int | None = None,
    ) -> None:
        if isinstance(silos, Silo | Dataset | Tensor | np.ndarray | Mapping) or is_table(silos):
            raise FedtctError(
                f"silos must be a list, not a single {type(silos).__name__}: give [(x, y), …], with a pair "
                "or a Silo for each"
            )
        if not silos:
            raise FedtctError("there are no silos: give at least one")
        given = [as_silo(silo, index) for index, silo in enumerate(silos)]
        if len({id(silo) for silo in given}) < len(given):
            raise FedtctError("one Silo is given twice, and its samples would count twice: make a Silo for each place")
        self.device = pick_device(device)
        self.silos = [  # a silo that has a place already keeps it
            silo if isinstance(silo, SeatedSilo) else SeatedSilo(silo, index, self.device)
            for index, silo in enumerate(given)
        ]
        self._asked_precision = precision
        rows = precision == "auto" and any(silo.given.holds_rows() for silo in self.silos)
        self.precision = pick_precision("fp32" if rows else precision, self.device)
        self.trainer: GraphTrainer | None = None
        if per_round is not None:
            check_whole(1, per_round=per_round)
            if per_round > len(given):
                raise FedtctError(f"per_round is {per_round}, but there are {len(given)} silos")
        self.per_round = per_round

    def __len__(self) -> int:
        return len(self.silos)

    def names(self) -> list[str]:
        """Silos' own names; if two are the same, each with its place."""
        names = [silo.name for silo in self.silos]
        return names if len(set(names)) == len(names) else [f"{name} ({i})" for i, name in enumerate(names)]

    def expect(self, silos: Mapping[str, int]) -> None:
        """A run goes on with the same silos in the same order: their memory is kept by place."""
        if list(silos) != self.names():
            raise FedtctError(
                f"the run was started with silos {listing(silos)}, but these are {listing(self.names())}: "
                "give the same silos, with the same names and in the same order"
            )

    def use(self, spec: NetworkSpec) -> None:
        """Silos take turns, so one network serves them all; side by side on a GPU each has its own."""
        network = spec.build(self.device, precision=self.precision, channels_last=True)
        for silo in self.silos:
            silo.use(spec, network)
        self.trainer = GraphTrainer(spec, self.device, self.precision) if self.device.type == "cuda" else None

    def ask(self, question: str, message: Message) -> Replies:
        """One round, with the bytes that its messages would have."""
        start = time.perf_counter()
        messages = self.deliver(question, message)
        seconds = time.perf_counter() - start
        asked = self._asked(question, message)
        names = [name for silo, name in zip(self.silos, self.names(), strict=True) if silo in asked]
        up = {name: content_bytes(reply) for name, reply in zip(names, messages, strict=True)}
        down = dict.fromkeys(up, content_bytes(message))
        total = sum(map(len, self.silos)) if len(asked) < len(self.silos) else None
        return Replies(messages, Cost.of(down, up, seconds, len(self)), total)

    def _asked(self, question: str, message: Message) -> list[SeatedSilo]:
        """All silos, or in a round of training those that are drawn for it."""
        if question != "train" or self.per_round is None:
            return self.silos
        draws = generator(message["seed"], "silos", message["round"])
        drawn = torch.randperm(len(self.silos), generator=draws)[: self.per_round]
        return [self.silos[place] for place in drawn.sort().values]

    def deliver(self, question: str, message: Message) -> list[Message]:
        """The replies: asked of one silo after another, or on a GPU all trained side by side."""
        message = {k: v.to(self.device) if isinstance(v, Tensor) else v for k, v in message.items()}
        asked = self._asked(question, message)
        if question == "train" and self.trainer is not None:
            return _train_side_by_side(asked, self.trainer, message)
        if about(question).begins_stage2 and self.trainer is not None:
            self.trainer.release()
        replies = []
        for silo in asked:
            replies.append(silo.answer(question, message))
            if self.on_reply:
                self.on_reply(question, len(replies), len(asked))
        return replies

    def snapshot(self) -> dict[str, Tensor]:
        """Every silo's memory under names such as ``0/stage1/own``."""
        return {
            f"{silo.index}/{stage}/{name}": value
            for silo in self.silos
            for stage, memory in silo.memory.items()
            for name, value in memory.items()
        }

    def restore(self, snapshot: dict[str, Tensor]) -> None:
        """Give every silo its memory back."""
        for silo in self.silos:
            silo.memory = {}
        for key, value in snapshot.items():
            if key.count("/") != 2:
                raise FedtctError(
                    "this run's silos keep their own memory: resume it with the engine it was started with"
                )
            index, stage, name = key.split("/")
            self.silos[int(index)].memory.setdefault(stage, {})[name] = value.to(self.device)

    def pooled(self) -> "LocalFederation":
        """All data in one silo: no federation any more, but the bound that federations are compared with."""
        pooled = _Pooled([pool([silo.given for silo in self.silos])], self.device, precision=self._asked_precision)
        pooled.on_reply = self.on_reply
        return pooled


class _Pooled(LocalFederation):
    """One silo with everything: nothing is communicated."""

    def expect(self, silos: Mapping[str, int]) -> None:
        """Anything is right: whose samples they were does not matter."""

    def ask(self, question: str, message: Message) -> Replies:
        replies = super().ask(question, message)
        return replace(replies, cost=Cost(seconds=replies.cost.seconds))


def _train_side_by_side(silos: list[SeatedSilo], trainer: GraphTrainer, message: Message) -> list[Message]:
    begun = [silo.begin_training(message) for silo in silos]
    trained = trainer.train([job for _, job in begun])
    return [
        rating | silo.end_training(message, job, weights)
        for silo, (rating, job), weights in zip(silos, begun, trained, strict=True)
    ]


def content_bytes(message: Message) -> int:
    """Bytes of a message's content: its tensors, eight for a number, one a character."""
    total = 0
    for value in message.values():
        if isinstance(value, Tensor):
            total += value.nbytes
        else:
            total += len(value) if isinstance(value, str) else 8
    return total


def as_silo(given: Any, index: int) -> SiloData | SeatedSilo:
    """A silo, or one made of what is given."""
    if isinstance(given, SiloData | SeatedSilo):
        return given
    name = f"silo {index}"
    if isinstance(given, Dataset):
        return Silo(given, name=name)
    if isinstance(given, tuple | list) and len(given) == 2:
        return Silo(*given, name=name)
    raise FedtctError(f"{name} is {type(given).__name__}: a silo is a Silo, a pair (x, y) or a torch Dataset")
