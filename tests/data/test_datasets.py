"""Loading datasets: the right samples from each layout, and clear words for files that are not right."""

import gzip
import hashlib
import os
import struct
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from fedtct.data import Dataset, load_dataset, resolve_data_dir, verify
from fedtct.data.class_names import CIFAR100_NAMES
from fedtct.data.dataset_files import DataFile
from fedtct.data.layouts import (
    CIFAR10_BINARY,
    CIFAR10_PYTHON,
    CIFAR100_BINARY,
    CIFAR100_PYTHON,
    FASHION_MNIST,
    LAYOUTS,
    choose_layout,
)
from fedtct.errors import FedtctError


def write(root: Path, file: DataFile, data: bytes) -> Path:
    path = root / file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def idx(values: np.ndarray) -> bytes:
    return struct.pack(f">4B{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.tobytes()


@pytest.fixture
def tiny_fashion(tmp_path, monkeypatch):
    """A Fashion-MNIST of a dozen pictures: its folder, and the layout that says it is the original."""
    rng = np.random.default_rng(0)
    contents = []
    for count in (12, 5):
        contents.append(idx(rng.integers(0, 256, (count, 28, 28), np.uint8)))
        contents.append(idx(np.arange(count, dtype=np.uint8) % 10))
    files = tuple(
        DataFile(file.path, len(data), hashlib.md5(data).hexdigest())
        for file, data in zip(FASHION_MNIST.files, contents, strict=True)
    )
    layout = FASHION_MNIST._replace(train=files[:2], test=files[2:])
    monkeypatch.setitem(LAYOUTS, "fashion-mnist", (layout,))
    for file, data in zip(files, contents, strict=True):
        write(tmp_path, file, gzip.compress(data))
    return tmp_path, layout


def tiny_cifar10(root: Path, monkeypatch) -> list[np.ndarray]:
    """Six batches of four pictures in the binary layout, of which neither size nor digest is known."""
    layout = CIFAR10_BINARY._replace(
        train=tuple(file._replace(size=None, md5=None) for file in CIFAR10_BINARY.train),
        test=tuple(file._replace(size=None, md5=None) for file in CIFAR10_BINARY.test),
    )
    monkeypatch.setitem(LAYOUTS, "cifar10", (layout, CIFAR10_PYTHON))
    rng = np.random.default_rng(1)
    batches = [rng.integers(0, 10, (4, 3073), np.uint8) for _ in layout.files]
    for file, rows in zip(layout.files, batches, strict=True):
        write(root, file, rows.tobytes())
    return batches


def test_digits():
    dataset = load_dataset("digits")
    assert isinstance(dataset, Dataset)
    assert (dataset.num_classes, dataset.class_names) == (10, tuple("0123456789"))
    assert dataset.train.x.shape == (1437, 1, 8, 8)
    assert dataset.test.x.shape == (360, 1, 8, 8)
    for x, y in (dataset.train, dataset.test):
        assert x.dtype == torch.uint8
        assert y.dtype == torch.int64
        assert (x.min(), x.max()) == (0, 255)
        assert (y.bincount() / len(y) - 0.1).abs().max() < 0.005
    assert set(dataset.train.x.unique().tolist()) <= {round(v * 255 / 16) for v in range(17)}


def test_digits_are_those_of_scikit_learn():
    images, labels = (load_digits()[key] for key in ("images", "target"))
    divided = map(np.sort, train_test_split(np.arange(len(labels)), test_size=0.2, stratify=labels, random_state=0))
    dataset = load_dataset("digits")
    for rows, (x, y) in zip(divided, (dataset.train, dataset.test), strict=True):
        assert np.array_equal(x[:, 0].numpy(), np.rint(images[rows] * (255 / 16)))
        assert np.array_equal(y.numpy(), labels[rows])


def test_the_division_of_digits_never_changes():
    test = load_dataset("digits").test
    assert (
        hashlib.md5(test.x.numpy().tobytes() + test.y.numpy().tobytes()).hexdigest()
        == "d17a95cf0763b103f92c8f78f275c874"
    )


def test_fashion_mnist_packed_and_unpacked(tiny_fashion):
    root, layout = tiny_fashion
    packed = load_dataset("fashion-mnist", root)
    assert packed.train.x.shape == (12, 1, 28, 28)
    assert packed.test.x.shape == (5, 1, 28, 28)
    assert packed.train.y.tolist() == [*range(10), 0, 1]
    assert packed.class_names[0] == "T-shirt/top"
    assert [check.status for check in verify("fashion-mnist", root)] == ["ok"] * 4

    path = root / layout.train[0].path
    path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
    path.unlink()
    assert torch.equal(load_dataset("fashion-mnist", root).train.x, packed.train.x)
    assert [check.status for check in verify("fashion-mnist", root)] == ["ok"] * 4


def test_missing_file_is_named_with_what_to_do(tiny_fashion):
    root, layout = tiny_fashion
    path = root / layout.test[1].path
    path.unlink()
    with pytest.raises(FedtctError, match=r"t10k-labels.* `fedtct data fetch fashion-mnist`.*FEDTCT_DATA"):
        load_dataset("fashion-mnist", root)
    assert verify("fashion-mnist", root)[3][:2] == (path, "missing")


@pytest.mark.parametrize("name", ["fashion-mnist", "cifar10", "cifar100"])
def test_missing_folder(name, tmp_path):
    with pytest.raises(FedtctError, match=f"is missing: run `fedtct data fetch {name}`"):
        load_dataset(name, tmp_path / "nowhere")
    assert {check.status for check in verify(name, tmp_path / "nowhere")} == {"missing"}


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: b"no gzip", lambda data: b""])
def test_damaged_gzip_file(tiny_fashion, damage):
    root, layout = tiny_fashion
    path = root / layout.train[0].path
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(FedtctError, match=r"train-images.*wrong size.*delete it and fetch again"):
        load_dataset("fashion-mnist", root)
    assert verify("fashion-mnist", root)[0].status == "wrong size"


def test_another_digest_is_a_warning(tiny_fashion):
    root, layout = tiny_fashion
    path = root / layout.train[0].path
    data = bytearray(gzip.decompress(path.read_bytes()))
    data[-1] ^= 1
    path.write_bytes(gzip.compress(data))
    with pytest.warns(UserWarning, match="train-images.*is not the original file"):
        load_dataset("fashion-mnist", root)
    assert verify("fashion-mnist", root)[0].status == "not the original"


def test_an_idx_file_with_another_header(tiny_fashion):
    root, layout = tiny_fashion
    path = root / layout.train[1].path
    path.write_bytes(gzip.compress(b"\0" * layout.train[1].size))
    with (
        pytest.warns(UserWarning, match="not the original"),
        pytest.raises(FedtctError, match="not the expected idx file"),
    ):
        load_dataset("fashion-mnist", root)


def test_cifar10_binary(tmp_path, monkeypatch):
    batches = tiny_cifar10(tmp_path, monkeypatch)
    dataset = load_dataset("cifar10", tmp_path)
    assert dataset.train.x.shape == (20, 3, 32, 32)
    assert np.array_equal(dataset.train.y.numpy(), np.concatenate(batches[:5])[:, 0])
    assert np.array_equal(dataset.test.x.numpy().reshape(4, -1), batches[5][:, 1:])
    assert dataset.class_names[3] == "cat"


def test_labels_out_of_range_are_an_error(tmp_path, monkeypatch):
    tiny_cifar10(tmp_path, monkeypatch)
    write(tmp_path, CIFAR10_BINARY.test[0], b"\x0b" * 3073)
    with pytest.raises(FedtctError, match="labels from 11 to 11, but cifar10 has 10 classes"):
        load_dataset("cifar10", tmp_path)


def test_truncated_binary_file_says_both_sizes(tmp_path):
    for file in CIFAR100_BINARY.files:
        write(tmp_path, file, b"\0" * 1000)
    with pytest.raises(FedtctError, match=r"train.bin.*expected 153,700,000 bytes, found 1,000\).*delete it"):
        load_dataset("cifar100", tmp_path)
    assert [check.status for check in verify("cifar100", tmp_path)] == ["wrong size"] * 2


def test_cifar100_of_the_full_size_uses_fine_labels_and_the_names_beside(tmp_path):
    counts = (50_000, 10_000)
    for file, count in zip(CIFAR100_BINARY.files, counts, strict=True):
        rows = np.zeros((count, 3074), np.uint8)
        rows[:, 0], rows[:, 1] = 200, np.arange(count) % 100  # coarse labels are not looked at
        write(tmp_path, file, rows.tobytes())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = load_dataset("cifar100", tmp_path)
    assert (len(dataset.train.y), len(dataset.test.y)) == counts
    assert dataset.test.y[:101].tolist() == [*range(100), 0]
    assert dataset.class_names == CIFAR100_NAMES
    names = tmp_path / "cifar-100-binary" / "fine_label_names.txt"
    names.write_text("\n".join(f"class_{i}" for i in range(100)) + "\n")
    assert load_dataset("cifar100", tmp_path).class_names[99] == "class_99"
    for file in CIFAR100_BINARY.files:  # 180 MB that pytest would keep for days
        (tmp_path / file.path).unlink()


def test_class_names_of_cifar100_are_the_alphabetical_hundred():
    assert len(set(CIFAR100_NAMES)) == 100
    assert list(CIFAR100_NAMES) == sorted(CIFAR100_NAMES)


def test_layouts_complete_before_preferred_before_partial(tmp_path):
    assert choose_layout("cifar100", tmp_path) is CIFAR100_BINARY
    write(tmp_path, CIFAR100_PYTHON.train[0], b"x")
    assert choose_layout("cifar100", tmp_path) is CIFAR100_PYTHON
    write(tmp_path, CIFAR100_BINARY.train[0], b"x")
    assert choose_layout("cifar100", tmp_path) is CIFAR100_BINARY
    write(tmp_path, CIFAR100_PYTHON.test[0], b"x")
    assert choose_layout("cifar100", tmp_path) is CIFAR100_PYTHON
    write(tmp_path, CIFAR100_BINARY.test[0], b"x")
    assert choose_layout("cifar100", tmp_path) is CIFAR100_BINARY


def test_python_layout_is_read_and_checked(tmp_path):
    for file in CIFAR10_PYTHON.files:
        write(tmp_path, file, b"not a batch")
    with (
        pytest.warns(UserWarning, match="cifar-10-batches-py.*not the original"),
        pytest.raises(FedtctError, match=r"data_batch_1 is (cut off or damaged|not a CIFAR batch)"),
    ):
        load_dataset("cifar10", tmp_path)


def test_unknown_dataset():
    for function, own in ((load_dataset, ", module:function"), (verify, "")):
        with pytest.raises(FedtctError, match=rf"'mnist'.*digits, fashion-mnist, cifar10, cifar100{own}\Z"):
            function("mnist")


def test_data_dir_is_the_argument_then_the_environment_then_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDTCT_DATA", str(tmp_path))
    assert resolve_data_dir("there") == Path("there")
    assert resolve_data_dir() == tmp_path
    monkeypatch.setenv("FEDTCT_DATA", "")
    assert resolve_data_dir() == Path.home() / ".cache" / "fedtct"


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("FEDTCT_DATA"), reason="set FEDTCT_DATA to a folder of datasets")
@pytest.mark.parametrize(
    ("name", "train", "test"),
    [
        ("fashion-mnist", (60_000, 1, 28, 28), (10_000, 1, 28, 28)),
        ("cifar10", (50_000, 3, 32, 32), (10_000, 3, 32, 32)),
        ("cifar100", (50_000, 3, 32, 32), (10_000, 3, 32, 32)),
    ],
)
def test_the_real_datasets(name, train, test):
    if any(check.status == "missing" for check in verify(name)):
        pytest.skip(f"{name} is not in FEDTCT_DATA")
    dataset = load_dataset(name)
    assert dataset.train.x.shape == train
    assert dataset.test.x.shape == test
    for samples in (dataset.train, dataset.test):
        counts = samples.y.bincount()
        assert len(counts) == dataset.num_classes == len(dataset.class_names)
        assert torch.all(counts == counts[0])
    assert 60 < dataset.train.x.float().mean() < 130
