"""Datasets by name, as tensors of the pixels as stored."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedtct.data.cifar_files import Labels, Pictures
from fedtct.data.class_names import CIFAR10_NAMES, CIFAR100_NAMES, FASHION_MNIST_NAMES
from fedtct.data.files import DataFile, read_checked
from fedtct.data.layouts import choose_layout
from fedtct.errors import FedtctError


class Samples(NamedTuple):
    """Inputs `x`, of images uint8 and NCHW, with their labels `y` (int64)."""

    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Dataset:
    """A classification task: samples to train on, samples to test on."""

    name: str
    train: Samples
    test: Samples
    num_classes: int
    class_names: tuple[str, ...]


def load_dataset(name: str, data_dir: str | Path | None = None) -> Dataset:
    """A dataset by name: "digits", "fashion-mnist", "cifar10" or "cifar100".

    Its files are looked for in ``data_dir``, else in $FEDTCT_DATA, else in ~/.cache/fedtct; the digits need none.

    >>> data = load_dataset("digits")
    >>> data.train.x.shape, data.train.x.dtype, data.num_classes
    (torch.Size([1437, 1, 8, 8]), torch.uint8, 10)
    """
    if name not in DATASETS:
        raise unknown_dataset(name)
    return DATASETS[name](resolve_data_dir(data_dir))


def resolve_data_dir(data_dir: str | Path | None = None) -> Path:
    """The folder that holds the datasets: the argument, else $FEDTCT_DATA, else ~/.cache/fedtct."""
    return Path(data_dir or os.environ.get("FEDTCT_DATA") or "~/.cache/fedtct").expanduser()


def unknown_dataset(name: str) -> FedtctError:
    """The error for a name that is not in `DATASETS`."""
    return FedtctError(f"unknown dataset {name!r}: choose one of {', '.join(DATASETS)}")


def _load_digits(root: Path) -> Dataset:
    # scikit-learn takes a second to import and carries this one dataset: only those who ask for it wait.
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = (load_digits()[key] for key in ("images", "target"))
    pixels = np.rint(images * (255 / 16)).astype(np.uint8)[:, None]
    divided = train_test_split(np.arange(len(labels)), test_size=0.2, stratify=labels, random_state=0)
    train, test = (_samples(pixels[rows], labels[rows].astype(np.int64)) for rows in map(np.sort, divided))
    return Dataset("digits", train, test, 10, tuple("0123456789"))


def _load_files(root: Path, name: str, class_names: tuple[str, ...]) -> Dataset:
    layout, num_classes = choose_layout(name, root), len(class_names)

    def samples(files: tuple[DataFile, ...]) -> Samples:
        x, y = layout.decode([read_checked(file, root, name) for file in files])
        if y.min() < 0 or y.max() >= num_classes:
            folder = files[0].locate(root).parent
            raise FedtctError(
                f"{folder} holds labels from {y.min()} to {y.max()}, but {name} has {num_classes} classes: "
                f"delete it and fetch again with `fedtct data fetch {name}`"
            )
        return _samples(x, y)

    return Dataset(name, samples(layout.train), samples(layout.test), num_classes, class_names)


def _samples(x: Pictures, y: Labels) -> Samples:
    return Samples(torch.from_numpy(x), torch.from_numpy(y))


def _load_cifar100(root: Path) -> Dataset:
    file = root / "cifar-100-binary" / "fine_label_names.txt"
    names = tuple(file.read_text(encoding="utf-8").split()) if file.is_file() else ()
    return _load_files(root, "cifar100", names if len(names) == 100 else CIFAR100_NAMES)


DATASETS: dict[str, Callable[[Path], Dataset]] = {
    "digits": _load_digits,
    "fashion-mnist": partial(_load_files, name="fashion-mnist", class_names=FASHION_MNIST_NAMES),
    "cifar10": partial(_load_files, name="cifar10", class_names=CIFAR10_NAMES),
    "cifar100": _load_cifar100,
}
