"""Silos on digits, methods, and a grid in this process: who is asked answers as a process that knows nothing else."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, RecordDict
from flwr.app import Message as FlowerMessage
from flwr.supercore.task_identity import TaskIdentity

import fedtct
from fedtct.deploy.answering import SiloSetup
from fedtct.deploy.client_app import client_app
from fedtct.federation.flower.exchange import Terms
from fedtct.federation.flower.federation import FlowerFederation

SILOS = 4
TCT = fedtct.TCT(
    "mlp",
    stage1=fedtct.FedAvg(rounds=1, local_epochs=1),
    features=fedtct.TangentFeatures(p=300),
    stage2=fedtct.ScaffoldRegression(rounds=3, steps=20, lr="auto"),
)
PRIVATE = fedtct.FedAvg("mlp", rounds=2, local_epochs=1, num_classes=10, clip=0.5, noise=0.01)
METHODS = {
    "fedavg": fedtct.FedAvg("mlp", rounds=2, local_epochs=1),
    "fedprox": fedtct.FedProx("mlp", rounds=2, local_epochs=1),
    "scaffold": fedtct.Scaffold("mlp", rounds=3, local_epochs=1),
    "feddyn": fedtct.FedDyn("mlp", rounds=3, local_epochs=1),
    "fedadam": fedtct.FedAdam("mlp", rounds=2, local_epochs=1),
    "last layer": fedtct.FedAvg("mlp", rounds=3, local_epochs=1, trainable="last-layer"),
    "last layer by scaffold": fedtct.Scaffold("mlp", rounds=3, local_epochs=1, trainable="last-layer"),
    "tct": TCT,
    "conjugate gradients": fedtct.TCT("mlp", TCT.stage1, TCT.features, fedtct.ConjugateGradient(rounds=4)),
    "gradient descent": fedtct.TCT("mlp", TCT.stage1, TCT.features, fedtct.GradientDescent(rounds=2)),
    "without labels": replace(TCT, stage1=replace(TCT.stage1, pretext="rotations")),
    "ridge": fedtct.TCT("mlp", TCT.stage1, TCT.features, fedtct.Ridge(d=200, ridge="holdout")),
    "private": PRIVATE,  # by Flower's own mod there, by ours here
    "private, diverged": replace(PRIVATE, lr=1e30),  # updates of zero
    "private last layer": replace(PRIVATE, trainable="last-layer"),
    "private ridge": fedtct.TCT("mlp", PRIVATE, TCT.features, fedtct.Ridge(d=200, noise=0.01)),
}


def parts(silos: int = SILOS, limit: int = 400) -> list[tuple[torch.Tensor, torch.Tensor]]:
    data = fedtct.load_dataset("digits")
    x, y = data.train.x[:limit], data.train.y[:limit]
    return [(x[i], y[i]) for i in fedtct.partition(y, silos, "classes:2" if silos * 2 >= 8 else "iid", seed=0)]


def local(data: list[tuple[torch.Tensor, torch.Tensor]], holdout: float = 0.0) -> list[fedtct.Silo]:
    return [fedtct.Silo(x, y, holdout=holdout) for x, y in data]


def write_npz(path: Path, x: torch.Tensor, y: torch.Tensor) -> Path:
    np.savez(path, x=x.numpy(), y=y.numpy())
    return path


class InlineGrid:
    """A grid whose nodes are asked at once. ``gone`` nodes never answer, ``late`` ones when nobody waits any more.

    ``before`` may do harm first.
    """

    def __init__(
        self, folder: Path, data: list[tuple[torch.Tensor, torch.Tensor]], holdout: float = 0.0, name: str = "s"
    ) -> None:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.setups = {
            100 + i: SiloSetup(
                f"{name}{i}",
                lambda x=x, y=y: fedtct.Silo(x, y, holdout=holdout),
                folder / f"cache{i}",
                10**9,
                "cpu",
            )
            for i, (x, y) in enumerate(data)
        }
        self.offline: set[int] = set()  # not listed
        self.gone: set[int] = set()  # listed, but silent
        self.late: set[int] = set()
        self.before: Callable[[FlowerMessage], None] = lambda message: None
        self.asked: list[tuple[int, str]] = []
        self._replies: dict[str, FlowerMessage] = {}

    def get_node_ids(self) -> list[int]:
        return [node for node in self.setups if node not in self.offline]

    def push_messages(self, messages: Iterable[FlowerMessage]) -> list[str]:
        keys = []
        for message in messages:
            node = message.metadata.dst_node_id
            message.metadata.__dict__["_message_id"] = key = f"m{len(self.asked)}"
            self.asked.append((node, message.content.config_records["config"]["fedtct.question"]))
            self.before(message)
            keys.append(key)
            if node not in self.gone | self.offline:
                context = Context(1, node, {}, RecordDict(), {})
                reply = client_app(lambda context: self.setups[context.node_id])(message, context)
                if node not in self.late:
                    self._replies[key] = reply
        return keys

    def pull_messages(self, keys: Iterable[str]) -> list[FlowerMessage]:
        return [self._replies.pop(key) for key in list(keys) if key in self._replies]


class Tampered(InlineGrid):
    """A grid in which one silo's replies to a question are changed on their way."""

    def __init__(self, folder, node, question, change, silos=SILOS, holdout=0.0):
        super().__init__(folder, parts(silos), holdout)
        self.node, self.question, self.change = node, question, change

    def pull_messages(self, keys):
        replies = super().pull_messages(keys)
        for reply in replies:
            asked = self.asked[int(reply.metadata.reply_to_message_id[1:])]
            if asked == (self.node, self.question):
                self.change(reply.content)
        return replies


def config(content) -> ConfigRecord:
    return content.config_records["config"]


def arrays(content) -> ArrayRecord:
    """A message's arrays, small ones too, in the record of arrays, where they can be changed."""
    small = [name for name, value in config(content).items() if isinstance(value, bytes)]
    found = {name: Array(np.load(BytesIO(config(content).pop(name)))) for name in small}
    content["arrays"] = ArrayRecord(dict(content.array_records.get("arrays", {})) | found)
    return content.array_records["arrays"]


def over(grid, notes=None, run="run", own_model="", keys=None, **terms):
    """The federation of a grid's silos, which does not wait; ``notes`` are filled with what a server notes down."""
    note = notes.append if notes is not None else lambda record: None
    terms = {"silos": len(grid.setups), "wait": 0.0, "round_timeout": 0.2} | terms
    return FlowerFederation(grid, run, Terms(**terms), note, own_model, keys=keys)


def assert_same(one, two, tolerance=1e-6):
    """Two fits ended with the same model."""
    for name, tensor in one.model._tensors().items():
        torch.testing.assert_close(two.model._tensors()[name], tensor, rtol=tolerance, atol=tolerance)
