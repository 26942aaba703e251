"""The table of published datasets: which files each is made of, and how their content is decoded."""

import struct
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from fedtct.data.cifar_files import PIXELS, Labels, Pictures, decode_binary, decode_python
from fedtct.data.dataset_files import Content, DataFile
from fedtct.errors import FedtctError

Decode: TypeAlias = Callable[[Sequence[Content]], tuple[Pictures, Labels]]


class Layout(NamedTuple):
    """One form in which a dataset is published; `decode` is given the contents of `train` or of `test`."""

    train: tuple[DataFile, ...]
    test: tuple[DataFile, ...]
    decode: Decode

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All files, training first."""
        return self.train + self.test


def decode_idx(contents: Sequence[Content]) -> tuple[Pictures, Labels]:
    """Pictures and labels of a pair of idx files of 28 x 28 pictures."""
    images, labels = contents
    count = len(labels.data) - 8
    for content, header in (
        (images, struct.pack(">4B3I", 0, 0, 8, 3, count, 28, 28)),
        (labels, struct.pack(">4BI", 0, 0, 8, 1, count)),
    ):
        if not content.data.startswith(header):
            raise FedtctError(f"{content.path} is not the expected idx file: delete it and fetch again")
    pictures = np.frombuffer(images.data, np.uint8, offset=16).reshape(count, 1, 28, 28).copy()
    return pictures, np.frombuffer(labels.data, np.uint8, offset=8).astype(np.int64)


def _fashion_file(name: str, size: int, md5: str) -> DataFile:
    return DataFile(f"FashionMNIST/raw/{name}-ubyte.gz", size, md5)


FASHION_MNIST = Layout(
    train=(
        _fashion_file("train-images-idx3", 47_040_016, "f4a8712d7a061bf5bd6d2ca38dc4d50a"),
        _fashion_file("train-labels-idx1", 60_008, "9018921c3c673c538a1fc5bad174d6f9"),
    ),
    test=(
        _fashion_file("t10k-images-idx3", 7_840_016, "8181f5470baa50b63fa0f6fddb340f0a"),
        _fashion_file("t10k-labels-idx1", 10_008, "15d484375f8d13e6eb1aabb0c3f46965"),
    ),
    decode=decode_idx,
)


def _cifar10_binary(name: str, md5: str) -> DataFile:
    return DataFile(f"cifar-10-batches-bin/{name}.bin", 10_000 * (1 + PIXELS), md5)


CIFAR10_BINARY = Layout(
    train=(
        _cifar10_binary("data_batch_1", "5dd7e06a14cb22eb9f671a540d1b7c25"),
        _cifar10_binary("data_batch_2", "5ea93a67294ea407fff1d09f752e9692"),
        _cifar10_binary("data_batch_3", "942cd6a4bcdd0dd3c604fbe906cb4421"),
        _cifar10_binary("data_batch_4", "ae636b3ba5c66a11e91e8cb52e771fcb"),
        _cifar10_binary("data_batch_5", "53f37980c15c3d472c316c40844f3f0d"),
    ),
    test=(_cifar10_binary("test_batch", "803d5f7f4d78ea53de84dbe85f74fb6d"),),
    decode=partial(decode_binary, label_bytes=1),
)


def _cifar10_python(name: str, md5: str) -> DataFile:
    return DataFile(f"cifar-10-batches-py/{name}", md5=md5)


CIFAR10_PYTHON = Layout(
    train=(
        _cifar10_python("data_batch_1", "c99cafc152244af753f735de768cd75f"),
        _cifar10_python("data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
        _cifar10_python("data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
        _cifar10_python("data_batch_4", "634d18415352ddfa80567beed471001a"),
        _cifar10_python("data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
    ),
    test=(_cifar10_python("test_batch", "40351d587109b95175f43aff81a1287e"),),
    decode=partial(decode_python, key="labels"),
)

CIFAR100_BINARY = Layout(
    train=(DataFile("cifar-100-binary/train.bin", 50_000 * (2 + PIXELS)),),
    test=(DataFile("cifar-100-binary/test.bin", 10_000 * (2 + PIXELS)),),
    decode=partial(decode_binary, label_bytes=2),  # coarse, then fine: the fine label is ours
)

CIFAR100_PYTHON = Layout(
    train=(DataFile("cifar-100-python/train", md5="16019d7e3df5f24257cddd939b257f8d"),),
    test=(DataFile("cifar-100-python/test", md5="f0ef6b0ae62326f3e7ffdfab6717acfc"),),
    decode=partial(decode_python, key="fine_labels"),
)

LAYOUTS: dict[str, tuple[Layout, ...]] = {  # the preferred one first
    "fashion-mnist": (FASHION_MNIST,),
    "cifar10": (CIFAR10_BINARY, CIFAR10_PYTHON),
    "cifar100": (CIFAR100_BINARY, CIFAR100_PYTHON),
}


def choose_layout(name: str, root: Path) -> Layout:
    """The first layout that is all there, else the first that is partly there, else the preferred one."""
    layouts = LAYOUTS[name]
    present = [[file.locate(root).is_file() for file in layout.files] for layout in layouts]
    for enough in (all, any):
        for layout, found in zip(layouts, present, strict=True):
            if enough(found):
                return layout
    return layouts[0]
