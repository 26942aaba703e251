"""Datasets by name, as tensors of the pixels as stored."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedtct.data.cifar_files import Labels, Pictures
from fedtct.data.class_names import CIFAR10_NAMES, CIFAR100_NAMES, FASHION_MNIST_NAMES
from fedtct.data.dataset_files import DataFile, read_checked
from fedtct.data.layouts import choose_layout
from fedtct.data.samples import as_samples
from fedtct.errors import FedtctError, check_whole
from fedtct.importing import import_function, is_function_name

PARTS = ("train", "test")
# E. Alpaydin, C. Kaynak: Optical Recognition of Handwritten Digits (https://doi.org/10.24432/C50P49, CC BY 4.0). These
# are scikit-learn's 1,797 images, divided by its train_test_split; it takes about as long to import as torch.
DIGITS = Path(__file__).with_name("digits.npz")


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
    """Load a dataset by name: "digits", "fashion-mnist", "cifar10", "cifar100", or your own.

    Its files are looked for in ``data_dir``, else in $FEDTCT_DATA, else in ~/.cache/fedtct; the digits need none. Your
    own dataset is a "module:function": the function gets that folder as a ``Path`` and returns a Dataset.

    >>> data = load_dataset("digits")
    >>> data.train.x.shape, data.train.x.dtype, data.num_classes
    (torch.Size([1437, 1, 8, 8]), torch.uint8, 10)
    """
    root = resolve_data_dir(data_dir)
    if is_function_name(name):
        return _load_own(name, root)
    if name not in DATASETS:
        raise unknown_dataset(name, "module:function")
    return DATASETS[name](root)


def resolve_data_dir(data_dir: str | Path | None = None) -> Path:
    """The folder that holds the datasets: the argument, else $FEDTCT_DATA, else ~/.cache/fedtct."""
    return Path(data_dir or os.environ.get("FEDTCT_DATA") or "~/.cache/fedtct").expanduser()


def unknown_dataset(name: str, *others: str) -> FedtctError:
    """The error for a name that is neither in `DATASETS` nor among the ``others`` that are allowed."""
    return FedtctError(f"unknown dataset {name!r}: choose one of {', '.join((*DATASETS, *others))}")


def _load_digits(root: Path) -> Dataset:
    with np.load(DIGITS) as file:
        images, labels, in_test = (file[name] for name in ("images", "labels", "test"))
    pixels = np.rint(images * (255 / 16)).astype(np.uint8)[:, None]  # they are stored as printed: 0 to 16
    train, test = (_samples(pixels[rows], labels[rows].astype(np.int64)) for rows in (~in_test, in_test))
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


def _load_own(name: str, root: Path) -> Dataset:
    """The Dataset that the user's own function returns, with the checks that silos' own arrays have."""
    make = import_function(name, Path.cwd())
    try:
        found = make(root)
    except FedtctError:
        raise
    except Exception as error:
        raise FedtctError(f"{name} fails; it is called with one argument, the folder of datasets", error) from error
    if not isinstance(found, Dataset):
        raise FedtctError(f"{name} must return a fedtct.Dataset, not {type(found).__name__}")
    check_whole(2, **{f"num_classes of {name}": found.num_classes})
    if len(found.class_names) != found.num_classes:
        raise FedtctError(f"{name} has {found.num_classes} classes, but {len(found.class_names)} class_names")
    train, test = (_own_samples(getattr(found, part), f"{part} of {name}", found.num_classes) for part in PARTS)
    (here, kind), (there, other) = ((tuple(x.shape[1:]), x.dtype) for x, _ in (train, test))
    if (here, kind) != (there, other):
        raise FedtctError(f"{name}: training samples are {here} of {kind}, but test samples {there} of {other}")
    return replace(found, train=train, test=test)


def _own_samples(given: Any, whose: str, num_classes: int) -> Samples:
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise FedtctError(f"{whose} must be fedtct.Samples(x, y), not {type(given).__name__}")
    x, y = as_samples(given[0], given[1], whose)
    if not isinstance(x, Tensor):
        raise FedtctError(f"{whose} is a table: give arrays of numbers, or a file for each silo with --data")
    if not isinstance(y, Tensor) or y.is_floating_point() or int(y.max()) >= num_classes:
        raise FedtctError(f"{whose}: y must hold whole numbers from 0 to {num_classes - 1}, the labels of its classes")
    return Samples(x, y)


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
