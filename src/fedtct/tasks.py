"""What is learnt, classes or numbers: the losses and targets of both stages, scores and predictions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from fedtct.errors import FedtctError, listing

Names = NDArray[Any]  # of texts: classes by their names
Answers = Tensor | Names  # what is known of samples: labels (int64), numbers (float64) or names of classes


class Score(NamedTuple):
    """Sums over samples, so that scores of several silos add up."""

    samples: int = 0
    correct: int = 0
    loss: float = 0.0  # summed over samples
    shift: float = 0.0  # of a regression: the sum of the numbers, less the mean that the silos agreed on
    spread: float = 0.0  # and their sum of squares

    @classmethod
    def total(cls, scores: Iterable[Score]) -> Score:
        """The score over all samples together."""
        return cls(*map(sum, zip(*scores, strict=True)))

    @property
    def accuracy(self) -> float:
        """The share of samples that are classified rightly."""
        return self.correct / self.samples if self.samples else math.nan

    @property
    def mean_loss(self) -> float:
        """The mean loss of a sample."""
        return self.loss / self.samples if self.samples else math.nan

    @property
    def rmse(self) -> float:
        """The root of the mean squared error, in the units of the target."""
        return math.sqrt(self.mean_loss)

    @property
    def r2(self) -> float:
        """The share of the numbers' variance that is explained; not a number if they do not vary."""
        total = self.spread - self.shift**2 / self.samples if self.samples else 0.0
        return 1 - self.loss / total if total > 1e-12 * self.spread else math.nan


def loss(outputs: Tensor, y: Tensor) -> Tensor:
    """What stage 1 descends: cross-entropy for labels; for numbers half the mean squared error, as in stage 2."""
    return (outputs[:, 0] - y).square().mean() / 2 if y.is_floating_point() else F.cross_entropy(outputs, y)


def finite(scores: Tensor) -> Tensor:
    """The scores; refused if some sample's highest one is not finite, so that any prediction would be made up."""
    if bad := int((~scores.amax(1).isfinite()).sum()):
        raise FedtctError(
            f"the model has no finite scores for {bad} of {len(scores)} samples: their values are far beyond the "
            "silos' (fix or drop them), or training diverged (lower its lr)"
        )
    return scores


def predicted(scores: Tensor) -> Tensor:
    """The class of each sample, as a label; one more than the last where the highest score is not finite."""
    return torch.where(scores.amax(1).isfinite(), scores.argmax(1), scores.shape[1])


@dataclass(frozen=True)
class Classification:
    """Samples belong to classes, which have names or are numbered from 0."""

    names: tuple[str, ...] = ()
    kind: ClassVar[str] = "classification"
    read_as: ClassVar[str] = "auto"  # answers: whole numbers are labels, or the names of classes

    def encode(self, y: Answers, outputs: int, whose: str) -> Tensor:
        """Answers as labels from 0; refused if there is a class that the silos do not have."""
        if isinstance(y, Tensor) and y.is_floating_point():
            raise FedtctError(f"{whose}: y holds real numbers, but the silos' samples belong to classes")
        if self.names:
            return self._numbered(y.numpy(force=True) if isinstance(y, Tensor) else y, whose)
        if not isinstance(y, Tensor):
            names = y.astype(str).tolist()  # a table's column or a folder's names; numbers, if a file held numbers
            if not all_whole(names):
                raise FedtctError(f"{whose}: y holds class names, but the silos' classes are numbers from 0")
            y = torch.tensor([int(name) for name in names])
        if outside := y[(y < 0) | (y >= outputs)].tolist():
            raise FedtctError(
                f"{whose} has labels outside 0 … {outputs - 1}: the silos have {outputs} classes",
                data=f". Found: {listing(sorted(set(outside)))}, in {len(outside)} of {len(y)} samples",
            )
        return y

    def _numbered(self, y: Names, whose: str) -> Tensor:
        different, places = np.unique(y.astype(str), return_inverse=True)
        label_of = {name: label for label, name in enumerate(self.names)}
        if unknown := {str(name): int((places == k).sum()) for k, name in enumerate(different) if name not in label_of}:
            found = listing(f"'{name}' ({count})" for name, count in unknown.items())
            raise FedtctError(
                f"{whose} has classes that no silo trains on; the silos have {listing(self.names)}",
                data=f". Found: {found}, in {sum(unknown.values())} of {len(y)} samples",
            )
        return torch.tensor([label_of[str(name)] for name in different], dtype=torch.long)[torch.from_numpy(places)]

    def decode(self, scores: Tensor) -> Answers:
        """The class with the highest score: its name if it has one."""
        labels = finite(scores).argmax(1)
        return self.labels()[labels.numpy(force=True)] if self.names else labels

    def labels(self) -> Names:
        """The names as they were given: as numbers or truth values if all of them are."""
        if set(self.names) == {"False", "True"}:
            return np.array([name == "True" for name in self.names])
        return np.array([int(name) for name in self.names] if all_whole(self.names) else self.names)

    def score(self, outputs: Tensor, y: Tensor) -> Score:
        """How well logits fit labels."""
        loss = F.cross_entropy(outputs, y, reduction="sum")
        return Score(len(y), int((predicted(outputs) == y).sum()), float(loss.double()))

    def targets(self, y: Tensor, outputs: int) -> Tensor:
        """What stage 2 regresses on: one-hot labels less 1/C, so that they have mean zero over classes."""
        return F.one_hot(y, outputs).float() - 1 / outputs

    def squared_score(self, scores: Tensor, y: Tensor) -> Score:
        """How well a linear model's scores fit labels, with the squared loss of stage 2."""
        error = (scores - self.targets(y, scores.shape[1])).square().sum()
        return Score(len(y), int((predicted(scores) == y).sum()), float(error))

    def losses(self, scores: Tensor, y: Tensor, temperatures: Tensor) -> tuple[Tensor, int]:
        """The log-losses at several temperatures, summed over samples, and the number of these samples.

        Samples are left out if their highest score, or that of their class, is not finite: no temperature would help,
        and their loss would hide all others.
        """
        told = torch.stack([scores.amax(1), scores.gather(1, y.unsqueeze(1))[:, 0]]).isfinite().all(0)
        scores, y = scores[told].double(), y[told]
        losses = [F.cross_entropy(scores / t, y, reduction="sum") for t in temperatures.to(scores)]
        return torch.stack(losses), len(y)

    def record(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"kind": self.kind, "names": list(self.names)}


@dataclass(frozen=True)
class Regression:
    """Every sample has a number; networks learn it standardised."""

    mean: float
    std: float
    kind: ClassVar[str] = "regression"
    read_as: ClassVar[str] = "regression"

    def encode(self, y: Answers, outputs: int, whose: str) -> Tensor:
        """Standardised numbers."""
        if not isinstance(y, Tensor):
            raise FedtctError(f"{whose}: y holds class names, but the silos' targets are numbers")
        return ((y.double() - self.mean) / self.std).float()

    def decode(self, scores: Tensor) -> Tensor:
        """Predicted numbers in the target's own units."""
        return finite(scores)[:, 0].double() * self.std + self.mean

    def score(self, outputs: Tensor, y: Tensor) -> Score:
        """The squared error in the target's own units."""
        y, unit = y.double(), self.std
        error = unit**2 * (outputs[:, 0].double() - y).square().sum()
        return Score(len(y), 0, float(error), unit * float(y.sum()), unit**2 * float(y.square().sum()))

    def targets(self, y: Tensor, outputs: int) -> Tensor:
        """What stage 2 regresses on."""
        return y.unsqueeze(1)

    def squared_score(self, scores: Tensor, y: Tensor) -> Score:
        """The squared error, as in stage 1."""
        return self.score(scores, y)

    def record(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"kind": self.kind, "mean": self.mean, "std": self.std}


Task = Classification | Regression
NUMBERED = Classification()  # from 0, without names
DIGITS = 18  # the longest names that are read as numbers: silos choose them, and Python refuses thousands of digits


def task_from(record: dict[str, Any]) -> Task:
    """The task from its ``record``."""
    if record["kind"] == Regression.kind:
        return Regression(record["mean"], record["std"])
    return Classification(tuple(record["names"]))


def sorted_names(names: set[str]) -> tuple[str, ...]:
    """Class names in an order that all silos share: whole numbers by value, others by letters."""
    return tuple(sorted(names, key=int) if all_whole(names) else sorted(names))


def all_whole(names: Any) -> bool:
    """Whether every name is a whole number as Python writes it, of at most DIGITS digits."""
    short = all(len(name) <= DIGITS for name in names)
    return short and all(name.removeprefix("-").isdecimal() and str(int(name)) == name for name in names)
