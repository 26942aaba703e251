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

from fedtct.errors import FedtctError
from fedtct.federation import pick_device
from fedtct.history import History
from fedtct.models import NetworkSpec, Weights
from fedtct.silo import as_samples
from fedtct.tangent import Normaliser, Recipe, TangentMap

BATCH = 500
TENSORS, RECORD = "model.safetensors", "model.json"


class Classifier(ABC):
    """Samples to classes."""

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

    @torch.no_grad()
    def scores(self, x: Tensor | np.ndarray[Any, Any]) -> Tensor:
        """A score for each class, one row a sample; batches, so that any number of samples fits."""
        x = torch.as_tensor(x)
        self.spec.inputs.check(x, "x")
        parts = [self._batch_scores(batch.to(self.device)).cpu() for batch in x.split(BATCH)]
        return torch.cat(parts) if len(x) else torch.zeros(0, self.spec.num_classes)

    def predict(self, x: Tensor | np.ndarray[Any, Any]) -> Tensor:
        """The class of each sample."""
        return self.scores(x).argmax(1)

    def score(self, x: Tensor | np.ndarray[Any, Any], y: Tensor | np.ndarray[Any, Any] | list[int]) -> float:
        """Accuracy: the share of samples whose class is right."""
        x, y = as_samples(x, y, "score(x, y)")
        return float((self.predict(x) == y).double().mean())

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder: tensors as safetensors, the rest as JSON."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: t.detach().cpu().contiguous() for name, t in self._tensors().items()}
        save_file(tensors, folder / TENSORS)
        (folder / RECORD).write_text(json.dumps(self._record(), indent=2) + "\n")

    @classmethod
    def load(cls, folder: str | Path, model: nn.Module | None = None, device: torch.device | str = "auto") -> Self:
        """A model that ``save`` wrote. One made from an nn.Module of your own needs such a module as ``model``."""
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
        self.network = spec.build(device)
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
        return self._normaliser(self.tangents(x)).to(self._w) @ self._w

    def _tensors(self) -> dict[str, Tensor]:
        return {
            "parameters": self.recipe.parameters,
            "buffers": self.recipe.buffers,
            "w": self.linear.w,
        } | self.linear.normaliser._asdict()

    def _record(self) -> dict[str, Any]:
        numbers = {"p": self.recipe.p, "seed": self.recipe.seed, "normalize": self.recipe.normalize}
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
