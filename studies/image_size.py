"""What a last layer on ImageNet's features reaches, by the size of images and by whose statistics normalise them.

    python -m studies.image_size resnet18-imagenet1k.pth

A linear classifier on the last features of CIFAR-10's training images, rated on other training images. The paper gives
neither size nor statistics; a silo that leaves BatchNorm in training mode normalises by each batch of its two classes.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from fedtct.data import load_dataset
from fedtct.models.pretrained import load_state_dict, read_state_dict
from fedtct.models.resnet import ResNet18, batch_norm
from fedtct.runs.environment import environment

FITTED, RATED, BATCH = 5000, 5000, 64  # samples, the first of the training set; its order is random as it is
SETTINGS = {"dataset": "cifar10", "fitted": FITTED, "rated": RATED, "batch": BATCH, "seed": 0}
SIZES = (32, 64, 128, 160)


def main() -> None:
    """All sizes and statistics; the file is written after each."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("weights", type=Path, help="a state dict of an ImageNet ResNet-18")
    arguments.add_argument("file", type=Path, nargs="?", default=Path("results/image-size.json"))
    chosen = arguments.parse_args()
    torch.manual_seed(0)
    data = load_dataset("cifar10").train
    x, y = data.x[: FITTED + RATED].float(), data.y[: FITTED + RATED]
    x = (x - x.mean((0, 2, 3), keepdim=True)) / x.std((0, 2, 3), keepdim=True)
    where = environment("cpu") | {"command": "python -m studies.image_size"}
    record: dict[str, Any] = {"config": SETTINGS, "environment": where, "accuracy": []}
    for size in SIZES:
        for two_classes in (False, True):
            fitted, rated = features(backbone(chosen.weights, size), x, y, two_classes)
            model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(fitted, y[:FITTED])
            statistics = "each batch of two classes" if two_classes else "ImageNet"
            score = round(float(model.score(rated, y[FITTED:])), 4)
            record["accuracy"].append({"pixels": size, "statistics": statistics, "held_out": score})
            print(record["accuracy"][-1], flush=True)
            chosen.file.write_text(json.dumps(record, indent=1) + "\n")


def backbone(weights: Path, size: int) -> ResNet18:
    """The network without its last layer, for images of one size."""
    module = ResNet18(3, 10, batch_norm, stem="imagenet")
    load_state_dict(module, read_state_dict(weights), "fc")
    module.least, module.fc = size, nn.Identity()  # type: ignore[assignment]  # features instead of logits
    return module.eval()


@torch.no_grad()
def features(module: ResNet18, x: Tensor, y: Tensor, two_classes: bool) -> tuple[Tensor, Tensor]:
    """Of the samples to fit, and of those to rate."""
    fitted = torch.empty(FITTED, 512)
    if two_classes:
        for layer in module.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.reset_running_stats()
                layer.momentum = None  # the mean over all batches: what silos' statistics average to
        module.train()
        groups = [torch.nonzero(y[:FITTED] // 2 == pair).flatten() for pair in range(5)]
    else:
        groups = [torch.arange(FITTED)]
    for group in groups:
        for indices in group.split(BATCH):
            fitted[indices] = module(x[indices])
    module.eval()
    return fitted, torch.cat([module(part) for part in x[FITTED:].split(BATCH)])


if __name__ == "__main__":
    main()
