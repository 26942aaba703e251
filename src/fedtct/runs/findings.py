"""What is found out about a run that is over, for people to look at: who holds what, who is taken for whom, who gains.

No algorithm needs any of it, and it needs the silos' data in this process: across machines it stays unknown.
"""

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from fedtct.classifier import Classifier, Fit, NetworkClassifier
from fedtct.federation import LocalFederation
from fedtct.history import Finding
from fedtct.models import Weights
from fedtct.runs.config import RunConfig
from fedtct.runs.execute import Job
from fedtct.runs.folder import FINDINGS, RunFolder, read_json
from fedtct.stage1 import Stage1

SPLIT, CLASSES, SILOS, ALONE = "split", "classes", "silos", "alone"
ALONE_EPOCHS = 25  # that a silo trains by itself, or as many as it trained in the run if these are fewer

# What a model that a silo trains alone does not depend on: the rest of the settings decides on it.
OF_THE_METHOD: tuple[str, ...] = (
    "method",
    "rounds",
    "local_epochs",
    "patience",
    "evaluate_every",
    "mu",
    "alpha",
    "server_lr",
)
OF_THE_METHOD += ("p", "normalize", "stage2", "steps", "stage2_lr", "ridge", "d", "device", "data_dir")


def find_all(folder: RunFolder, job: Job, fit: Fit) -> None:
    """Keep all findings in the run's folder; what is there already is not computed again."""
    counts = class_counts(job)
    folder.find_out(SPLIT, lambda: {"class_names": list(job.data.class_names), "silos": holdings(job, counts)})
    folder.find_out(CLASSES, lambda: confusion(fit.model, *job.data.test))
    folder.find_out(SILOS, lambda: judge(fit.model, job, counts, range(len(job.silos))))
    folder.find_out(ALONE, lambda: alone(folder, job, counts))


def class_counts(job: Job) -> Tensor:
    """Samples of each class (a column) in each silo (a row), held-out ones included."""
    labels = [torch.cat([silo.y, silo.held_y]).cpu() for silo in job.silos]
    return torch.stack([y.bincount(minlength=job.data.num_classes) for y in labels])


def holdings(job: Job, counts: Tensor) -> list[dict[str, Any]]:
    """Every silo's name and how much it has of each class."""
    return [{"name": silo.name, "counts": row.tolist()} for silo, row in zip(job.silos, counts, strict=True)]


def confusion(model: Classifier, x: Tensor, y: Tensor) -> Finding:
    """How many test samples of a class (a row) are taken for which (a column)."""
    return {"confusion": table(model.predict(x), y.cpu(), model.spec.num_classes).tolist()}


def table(predicted: Tensor, y: Tensor, classes: int) -> Tensor:
    """Counts of (true, predicted) pairs."""
    return (y * classes + predicted).bincount(minlength=classes**2).view(classes, classes)


def judge(model: Classifier, job: Job, counts: Tensor, silos: Iterable[int]) -> Finding:
    """A model's accuracy on samples such as each of these silos has, and on everybody's.

    Silos' own are those they hold out, if all do; else test samples, with each class as often as the silo has it.
    """
    x, y = job.data.test
    found = table(model.predict(x), y.cpu(), job.data.num_classes).double()
    if all(len(silo.held_y) for silo in job.silos):
        own = [model.score(job.silos[k].held_x.cpu(), job.silos[k].held_y.cpu()) for k in silos]
    else:
        own = [recall(found, counts[k]) for k in silos]
    return {"own": own, "everybody": float(found.diagonal().sum() / found.sum())}


def recall(found: Tensor, mix: Tensor) -> float:
    """Accuracy if classes came in this mix; those that no test sample has do not count."""
    tested = found.sum(1) > 0
    shares = torch.where(tested, mix, 0).double()
    return float((shares * found.diagonal() / found.sum(1).clamp_min(1)).sum() / shares.sum())


def alone(folder: RunFolder, job: Job, counts: Tensor) -> Finding:
    """What each silo would reach without the others: the same network, trained on its own samples only."""
    settings = alone_settings(folder.config)
    for other in sorted(folder.path.parent.glob(f"*/{FINDINGS}/{ALONE}.json")):  # runs of a comparison share them
        found: Finding = read_json(other)
        if found["settings"] == settings:
            return found
    # FedAvg's first question with more epochs: before an average, every silo is alone.
    method = replace(folder.config, method="fedavg", rounds=(1,), patience=0, trainable=settings["trainable"])
    stage1 = method.build(job.data.num_classes)
    assert isinstance(stage1, Stage1)
    federation = LocalFederation(job.silos, folder.config.device)
    session = stage1.open(federation, folder.config.model, None, None)
    folder.watcher.begin(ALONE, 1, 0)
    federation.on_reply = folder.watcher.reply
    start = stage1.start(session.network.weights())
    question = stage1.question(start, 0) | {"epochs": settings["epochs"], "evaluate": False}
    judged = []
    for index, reply in enumerate(federation.deliver("train", question)):
        weights = Weights(reply["parameters"], reply["buffers"])
        model = NetworkClassifier(session.spec, weights, federation.device)
        judged.append(judge(model, job, counts, [index]))
    own, everybody = [found["own"][0] for found in judged], [found["everybody"] for found in judged]
    return {"settings": settings, "own": own, "everybody": everybody}


def alone_settings(config: RunConfig) -> dict[str, Any]:
    """What decides on the models that silos train alone."""
    trainable = "last-layer" if config.method == "fedavg-last-layer" else config.trainable
    epochs = min(ALONE_EPOCHS, config.local_epochs * sum(config.rounds)) or 1
    settings = {name: value for name, value in asdict(config).items() if name not in OF_THE_METHOD}
    return settings | {"trainable": trainable, "epochs": epochs}
