"""The models that fits end with. Whatever the method, they predict, score, save and load alike."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, load_file, save
from torch import Tensor, nn

from fedtct.data.samples import as_samples
from fedtct.errors import FedtctError
from fedtct.files import replacing
from fedtct.hardware.devices import pick_device
from fedtct.history import History
from fedtct.models import Model, Network, NetworkSpec, Weights
from fedtct.models.network import check_layout
from fedtct.models.plain import plain_module
from fedtct.models.trial import try_tokens
from fedtct.tangent import LinearModel, Normaliser, Recipe, TangentMap
from fedtct.tasks import Answers, Names, Regression, finite
from fedtct.training.evaluation import batch_size

MODEL_FILE = "model.safetensors"  # of a folder with a model
METADATA = "fedtct"  # where a file has its record
FIXED = "fixed/"  # before the names of buffers that are no weights


class Classifier(ABC):
    """A trained model: it predicts classes, or numbers after a regression.

    >>> import fedtct
    >>> silos = [([[0.0, 1.0], [1.0, 0.0]], ["no", "yes"]), ([[0.1, 0.9]], ["no"])]
    >>> model = fedtct.FedAvg("linear", rounds=20).fit(silos).model
    >>> model
    NetworkClassifier(linear, 2 classes)
    >>> model.predict([[0.2, 0.8], [0.8, 0.2]]).tolist()
    ['no', 'yes']
    """

    kind: str
    spec: NetworkSpec
    network: Network
    device: torch.device
    temperature: float | None  # of probabilities, fitted to what silos hold out
    on_batch: Callable[[int, int], None] | None = None  # called after each batch: samples done, and of how many

    def __repr__(self) -> str:
        model, task = self.spec.model, self.spec.task
        name = model if isinstance(model, str) else type(model).__name__
        learnt = "numbers" if isinstance(task, Regression) else f"{self.spec.num_classes} classes"
        return f"{type(self).__name__}({name}, {learnt})"

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

    def scores(self, x: Any, whose: str = "x") -> Tensor:
        """A score for each output, one row per sample, for any number of samples.

        Error messages call the samples ``whose``.
        """
        encoded = self.spec.inputs.encode(x, whose)
        if encoded.dtype == torch.int64 and self.device.type == "cuda" and len(encoded):
            try_tokens(self.spec, self.network, encoded, whose)
        return self._scores_of(encoded)

    @torch.inference_mode(False)  # tangent features are gradients, which inference mode does not have
    @torch.no_grad()
    def _scores_of(self, x: Tensor) -> Tensor:
        parts, done = [], 0
        try:
            for batch in x.split(batch_size(x)) if len(x) else ():
                parts.append(self._batch_scores(batch.to(self.device)).cpu())
                done += len(batch)
                if self.on_batch:
                    self.on_batch(done, len(x))
        except IndexError as error:  # an embedding does not know a token
            span = f", with numbers from {x.min()} to {x.max()}"
            raise FedtctError("the model cannot take these samples", error, span) from error
        return torch.cat(parts) if parts else torch.zeros(0, self.spec.num_classes)

    def predict(self, x: Any) -> Answers:
        """The class of each sample: a tensor of labels or an array of names. In a regression, a tensor of numbers."""
        return self.spec.task.decode(self.scores(x))

    @property
    def calibrated(self) -> bool:
        """Whether probabilities were fitted to samples that silos held out of training."""
        return self.temperature is not None

    def predict_proba(self, x: Any) -> Tensor:
        """The probability of each class, one row per sample.

        Probabilities are calibrated if silos held samples out (see ``calibrated``). Otherwise they are the network's
        softmax, or stage 2's least-squares estimates, which are usually too confident.
        """
        if isinstance(self.spec.task, Regression):
            raise FedtctError("this model predicts numbers: it has no probabilities of classes")
        return self.probabilities(self.scores(x))

    def probabilities(self, scores: Tensor) -> Tensor:
        """The probabilities that scores stand for."""
        scores = finite(scores).double()
        if self.temperature is not None:
            return (scores / self.temperature).softmax(1)
        return self._plain_probabilities(scores)

    @abstractmethod
    def _plain_probabilities(self, scores: Tensor) -> Tensor:
        """Probabilities without calibration."""

    def score(self, x: Any, y: Any) -> float:
        """Accuracy, the share of samples whose class is right; R² of a regression."""
        x, y = self.spec.encode(*as_samples(x, y, "score(x, y)", self.spec.task.read_as), "score(x, y)")
        found = self.spec.task.squared_score(self._scores_of(x), y.cpu())
        return found.r2 if isinstance(self.spec.task, Regression) else found.accuracy

    @property
    def classes(self) -> Names:
        """The classes in the order of their scores: by name, or numbers from 0."""
        task = self.spec.task
        if isinstance(task, Regression):
            raise FedtctError("this model predicts numbers: it has no classes")
        return task.labels() if task.names else np.arange(self.spec.num_classes)

    def to_module(self) -> nn.Module:
        """The network alone, as an nn.Module for ``torch.export``, ONNX or a phone.

        It takes raw pixels (0 to 255), numbers or tokens; for a table, ``model.spec.inputs.encode(rows, "rows")``. It
        returns scores whose softmax is ``predict_proba`` or, after a regression, a column with the predictions. A model
        trained by TCT cannot be turned into a plain network, because it computes gradients to predict.
        """
        raise FedtctError(
            "a TCT model needs gradients to predict: only models of FedAvg and the like are plain networks"
        )

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder, as one file; a model that is there stays until the new one is whole."""
        folder = Path(folder)
        if folder.is_file():
            raise FedtctError(f"{folder} is a file, but save writes a folder: use export to write a file")
        folder.mkdir(parents=True, exist_ok=True)
        self.export(folder / MODEL_FILE)

    def export(self, file: str | Path, **notes: str) -> None:
        """Write the model to one safetensors file, which ``load`` reads; notes, such as a model card, are added."""
        with replacing(Path(file)) as half:
            half.write_bytes(self.to_bytes(**notes))

    def to_bytes(self, **notes: str) -> bytes:
        """What ``export`` writes, for those who keep models elsewhere than in files."""
        return save(self._plain_tensors(), metadata={**notes, METADATA: json.dumps(self._record())})

    @classmethod
    def from_bytes(cls, data: bytes, model: Model | None = None, device: torch.device | str = "auto") -> "Classifier":
        """The model that ``to_bytes`` gave."""
        try:
            header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
            record, tensors = json.loads(header["__metadata__"][METADATA]), load(data)
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise FedtctError("these bytes are not a model that fedtct exported") from error
        return rebuild(record, tensors, model, device)

    def _plain_tensors(self) -> dict[str, Tensor]:
        fixed = {FIXED + name: buffer for name, buffer in self.network.fixed().items()}
        return {name: t.detach().cpu().contiguous() for name, t in (self._tensors() | fixed).items()}

    @classmethod
    def load(cls, folder: str | Path, model: Model | None = None, device: torch.device | str = "auto") -> Self:
        """Read a model that ``save`` or ``export`` wrote.

        If it was made from your own nn.Module, give such a module, or the function that makes it, as ``model``.
        """
        folder = Path(folder)
        record, _, file = read_record(folder)
        if cls is not Classifier and record["kind"] != cls.kind:
            raise FedtctError(f"{folder} holds a '{record['kind']}' model, not a '{cls.kind}' one")
        return rebuild(record, load_file(file), model, device, str(folder))  # type: ignore[return-value]  # its kind was checked

    def _record(self) -> dict[str, Any]:
        more = {"temperature": self.temperature, "layout": self.network.layout()}
        return {"kind": self.kind} | self.spec.record() | more


@torch.inference_mode(False)  # the weights are to be differentiated by, wherever they are loaded
def rebuild(
    record: dict[str, Any],
    tensors: dict[str, Tensor],
    model: Model | None,
    device: torch.device | str,
    where: str = "what was saved",
) -> Classifier:
    """The model of a record and its tensors."""
    kinds: dict[str, type[Classifier]] = {kind.kind: kind for kind in (NetworkClassifier, TangentClassifier)}
    try:
        if record["model"] is None and model is None:
            raise FedtctError(
                f"{where} was made from your own model ({record['class']}): pass that to load as model, or to a "
                "command as --model module:function"
            )
        fixed = {name.removeprefix(FIXED): t for name, t in tensors.items() if name.startswith(FIXED)}
        learnt = {name: t for name, t in tensors.items() if not name.startswith(FIXED)}
        spec = replace(NetworkSpec.from_record(record, model), fixed=fixed)
        rebuilt = kinds[record["kind"]]._from(spec, learnt, record, pick_device(device))
        check_layout(record["layout"], rebuilt.network.layout())
        return rebuilt
    except (KeyError, TypeError, AttributeError) as error:  # something is missing, or of a kind not known here
        raise FedtctError(f"{where} is damaged, or from another version of fedtct", error) from error


def read_record(path: Path) -> tuple[dict[str, Any], dict[str, str], Path]:
    """What is recorded about a model in a folder or a file, the notes that go with it, and where its tensors are."""
    file = path / MODEL_FILE if path.is_dir() else path
    if not file.is_file():
        why = f"there is no {file.name} in it" if path.exists() else "it does not exist"
        below = [found.parent for found in path.glob(f"*/{MODEL_FILE}")]  # as in the folder of a run
        raise FedtctError(f"{path} holds no saved model: {why}" + (f"; did you mean {below[0]}?" if below else ""))
    try:
        with safe_open(file, framework="pt") as opened:
            notes = opened.metadata() or {}
        record = json.loads(notes.pop(METADATA))
        record["kind"]  # a KeyError or TypeError if it is of something else
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise FedtctError(f"{file} is not a model that fedtct saved or exported, or is damaged") from error
    return record, notes, file


class NetworkClassifier(Classifier):
    """A trained network: what stage 1 alone gives."""

    kind = "network"

    def __init__(
        self, spec: NetworkSpec, weights: Weights, device: torch.device, temperature: float | None = None
    ) -> None:
        self.spec, self.device, self.temperature = spec, device, temperature
        self.network = spec.build(device, channels_last=True)
        self.network.load(weights)
        self.network.module.eval()

    def _batch_scores(self, x: Tensor) -> Tensor:
        return self.network(x)

    def to_module(self) -> nn.Module:
        """A copy of the network that needs nothing else."""
        task = self.spec.task
        if isinstance(task, Regression):
            return plain_module(self.network, task.std, task.mean)
        return plain_module(self.network, 1 / (self.temperature or 1.0))

    def _tensors(self) -> dict[str, Tensor]:
        return self.network.weights()._asdict()

    @classmethod
    def _from(cls, spec: NetworkSpec, tensors: dict[str, Tensor], record: dict[str, Any], device: torch.device) -> Self:
        return cls(spec, Weights(**tensors), device, record["temperature"])

    def _plain_probabilities(self, scores: Tensor) -> Tensor:
        return scores.softmax(1)


class TangentClassifier(Classifier):
    """A linear model on the tangent features of a network: what TCT gives."""

    kind = "tangent"

    def __init__(
        self,
        spec: NetworkSpec,
        recipe: Recipe,
        linear: LinearModel,
        device: torch.device,
        temperature: float | None = None,
    ) -> None:
        self.spec, self.recipe, self.linear, self.device, self.temperature = spec, recipe, linear, device, temperature
        self.tangents = TangentMap(spec, recipe, device)
        self.network = self.tangents.network
        self._normaliser = Normaliser(*(t.to(device) for t in linear.normaliser))
        self._w = linear.w.to(device)

    def _batch_scores(self, x: Tensor) -> Tensor:
        return torch.cat([self._normaliser.scores(raw, self._w) for raw in self.tangents.batches(x)])

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
        linear = LinearModel(Normaliser.among(tensors), tensors["w"])
        return cls(spec, recipe, linear, device, record["temperature"])

    def _plain_probabilities(self, scores: Tensor) -> Tensor:
        estimates = (scores + 1 / self.spec.num_classes).clamp_min(1e-9)
        return estimates / estimates.sum(1, keepdim=True)


@dataclass(frozen=True)
class Fit:
    """What a method's ``fit`` returns."""

    model: Classifier
    history: History
