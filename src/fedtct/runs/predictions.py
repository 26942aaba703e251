"""What a saved model says about a file of samples: predictions as a table, and how right they are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from fedtct.classifier import Classifier
from fedtct.data.image_files import holds_images, image_files
from fedtct.data.samples import as_samples, quantities
from fedtct.tasks import Regression

if TYPE_CHECKING:
    import pandas as pd


def prediction_table(model: Classifier, x: Any, whose: str = "x") -> pd.DataFrame:
    """A row a sample: its label and the probability of each class, or its number."""
    import pandas as pd

    scores = model.scores(x, whose)
    if isinstance(model.spec.task, Regression):
        return pd.DataFrame({"prediction": torch.as_tensor(model.spec.task.decode(scores)).numpy()})
    probabilities = model.probabilities(scores).numpy()
    labels = model.classes[probabilities.argmax(1)]
    named = {f"probability_{name}": probabilities[:, place] for place, name in enumerate(model.classes.tolist())}
    return pd.DataFrame({"label": labels} | named)


def named_by_file(table: pd.DataFrame, source: Path) -> pd.DataFrame:
    """Predictions of images with the file of each in front; of others, whose rows have their order, as they are."""
    if holds_images(source):
        folder = source if source.is_dir() else source.parent
        table.insert(0, "file", [file.relative_to(folder).as_posix() for file in image_files(source)])
    return table


class ClassRating(NamedTuple):
    """One class: how many samples have it, which share of them is found, and which share of those called so are."""

    name: str
    samples: int
    recall: float
    precision: float


class Evaluation(NamedTuple):
    """How right a model is about samples."""

    samples: int
    figures: dict[str, float]  # accuracy and log-loss, or R², RMSE and mean absolute error
    classes: list[ClassRating]


def evaluate(model: Classifier, x: Any, y: Any, whose: str = "the input") -> Evaluation:
    """Compare predictions with what is true."""
    with quantities(isinstance(model.spec.task, Regression)):
        x, y = as_samples(x, y, whose)
    truth = model.spec.task.encode(y, model.spec.num_classes, whose)
    scores = model.scores(x, whose)
    found = model.spec.task.squared_score(scores, truth)
    if isinstance(model.spec.task, Regression):
        error = (model.spec.task.decode(scores) - torch.as_tensor(y).double()).abs().mean()
        figures = {"r2": found.r2, "rmse": found.rmse, "mae": float(error)}
        return Evaluation(len(truth), figures, [])
    predicted = scores.argmax(1)
    likelihood = model.probabilities(scores)[torch.arange(len(truth)), truth].clamp_min(1e-15)
    ratings = []
    for label, name in enumerate(model.classes.tolist()):
        here, called = truth == label, predicted == label
        right = int((here & called).sum())
        share = [right / int(part.sum()) if int(part.sum()) else float("nan") for part in (here, called)]
        ratings.append(ClassRating(str(name), int(here.sum()), *share))
    recalls = [rating.recall for rating in ratings if rating.samples]
    figures = {
        "accuracy": found.accuracy,
        "balanced_accuracy": sum(recalls) / len(recalls),
        "log_loss": abs(float(likelihood.log().mean())),  # no minus before a zero
    }
    return Evaluation(len(truth), figures, ratings)
