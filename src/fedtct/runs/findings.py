"""What a report shows of a finished run: who holds what, which classes are mistaken for which, which silos gain.

No algorithm needs it, and it takes the silos' data in this process: across machines it stays unknown.
"""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedtct.classifier import Classifier, Fit, NetworkClassifier
from fedtct.data.samples import take
from fedtct.errors import FedtctError, first_line
from fedtct.federation import LocalFederation
from fedtct.files import strict
from fedtct.history import Finding
from fedtct.models import NetworkSpec, Weights
from fedtct.runs.common_class import accuracy_in_mix
from fedtct.runs.config import RunConfig
from fedtct.runs.finding_types import ALONE, CLASSES, SILOS, SPLIT, read_finding
from fedtct.runs.folder import FINDINGS, RunFolder
from fedtct.runs.jobs import Job
from fedtct.runs.plan import PLAN
from fedtct.runs.settings import settings_of
from fedtct.seeds import generator
from fedtct.silo import pool
from fedtct.stage1 import Stage1
from fedtct.tasks import Regression, predicted

RATED_ALONE, LEAST_RATED = 100_000, 1000  # samples that silos' own models are rated on: of all together, and of each
ALONE_EPOCHS = 25  # a silo trains alone for so many, or for as many as in the run if these are fewer


def find_all(folder: RunFolder, job: Job, fit: Fit) -> None:
    """Keep all findings in the run's folder; what is there already is not computed again."""
    with warnings.catch_warnings():  # training has warned of the same samples, under their owners' names
        warnings.simplefilter("ignore", UserWarning)
        failure = _find_all(folder, job, fit)
    if failure is not None:
        warnings.warn(f"what silos would reach alone could not be computed: {first_line(failure)}", stacklevel=2)


def _find_all(folder: RunFolder, job: Job, fit: Fit) -> Exception | None:
    """Returns the error if silos could not be trained alone: one that is too small for it must not cost the model."""
    folder.find_out(SPLIT, lambda: holdings(job, fit.model.spec))
    judge = Judge.of(job, fit.model.spec)
    if judge is None:
        return None
    fit.model.on_batch = partial(folder.watcher.count, "rating the model")
    if not isinstance(fit.model.spec.task, Regression):
        folder.find_out(CLASSES, lambda: confusion(fit.model, judge.x, judge.y, tested=job.test is not None))
    folder.find_out(SILOS, lambda: judge.rate(fit.model, range(len(job.silos))))
    fit.model.on_batch = None
    try:
        folder.find_out(ALONE, lambda: alone(folder, job, judge))
    except (FedtctError, torch.OutOfMemoryError) as error:
        return error
    return None


def holdings(job: Job, spec: NetworkSpec) -> Finding:
    """Every silo's name and how many samples it has, of each class if there are classes, with those held out."""
    if isinstance(spec.task, Regression):
        counts, names = [[len(silo) + len(silo.held_y)] for silo in job.silos], ["samples"]
    else:
        counts, names = class_counts(job, spec).tolist(), list(job.class_names)
    return {
        "class_names": names,
        "silos": [{"name": silo.name, "counts": row} for silo, row in zip(job.silos, counts, strict=True)],
    }


def class_counts(job: Job, spec: NetworkSpec) -> Tensor:
    """Samples of each class (a column) in each silo (a row)."""
    labels = [[encode(spec, y) for y in (silo.y, silo.held_y)] for silo in job.silos]
    return torch.stack([torch.cat(parts).bincount(minlength=spec.num_classes) for parts in labels])


def encode(spec: NetworkSpec, y: Any) -> Tensor:
    """Answers as they are learnt: labels from 0, or standardised numbers."""
    return spec.task.encode(y, spec.num_classes, "the data").cpu()


@dataclass(frozen=True)
class Judge:
    """Rates models on samples that none has trained on: the test set, or what silos hold out.

    A silo's own samples are those it holds out, if all silos do; else test samples, with each class as often as the
    silo has it. Of a regression, or without test samples, only what some silos hold out is there: others are not rated.
    """

    job: Job
    spec: NetworkSpec
    x: Any  # everybody's
    y: Any
    held: bool  # whether a silo's own are those it holds out

    @classmethod
    def of(cls, job: Job, spec: NetworkSpec) -> "Judge | None":
        """A judge, if there is anything to judge by."""
        holding = [silo for silo in job.silos if len(silo.held_y)]
        if job.test is not None and not isinstance(spec.task, Regression):
            return cls(job, spec, *job.test, held=len(holding) == len(job.silos))
        if not holding:
            return None
        everybody = pool(holding)
        x, y = job.test or (everybody.held_x, everybody.held_y)
        return cls(job, spec, x, y, held=True)

    def for_many(self, models: int) -> "Judge":
        """With a part of everybody's samples, drawn at random, if rating so many models on all would take long."""
        most = max(LEAST_RATED, RATED_ALONE // models)
        if len(self.y) <= most:
            return self
        drawn = torch.randperm(len(self.y), generator=generator(0, "rated"))[:most].sort().values
        return replace(self, x=take(self.x, drawn), y=take(self.y, drawn))

    def rate(self, model: Classifier, silos: Iterable[int]) -> Finding:
        """A model's accuracy, or R², on samples like each of these silos' own (none if unknown), and on everybody's."""
        own: list[float | None]
        if self.held:
            chosen = [self.job.silos[k] for k in silos]
            own = [model.score(silo.held_x, silo.held_y) if len(silo.held_y) else None for silo in chosen]
            everybody = model.score(self.x, self.y)
        else:
            found, counts = confusion_matrix(model, self.x, self.y).double(), class_counts(self.job, self.spec)
            own = [accuracy_in_mix(found, counts[k]) for k in silos]
            everybody = float(found.diagonal().sum() / found.sum())
        return {"own": own, "everybody": everybody, "held_out": self.held}


def confusion(model: Classifier, x: Any, y: Any, tested: bool = True) -> Finding:
    """The confusion matrix of the test set, or of what silos hold out."""
    return {"confusion": confusion_matrix(model, x, y).tolist(), "tested": tested}


def confusion_matrix(model: Classifier, x: Any, y: Any) -> Tensor:
    """How many samples of a class (a row) are predicted as which class (a column).

    The last column counts those without a prediction, because their highest score is not finite.
    """
    classes = model.spec.num_classes
    pairs = encode(model.spec, y) * (classes + 1) + predicted(model.scores(x))
    return pairs.bincount(minlength=classes * (classes + 1)).view(classes, classes + 1)


def alone(folder: RunFolder, job: Job, judge: Judge) -> Finding:
    """What each silo would reach without the others: the same network, trained only on its own samples."""
    settings = alone_settings(folder.config)
    for other in _of_one_plan(folder.path, f"{FINDINGS}/{ALONE}.json"):
        found = read_finding(other)
        if found is not None and found["settings"] == settings:
            return found
    # FedAvg's first question with more epochs: before they are averaged, silos have trained alone.
    changed = {"method": "fedavg", "rounds": (1,), "patience": 0, "epsilon": 0.0, "trainable": settings["trainable"]}
    stage1 = replace(folder.config, **changed).build(job.num_classes)
    assert isinstance(stage1, Stage1)
    federation = LocalFederation(job.silos, folder.config.device, precision=folder.config.precision)
    session = stage1.open(federation)
    folder.watcher.begin(ALONE, 1, 0)
    federation.on_reply = folder.watcher.reply
    start = stage1.start(session.network.weights())
    question = stage1.question(start, 0) | {"epochs": settings["epochs"], "evaluate": False}
    all_samples, judge = len(judge.y), judge.for_many(len(job.silos))
    judged = []
    for index, reply in enumerate(federation.deliver("train", question)):
        weights = Weights(reply["parameters"], reply["buffers"])
        model = NetworkClassifier(session.spec, weights, federation.device)
        judged.append(judge.rate(model, [index]))
    own, everybody = [found["own"][0] for found in judged], [found["everybody"] for found in judged]
    fewer = {"samples": len(judge.y)} if len(judge.y) < all_samples else {}
    return {"settings": settings, "own": own, "everybody": everybody} | fewer


def _of_one_plan(run: Path, file: str) -> list[Path]:
    """This file of all runs of the same plan, or of the comparison around its choice: they share their silos."""
    around = {run.parent: f"*/{file}", run.parent.parent: f"*/*/{file}"}
    return sorted(path for place, those in around.items() if (place / PLAN).is_file() for path in place.glob(those))


def alone_settings(config: RunConfig) -> dict[str, Any]:
    """The settings that the models depend on which silos train alone."""
    trainable = "last-layer" if config.method == "fedavg-last-layer" else config.trainable
    epochs = min(ALONE_EPOCHS, config.local_epochs * sum(config.rounds)) or 1
    settings = {name: strict(getattr(config, name)) for name in settings_of("data", "training", "draws")}
    return settings | {"trainable": trainable, "epochs": epochs}
