"""The models that fits end with. Whatever the method, they predict, score, save and load alike."""

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from fedtct.data.samples import as_samples
from fedtct.errors import FedtctError
from fedtct.federation import pick_device
from fedtct.history import History
from fedtct.models import Model, NetworkSpec, Weights, build_own
from fedtct.tangent import Normaliser, Recipe, TangentMap
from fedtct.tasks import Answers, Names, Regression

BATCH = 500
TENSORS, RECORD = "model.safetensors", "model.json"


class Classifier(ABC):
    """Samples to classes; or to numbers, if that is what the silos hold."""

    kind: str
    spec: NetworkSpec
    device: torch.device

    @abstractmethod
    def _batch_scores(self, x: Tensor) -> Tensor:
        """Scores of a batch on the classifier's device."""

    @abstractmethod
    def _tensors(self) -> dict[str, Tensor]:
        """What ``save`` writes besides the record."""

    @classmethod
    @abstractmethod
    def _from(cls, spec: NetworkSpec, tensors: dict[str, Tensor], record: dict[str, Any], device: torch.device) -> Self:
        """The classifier that was saved as these."""

    def scores(self, x: Any) -> Tensor:
        """A score for each output, one row a sample; batches, so that any number of samples fits."""
        return self._scores_of(self.spec.inputs.encode(x, "x"))

    @torch.no_grad()
    def _scores_of(self, x: Tensor) -> Tensor:
        try:
            parts = [self._batch_scores(batch.to(self.device)).cpu() for batch in x.split(BATCH)]
        except IndexError as error:  # a token that an embedding does not know
            raise FedtctError(f"the model cannot take these samples: {error}") from error
        return torch.cat(parts) if len(x) else torch.zeros(0, self.spec.num_classes)

    def predict(self, x: Any) -> Answers:
        """The class of each sample: a tensor of labels, or an array of names; of a regression, a tensor of numbers."""
        return self.spec.task.decode(self.scores(x))

    def score(self, x: Any, y: Any) -> float:
        """Accuracy, the share of samples whose class is right; of a regression, R²."""
        x, y = self.spec.encode(*as_samples(x, y, "score(x, y)"), "score(x, y)")
        found = self.spec.task.squared_score(self._scores_of(x), y)
        return found.r2 if isinstance(self.spec.task, Regression) else found.accuracy

    @property
    def classes(self) -> Names:
        """The classes in the order of their scores: by name, or numbers from 0."""
        task = self.spec.task
        if isinstance(task, Regression):
            raise FedtctError("this model predicts numbers: it has no classes")
        return task.labels() if task.names else np.arange(self.spec.num_classes)

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder: tensors as safetensors, the rest as JSON."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: t.detach().cpu().contiguous() for name, t in self._tensors().items()}
        save_file(tensors, folder / TENSORS)
        (folder / RECORD).write_text(json.dumps(self._record(), indent=2) + "\n")

    @classmethod
    def load(cls, folder: str | Path, model: Model | None = None, device: torch.device | str = "auto") -> Self:
        """A model that ``save`` wrote. One made from an nn.Module of your own needs such a module as ``model``,
        or the function that makes it.
        """
        folder = Path(folder)
        if not (folder / RECORD).is_file() or not (folder / TENSORS).is_file():
            raise FedtctError(f"{folder} holds no saved model: {RECORD} and {TENSORS} must be there")
        record = json.loads((folder / RECORD).read_text())
        if cls is not Classifier and record["kind"] != cls.kind:
            raise FedtctError(f"{folder} holds a '{record['kind']}' model, not a '{cls.kind}' one")
        if record["model"] is None and model is None:
            raise FedtctError(
                f"{folder} was made from a model of your own ({record['class']}): give one to load, as model="
            )
        if model is not None and not isinstance(model, str | nn.Module):
            model = build_own(model, tuple(record["inputs"]["shape"]), record["num_classes"])
        spec = NetworkSpec.from_record(record, model)
        kind = next(k for k in (NetworkClassifier, TangentClassifier) if k.kind == record["kind"])
        return kind._from(spec, load_file(folder / TENSORS), record, pick_device(device))  # type: ignore[return-value]

    def _record(self) -> dict[str, Any]:
        return {"kind": self.kind} | self.spec.record()


class NetworkClassifier(Classifier):
    """A trained network: what stage 1 alone gives."""

    kind = "network"

    def __init__(self, spec: NetworkSpec, weights: Weights, device: torch.device) -> None:
        self.spec, self.device = spec, device
        self.network = spec.build(device, channels_last=True)
        self.network.load(weights)
        self.network.module.eval()

    def _batch_scores(self, x: Tensor) -> Tensor:
        return self.network(x)

    def _tensors(self) -> dict[str, Tensor]:
        return self.network.weights()._asdict()

    @classmethod
    def _from(cls, spec: NetworkSpec, tensors: dict[str, Tensor], record: dict[str, Any], device: torch.device) -> Self:
        return cls(spec, Weights(**tensors), device)


class LinearModel(NamedTuple):
    """What stage 2 ends with: a normaliser of features, and W with its bias in the last row."""

    normaliser: Normaliser
    w: Tensor


class TangentClassifier(Classifier):
    """A linear model on the tangent features of a network: what TCT gives."""

    kind = "tangent"

    def __init__(self, spec: NetworkSpec, recipe: Recipe, linear: LinearModel, device: torch.device) -> None:
        self.spec, self.recipe, self.linear, self.device = spec, recipe, linear, device
        self.tangents = TangentMap(spec, recipe, device)
        self._normaliser = Normaliser(*(t.to(device) for t in linear.normaliser))
        self._w = linear.w.to(device)

    def _batch_scores(self, x: Tensor) -> Tensor:
        return torch.cat([self._normaliser(raw).to(self._w) @ self._w for raw in self.tangents.batches(x)])

    def _tensors(self) -> dict[str, Tensor]:
        return {
            "parameters": self.recipe.parameters,
            "buffers": self.recipe.buffers,
            "w": self.linear.w,
        } | self.linear.normaliser._asdict()

    def _record(self) -> dict[str, Any]:
        numbers = {name: getattr(self.recipe, name) for name in ("p", "seed", "normalize", "bounded")}
        return super()._record() | {"features": numbers}

    @classmethod
    def _from(cls, spec: NetworkSpec, tensors: dict[str, Tensor], record: dict[str, Any], device: torch.device) -> Self:
        recipe = Recipe(tensors["parameters"], tensors["buffers"], **record["features"])
        linear = LinearModel(Normaliser(tensors["mean"], tensors["scale"]), tensors["w"])
        return cls(spec, recipe, linear, device)


@dataclass(frozen=True)
class Fit:
    """What a method's ``fit`` returns."""

    model: Classifier
    history: History
