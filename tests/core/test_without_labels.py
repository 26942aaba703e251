"""Stage 1 without labels: it learns which way images are turned, and so does not feel how labels are dealt."""

from dataclasses import replace

import pytest
import torch
from core_helpers import parameters_of, tiny_net
from torch import nn

from fedtct import TCT, FedAvg, FedProx, FedtctError, Ridge, Scaffold, Silo, TangentFeatures
from fedtct.data.augment import crop_flip
from fedtct.data.pretext import turn
from fedtct.seeds import derive
from fedtct.training import LocalJob
from fedtct.training.local_update import batch, draw_epochs

ROTATIONS = {"rounds": 2, "local_epochs": 1, "batch_size": 8, "seed": 3, "pretext": "rotations"}


def images(n: int = 30, seed: int = 0) -> torch.Tensor:
    return torch.rand(n, 1, 4, 4, generator=torch.Generator().manual_seed(seed)).double()


def net(classes: int = 4) -> nn.Module:
    return nn.Sequential(nn.Flatten(), tiny_net(features=16, classes=classes, norm=True))


def deal(labels: torch.Tensor) -> list[Silo]:
    x = images()
    return [Silo(x[part], labels[part]) for part in (slice(0, 12), slice(12, 30))]


def tct(stage1: FedAvg | Scaffold) -> TCT:
    return TCT(net(), stage1, TangentFeatures(p=50), Ridge(d=50))


@pytest.mark.parametrize("method", [FedAvg, FedProx, Scaffold])
def test_labels_take_no_part(method):
    stage1, labels = method(**ROTATIONS), torch.arange(30) % 4
    sorted_by_class = labels.sort().values
    found, expected = (tct(stage1).fit(deal(y)).model.recipe.parameters for y in (sorted_by_class, labels))
    assert torch.equal(found, expected)
    learnt = tct(replace(stage1, pretext="none")).fit(deal(labels)).model.recipe.parameters
    assert not torch.equal(found, learnt)


@pytest.mark.parametrize("classes", [2, 3, 4, 6])
def test_it_is_training_on_images_turned_beforehand(classes):
    """And labelled with how; of few classes the last is for all other turns."""
    x, labels, method = images(), torch.arange(30) % classes, FedAvg(net(classes), **ROTATIONS | {"rounds": 1})
    found = method.run(method.open([Silo(x, labels)])).parameters
    (epoch,) = draw_epochs(30, method._plan(), derive(method.seed, "train", 0, 0))
    turns = torch.empty(30, dtype=torch.long)
    turns[epoch.order] = epoch.changes[:, 0]
    turned = Silo(turn(x, turns), turns.clamp(max=classes - 1))
    expected = parameters_of(replace(method, pretext="none").fit([turned]))
    assert torch.equal(found, expected)


def test_images_are_turned_after_they_were_cropped_and_flipped():
    """Flipped afterwards, one that was turned left would look like a mirror image turned right."""
    found, turns, epoch = augmented(images())
    assert torch.equal(turns, epoch.changes[:, 3])
    assert torch.equal(found, turn(crop_flip(images()[epoch.order], epoch.changes[:, :3]), turns))


def test_what_was_up_tells_which_way_an_image_was_turned():
    sky = torch.zeros(30, 1, 32, 32)
    sky[:, :, :12] = 1
    found, turns, _ = augmented(sky)
    top, bottom = found.mean((1, 3)).split(16, 1)
    left, right = found.mean((1, 2)).split(16, 1)
    brightest = torch.stack([side.mean(1) for side in (top, left, bottom, right)]).argmax(0)
    assert torch.equal(brightest, turns)


def augmented(x):
    """An epoch of these images as a single batch."""
    method = FedAvg(net(), **ROTATIONS, augment="crop-flip")
    (epoch,) = draw_epochs(30, method._plan(), seed=0)
    return *batch(LocalJob(0, x, torch.zeros(30), None, method._plan(), seed=0), epoch.order, epoch.changes), epoch


def test_nothing_is_rated_before_there_is_a_classifier():
    labels = torch.arange(30) % 4
    fit = tct(FedAvg(**ROTATIONS)).fit(deal(labels), test=(images(), labels))
    assert [row.test_accuracy is None and row.train_loss is None for row in fit.history] == [True, True, True, False]
    rated = tct(FedAvg(**ROTATIONS | {"pretext": "none"})).fit(deal(labels))
    assert fit.history[1].bytes_up < rated.history[1].bytes_up


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: FedAvg(pretext="jigsaw"), "unknown pretext 'jigsaw'. Known: none, rotations"),
        (lambda: FedAvg(pretext="rotations", patience=3), "patience needs ratings of the model"),
        (lambda: FedAvg(net(), **ROTATIONS).fit(deal(torch.arange(30) % 4)), "use it as TCT's stage 1"),
        (lambda: tct(FedAvg(**ROTATIONS)).fit([(torch.rand(9, 16), torch.arange(9) % 4)]), "needs square images"),
        (lambda: TCT("mlp", FedAvg(**ROTATIONS)).fit([(images(), torch.rand(30))]), "two or more outputs"),
    ],
)
def test_what_cannot_work_is_refused(wrong, message):
    with pytest.raises(FedtctError, match=message):
        wrong()
