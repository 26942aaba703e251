"""CIFAR files: the binary rows, and pickles written opcode by opcode as Python 2's cPickle did."""

import io
import pickletools
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtct.data.cifar_files import PIXELS, decode_binary, decode_python
from fedtct.data.dataset_files import Content
from fedtct.errors import FedtctError

PATH = Path("somewhere/data_batch_1")


class CPickle:
    """Writes what Python 2's cPickle wrote with protocol 2 for the dictionary of a CIFAR batch."""

    def __init__(self) -> None:
        self.memo = 0

    def put(self) -> bytes:
        """Remember the object just written; the index takes 1 byte or 4."""
        self.memo += 1
        return b"q" + bytes([self.memo]) if self.memo < 256 else b"r" + struct.pack("<I", self.memo)

    def string(self, text: bytes) -> bytes:
        head = b"U" + bytes([len(text)]) if len(text) < 256 else b"T" + struct.pack("<i", len(text))
        return head + text + self.put()

    def sequence(self, items: list[bytes]) -> bytes:
        """cPickle appends in batches of 1000, and a last single item with APPEND."""
        written = b"]" + self.put()
        for start in range(0, len(items), 1000):
            batch = items[start : start + 1000]
            written += b"(" + b"".join(batch) + b"e" if len(batch) > 1 else batch[0] + b"a"
        return written

    def array(self, values: np.ndarray, order: str = "C") -> bytes:
        dtype = b"cnumpy\ndtype\n" + self.put() + self.string(b"u1") + b"K\x00K\x01\x87R"
        dtype += b"(K\x03" + self.string(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        shape = b"M" + struct.pack("<H", len(values)) + b"M" + struct.pack("<H", PIXELS) + b"\x86"
        return (
            b"cnumpy.core.multiarray\n_reconstruct\n" + self.put() + b"cnumpy\nndarray\n" + self.put()
            + b"K\x00\x85" + self.string(b"b") + b"\x87R(K\x01" + shape + dtype
            + (b"\x88" if order == "F" else b"\x89") + self.string(values.tobytes(order)) + b"tb"
        )  # fmt: skip

    def integers(self, values: list[int]) -> bytes:
        return self.sequence([b"K" + bytes([value]) for value in values])


def batch(x: np.ndarray, labels: dict[str, list[int]], reverse: bool = False, order: str = "C") -> bytes:
    writer = CPickle()
    items = {
        "batch_label": lambda: writer.string(b"training batch 1 of 5"),
        **{key: (lambda values=values: writer.integers(values)) for key, values in labels.items()},
        "data": lambda: writer.array(x, order),
        "filenames": lambda: writer.sequence([writer.string(b"cat_s_%06d.png" % i) for i in range(len(x))]),
    }
    keys = sorted(items, reverse=reverse)
    written = b"\x80\x02}" + writer.put() + b"("
    for key in keys:
        written += writer.string(key.encode()) + items[key]()
    return written + b"u."


def random_batch(count: int, seed: int = 0) -> tuple[np.ndarray, list[int]]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, PIXELS), np.uint8), rng.integers(0, 10, count).tolist()


def test_the_writer_writes_pickles():
    """The disassembler goes through the motions of the stack and the memo, and finds nothing amiss."""
    x, y = random_batch(3)
    listing = io.StringIO()
    pickletools.dis(batch(x, {"labels": y}), listing)
    assert "highest protocol among opcodes = 2" in listing.getvalue()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("count", [1, 2, 1001, 2500])
def test_python_batch_in_both_key_orders(count, reverse):
    x, y = random_batch(count)
    pictures, labels = decode_python([Content(PATH, batch(x, {"labels": y}, reverse))], "labels")
    assert np.array_equal(pictures, x.reshape(-1, 3, 32, 32))
    assert pictures.flags.writeable
    assert labels.dtype == np.int64
    assert labels.tolist() == y


@pytest.mark.parametrize("reverse", [False, True])
def test_python_fine_labels_are_not_taken_for_coarse_ones(reverse):
    x, fine = random_batch(20)
    data = batch(x, {"coarse_labels": [19] * 20, "fine_labels": fine}, reverse)
    assert decode_python([Content(PATH, data)], "fine_labels")[1].tolist() == fine


def test_python_batches_are_joined_in_order():
    batches = [random_batch(5, seed) for seed in (1, 2)]
    contents = [Content(PATH, batch(x, {"labels": y})) for x, y in batches]
    pictures, labels = decode_python(contents, "labels")
    assert np.array_equal(pictures.reshape(10, -1), np.concatenate([x for x, _ in batches]))
    assert labels.tolist() == batches[0][1] + batches[1][1]


def test_python_batch_in_fortran_order():
    x, y = random_batch(7)
    data = batch(x, {"labels": y}, order="F")
    assert np.array_equal(decode_python([Content(PATH, data)], "labels")[0].reshape(7, -1), x)


def test_python_batch_that_is_cut_off():
    x, y = random_batch(3)
    data = batch(x, {"labels": y})
    with pytest.raises(FedtctError, match="data_batch_1 is cut off or damaged"):
        decode_python([Content(PATH, data[:-5000])], "labels")


def test_python_batch_without_labels_or_with_too_few():
    x, y = random_batch(3)
    for labels in ({"names": y}, {"labels": y[:2]}):
        with pytest.raises(FedtctError, match="not a CIFAR batch"):
            decode_python([Content(PATH, batch(x, labels))], "labels")


def test_nothing_in_a_pickle_is_run(tmp_path):
    trap = tmp_path / "trap"
    attack = b"\x80\x02cos\nmkdir\n(U" + bytes([len(str(trap))]) + str(trap).encode() + b"tR."
    with pytest.raises(FedtctError, match="not a CIFAR batch"):
        decode_python([Content(PATH, attack)], "labels")
    assert not trap.exists()
    pickletools.dis(attack, io.StringIO())  # the attack is well-formed


@given(st.binary(max_size=80))
def test_any_bytes_give_a_clear_error(data):
    for prefix in (b"", b"\x80\x02}q\x01("):
        with pytest.raises(FedtctError, match="data_batch_1"):
            decode_python([Content(PATH, prefix + data)], "labels")


@pytest.mark.parametrize("label_bytes", [1, 2])
def test_binary_rows(label_bytes):
    rows = np.random.default_rng(0).integers(0, 256, (6, label_bytes + PIXELS), np.uint8)
    contents = [Content(PATH, rows[:4].tobytes()), Content(PATH, rows[4:].tobytes())]
    pictures, labels = decode_binary(contents, label_bytes)
    assert np.array_equal(pictures, rows[:, label_bytes:].reshape(6, 3, 32, 32))
    assert labels.tolist() == rows[:, label_bytes - 1].tolist()
    assert labels.dtype == np.int64
