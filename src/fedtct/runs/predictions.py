"""What a saved model says about a file of samples: predictions as a table, and how right they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from fedtct.classifier import Classifier
from fedtct.data.image_files import holds_images, image_files
from fedtct.data.samples import as_samples
from fedtct.data.sources import TABLES
from fedtct.data.table_files import as_written
from fedtct.data.tables import is_table
from fedtct.errors import FedtctError, listing, quoted
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


def row_names(x: Any, source: Path, keep: Sequence[str] = ()) -> pd.DataFrame:
    """What tells samples apart, to stand before predictions: images' files, or the columns of a table to ``keep``."""
    import pandas as pd

    if holds_images(source) and not keep:
        folder = source if source.is_dir() else source.parent
        return pd.DataFrame({"file": [file.relative_to(folder).as_posix() for file in image_files(source)]})
    if keep and not is_table(x):
        raise FedtctError(f"{source} is not a table, so it has no columns to keep")
    if lacking := [name for name in keep if name not in x.columns]:
        raise FedtctError(f"{source} has no column {quoted(lacking)} to keep. It has {listing(x.columns)}")
    if not keep:
        return pd.DataFrame()
    return as_written(source, keep, len(x)) if source.suffix.lower() in TABLES else x[list(keep)]  # of arrays


class ClassRating(NamedTuple):
    """One class: how many samples have it, which share of them is found, and which share of those called so are.

    ``auc`` is how often one of them has a higher probability of it than a sample of another class: whatever is named,
    and so where a class is so rare that it never is.
    """

    name: str
    samples: int
    recall: float
    precision: float
    auc: float


class Evaluation(NamedTuple):
    """How right a model is about samples."""

    samples: int
    figures: dict[str, float]  # accuracy and log-loss, or R², RMSE and mean absolute error
    classes: list[ClassRating]


def evaluate(model: Classifier, x: Any, y: Any, whose: str = "the input") -> Evaluation:
    """Compare predictions with what is true."""
    x, y = as_samples(x, y, whose, model.spec.task.read_as)
    truth = model.spec.task.encode(y, model.spec.num_classes, whose)
    scores = model.scores(x, whose)
    found = model.spec.task.squared_score(scores, truth)
    if isinstance(model.spec.task, Regression):
        error = (model.spec.task.decode(scores) - torch.as_tensor(y).double()).abs().mean()
        figures = {"r2": found.r2, "rmse": found.rmse, "mae": float(error)}
        return Evaluation(len(truth), figures, [])
    probabilities = model.probabilities(scores)
    likelihood = probabilities[torch.arange(len(truth)), truth].clamp_min(1e-15)
    predicted = scores.argmax(1)
    ratings = _class_ratings(list(map(str, model.classes.tolist())), truth, predicted, probabilities)
    recalls = [rating.recall for rating in ratings if rating.samples]
    figures = {
        "accuracy": found.accuracy,
        "balanced_accuracy": sum(recalls) / len(recalls),
        "log_loss": abs(float(likelihood.log().mean())),  # no minus before a zero
    }
    return Evaluation(len(truth), figures, ratings)


def _class_ratings(names: list[str], truth: Tensor, predicted: Tensor, probabilities: Tensor) -> list[ClassRating]:
    from sklearn.metrics import precision_recall_fscore_support, roc_auc_score

    labels = range(len(names))
    precision, recall, _, samples = precision_recall_fscore_support(
        truth, predicted, labels=labels, zero_division=math.nan
    )
    aucs = [
        float(roc_auc_score(truth == label, probabilities[:, label])) if 0 < samples[label] < len(truth) else math.nan
        for label in labels
    ]
    return list(map(ClassRating, names, samples.tolist(), recall.tolist(), precision.tolist(), aucs))
