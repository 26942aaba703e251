"""One data holder: a method for each question, answered from its own data alone.

A question and its reply are flat dicts of tensors and plain values. What a reply contains is all that leaves the silo.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedtct.errors import FedtctError
from fedtct.least_squares import LocalRegression, Sums, times
from fedtct.memory import free_bytes
from fedtct.models import Network, NetworkSpec, Weights
from fedtct.seeds import derive, generator
from fedtct.tangent import Moments, Normaliser, Recipe, TangentMap, normalised
from fedtct.training import (
    Correction,
    FedDynCorrection,
    Job,
    LocalPlan,
    Memory,
    ScaffoldCorrection,
    Score,
    add,
    evaluate,
    local_update,
)

Message = dict[str, Any]
QUESTIONS = ("describe", "train", "evaluate", "moments", "normalise", "regress", "rate", "assess", "sums")
FEATURE_BATCH = 500
RAW_SHARE = 0.25  # of the memory that is left, for a silo's raw features
NOTHING = Score(0, 0, 0.0)


class Silo:
    """A data holder with samples ``x`` and integer labels ``y``.

    uint8 samples are taken as pixels and normalised with the statistics of all silos; other samples are used as they
    are. ``holdout`` is the share of samples kept out of training, from which choices and the silo's scores come.
    """

    def __init__(
        self,
        x: Tensor | np.ndarray[Any, Any],
        y: Tensor | np.ndarray[Any, Any] | list[int],
        *,
        holdout: float = 0.0,
        name: str | None = None,
    ) -> None:
        self.name = name or "silo"
        x, y = as_samples(x, y, self.name)
        if not 0 <= holdout < 1:
            raise FedtctError(f"{self.name}: holdout is a share of the samples, from 0 to below 1, not {holdout}")
        order = torch.randperm(len(y), generator=generator(0, "holdout"))
        held = round(holdout * len(y))
        if held == len(y):
            raise FedtctError(f"{self.name}: holdout={holdout} leaves none of {len(y)} samples to train on")
        train, out = order[held:].sort().values, order[:held].sort().values
        self.x, self.y = (x, y) if not held else (x[train], y[train])
        self.held_x, self.held_y = x[out], y[out]
        self.index = 0
        self.memory: dict[str, Memory] = {}
        self._features: _Features | None = None

    def __len__(self) -> int:
        return len(self.y)

    def join(self, index: int, device: torch.device) -> None:
        """Take a seat in a federation: its data moves to the device."""
        self.index = index
        if self.name == "silo":
            self.name = f"silo {index}"
        self.x, self.y = self.x.to(device), self.y.to(device)
        self.held_x, self.held_y = self.held_x.to(device), self.held_y.to(device)

    def use(self, spec: NetworkSpec, network: Network) -> None:
        """Work with this network from now on; silos in one process may share it."""
        self.spec, self.network = spec, network
        self.memory, self._features = {}, None

    def answer(self, question: str, message: Message) -> Message:
        """The reply to a question."""
        if question not in QUESTIONS:
            raise FedtctError(f"{self.name} was asked '{question}', which it does not know")
        method: Callable[[Message], Message] = getattr(self, question)
        return method(message)

    # Where every question finds a process of its own, features are handed on; memory is a plain dict already.

    def features(self) -> dict[str, Tensor]:
        """The features as they are now, raw or normalised and decomposed."""
        return self._prepared_features().tensors()

    def take_features(self, tensors: dict[str, Tensor]) -> None:
        """Go on with features that an earlier process left."""
        parts = {name: tensor.to(self.x.device) for name, tensor in tensors.items()}
        self._features = _Features(self, [parts["z"]], parts["held"])
        if "q" in parts:
            self._features.raw = ()
            self._features.regress_on(parts["z"], (parts["eigenvalues"], parts["q"]))

    # Before training

    def describe(self, message: Message) -> Message:
        """What a server must know before it can start: sizes, labels present and statistics of pixels."""
        reply: Message = {
            "n": len(self),
            "held": len(self.held_y),
            "shape": torch.tensor(self.x.shape[1:]),
            "kind": "pixels" if self.x.dtype == torch.uint8 else str(self.x.dtype).removeprefix("torch."),
            "labels": torch.cat([self.y, self.held_y]).unique().cpu(),
        }
        if self.x.dtype == torch.uint8:
            # Integer sums are exact: the constants do not depend on how the data is dealt.
            pixels = [part.transpose(0, 1).flatten(1).long() for part in self.x.split(4096)]
            reply["pixels"] = sum(p.shape[1] for p in pixels)
            reply["sum"] = torch.stack([p.sum(1) for p in pixels]).sum(0).cpu()
            reply["square_sum"] = torch.stack([p.square().sum(1) for p in pixels]).sum(0).cpu()
        return reply

    # Stage 1

    def train(self, message: Message) -> Message:
        """Local training from the server's weights."""
        rating, job = self.begin_training(message)
        return rating | self.end_training(message, job, local_update(self.network, job))

    def begin_training(self, message: Message) -> tuple[Message, Job]:
        """Rate the server's weights if asked to, and lay out the work; an engine may do several silos' at once."""
        m, start = message, Weights(message["parameters"], message["buffers"])
        rating = self.evaluate(m) if m["evaluate"] else {}
        plan = LocalPlan(
            epochs=m["epochs"],
            batch_size=m["batch_size"],
            lr=m["lr"],
            weight_decay=m["weight_decay"],
            prox=m["prox"],
            augment=m["augment"],
            trainable=m["trainable"],
        )
        correction, memory = _correction(m), self.memory.setdefault("stage1", {})
        term = correction.before(memory, start.parameters) if correction else None
        seed = derive(m["seed"], "train", m["round"], self.index)
        return rating, Job(self.index, self.x, self.y, start, plan, seed, term)

    def end_training(self, message: Message, job: Job, local: Weights) -> Message:
        """Remember what the algorithm needs remembered, and reply."""
        steps = job.plan.steps(len(self))
        correction = _correction(message)
        if correction:
            correction.after(self.memory["stage1"], job.start.parameters, local.parameters, steps)
        return {"n": len(self), "steps": steps} | local._asdict()

    def evaluate(self, message: Message) -> Message:
        """How good these weights are here."""
        network = self.network
        network.load(Weights(message["parameters"], message["buffers"]))
        network.module.eval()
        train, held = evaluate(network, self.x, self.y), evaluate(network, self.held_x, self.held_y)
        return _score_reply(train, held) | {"n": len(self)}

    # Convexify and stage 2

    def moments(self, message: Message) -> Message:
        """Build the tangent features and give their count, mean and squared deviations."""
        self._features = _Features.build(self, Recipe(**message))
        return self._features.moments()._asdict()

    def normalise(self, message: Message) -> Message:
        """Normalise the features and decompose the regression; tells how large a step may be."""
        features = self._prepared_features()
        features.normalise(Normaliser(message["mean"], message["scale"]))
        return {"n": len(self), "largest_eigenvalue": features.prepared().largest_eigenvalue}

    def regress(self, message: Message) -> Message:
        """Many local steps of linear regression from the server's W."""
        features, w, m = self._prepared_features(), message["w"], message
        correction, memory = _correction(m), self.memory.setdefault("stage2", {})
        h = -correction.before(memory, w) if correction else None
        local, scores = features.prepared().advance(w, h, m["lr"], m["steps"])
        if correction:
            correction.after(memory, w, local, m["steps"])
        reply = features.rate(w, scores) if m["evaluate"] else {}
        return reply | {"n": len(self), "w": local}

    def rate(self, message: Message) -> Message:
        """How good this W is on the features here."""
        return self._prepared_features().rate(message["w"]) | {"n": len(self)}

    def assess(self, message: Message) -> Message:
        """How good linear models on the features are here, without keeping the features; ``w`` is (k, p + 1, C)."""
        normaliser, w = Normaliser(message["mean"], message["scale"]), message["w"]
        tangents = self._tangent_map(message)

        def score(x: Tensor, y: Tensor) -> list[Score]:
            parts: list[list[Score]] = []
            for xs, ys in zip(x.split(FEATURE_BATCH), y.split(FEATURE_BATCH), strict=True):
                z = normaliser(tangents(xs))
                parts.append([squared_score(z @ weights.to(z), ys) for weights in w])
            return [add(list(column)) for column in zip(*parts, strict=True)] or [NOTHING] * len(w)

        train = score(self.x, self.y) if message["train"] else [NOTHING] * len(w)
        replies = [_score_reply(t, h) for t, h in zip(train, score(self.held_x, self.held_y), strict=True)]
        return {key: torch.tensor([r[key] for r in replies]) for key in replies[0]} | {"n": len(self)}

    def sums(self, message: Message) -> Message:
        """The sums that determine ridge regression exactly; the features are never stored."""
        tangents = self._tangent_map(message)
        sums = Sums.zero(tangents.p, self.spec.num_classes, self.network.device)
        for xs, ys in zip(self.x.split(FEATURE_BATCH), self.y.split(FEATURE_BATCH), strict=True):
            sums = sums.add(tangents(xs), targets(ys, self.spec.num_classes))
        return {"n": len(self), "s": sums.pack(), "t": sums.t, "yy": sums.yy}

    def _prepared_features(self) -> "_Features":
        if self._features is None:
            raise FedtctError(f"{self.name} has no features yet: it must be asked for 'moments' first")
        return self._features

    def _tangent_map(self, message: Message) -> TangentMap:
        recipe = Recipe(**{field: message[field] for field in Recipe._fields})
        return TangentMap(self.spec, recipe, self.network.device)


class _Features:
    """A silo's tangent features: raw at first, in batches, then normalised and decomposed."""

    def __init__(self, silo: Silo, raw: Iterable[Tensor], held: Tensor) -> None:
        self.silo, self.raw, self.held = silo, raw, held
        self.regression: LocalRegression | None = None

    @classmethod
    def build(cls, silo: Silo, recipe: Recipe) -> "_Features":
        """Raw features are kept only where memory is plenty: computing them twice is better than not at all."""
        tangents = TangentMap(silo.spec, recipe, silo.network.device)
        batches = _Batches(tangents, silo.x)
        room = RAW_SHARE * free_bytes(silo.network.device)
        raw = list(batches) if 4 * len(silo) * tangents.p <= room else batches
        return cls(silo, raw, torch.cat(list(_Batches(tangents, silo.held_x))))

    def moments(self) -> Moments:
        return Moments.merge([Moments.of(raw) for raw in self.raw])

    def normalise(self, normaliser: Normaliser) -> None:
        z = normalised(self.raw, len(self.silo), normaliser)
        self.raw, self.held = (), normalised([self.held], len(self.held), normaliser)
        self.regress_on(z)

    def regress_on(self, z: Tensor, decomposition: tuple[Tensor, Tensor] | None = None) -> None:
        self.regression = LocalRegression(z, targets(self.silo.y, self.silo.spec.num_classes), decomposition)

    def prepared(self) -> LocalRegression:
        if self.regression is None:
            raise FedtctError(f"{self.silo.name} has raw features: it must be asked to 'normalise' them first")
        return self.regression

    def rate(self, w: Tensor, scores: Tensor | None = None) -> Message:
        scores = self.prepared().scores(w) if scores is None else scores
        held = squared_score(times(self.held, w), self.silo.held_y) if len(self.held) else NOTHING
        return _score_reply(squared_score(scores, self.silo.y), held)

    def tensors(self) -> dict[str, Tensor]:
        if self.regression is None:
            return {"z": torch.cat(list(self.raw)), "held": self.held}
        found = self.regression
        return {"z": found.z, "held": self.held, "eigenvalues": found.eigenvalues, "q": found.q}


@dataclass(frozen=True)
class _Batches:
    """Raw features that are computed anew each time one goes through them."""

    tangents: TangentMap
    x: Tensor

    def __iter__(self) -> Iterator[Tensor]:
        return self.tangents.batches(self.x)


def targets(y: Tensor, num_classes: int) -> Tensor:
    """What stage 2 regresses on: one-hot labels less 1/C, so that they have mean zero over classes."""
    return F.one_hot(y, num_classes).float() - 1 / num_classes


def squared_score(scores: Tensor, y: Tensor) -> Score:
    """How well a linear model's scores fit labels, with the squared loss of stage 2."""
    error = (scores - targets(y, scores.shape[1])).square().sum()
    return Score(len(y), int((scores.argmax(1) == y).sum()), float(error))


def as_samples(
    x: Tensor | np.ndarray[Any, Any], y: Tensor | np.ndarray[Any, Any] | list[int], whose: str
) -> tuple[Tensor, Tensor]:
    """Tensors of samples and labels, refused if they cannot be learnt from."""
    try:
        x, y = torch.as_tensor(x), torch.as_tensor(y)
    except (TypeError, ValueError) as error:
        raise FedtctError(f"{whose}: samples and labels must be arrays of numbers ({error})") from error
    if y.numel() == 0:
        raise FedtctError(f"{whose} is empty: a silo needs at least one sample")
    if y.ndim != 1 or y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        raise FedtctError(f"{whose}: y must be a vector of integer labels, it is {y.dtype} {tuple(y.shape)}")
    if x.ndim < 2 or len(x) != len(y):
        raise FedtctError(f"{whose}: x has shape {tuple(x.shape)} for {len(y)} labels; it needs a row a label")
    x, y = x.float() if x.is_floating_point() else x, y.long()
    if int(y.min()) < 0:
        raise FedtctError(f"{whose}: labels start at 0, there is a label {int(y.min())}")
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        bad = int((~torch.isfinite(x.flatten(1)).all(1)).sum())
        raise FedtctError(f"{whose}: {bad} of {len(x)} samples hold NaN or infinite values: mend or drop them")
    return x, y


def _correction(message: Message) -> Correction | None:
    if message["correction"] == "scaffold":
        return ScaffoldCorrection(message["lr"], message["server_steps"])
    if message["correction"] == "feddyn":
        return FedDynCorrection(message["prox"])
    return None


def _score_reply(train: Score, held: Score) -> Message:
    return train._asdict() | {f"held_{key}": value for key, value in held._asdict().items()}
