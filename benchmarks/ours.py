"""The same work as ``plain``, the way fedtct does it: through the questions that silos answer."""

import torch

from benchmarks.side_by_side import Work
from benchmarks.work import BATCH, CLASSES, LR, SHAPES, WEIGHT_DECAY, images
from fedtct.classifier import LinearModel, TangentClassifier
from fedtct.federation import LocalFederation
from fedtct.models import InputSpec, NetworkSpec
from fedtct.silo import Silo
from fedtct.stage1 import FedAvg
from fedtct.tangent import Normaliser, TangentFeatures, TangentMap


def spec_of(model: str) -> NetworkSpec:
    """A registered network for pixels."""
    channels = SHAPES[model][0]
    return NetworkSpec(model, InputSpec(SHAPES[model], torch.uint8, (0.5,) * channels, (0.25,) * channels), CLASSES)


def stage1(model: str, samples: int, precision: str) -> Work:
    """A round of a federation with one silo."""
    federation = LocalFederation([Silo(*images(model, samples))], "cpu", precision=precision)
    fedavg = FedAvg(model, local_epochs=1, batch_size=BATCH, lr=LR, weight_decay=WEIGHT_DECAY, evaluate_every=10**9)
    session = fedavg.open(federation, model, None, None)
    message = fedavg.question(session.network.weights()._asdict(), 1)

    def work() -> float:
        federation.ask("train", message)
        return samples

    return work


def features(model: str, samples: int, p: int) -> Work:
    """Raw tangent features, a batch at a time."""
    spec, (x, _) = spec_of(model), images(model, samples)
    tangents = TangentMap(spec, TangentFeatures(p).recipe(spec.build().weights()))

    def work() -> float:
        return sum(len(raw) for raw in tangents.batches(x))

    return work


def prediction(model: str, samples: int, p: int) -> Work:
    """Scores of new samples with a linear model on tangent features."""
    spec, (x, _) = spec_of(model), images(model, samples)
    linear = LinearModel(Normaliser.identity(p), torch.randn(p + 1, CLASSES))
    recipe = TangentFeatures(p).recipe(spec.build().weights())
    classifier = TangentClassifier(spec, recipe, linear, torch.device("cpu"))

    def work() -> float:
        return len(classifier.predict(x))

    return work
