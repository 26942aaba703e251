"""Decoding CIFAR files: the binary layout, and the "python" layout without ever unpickling it."""

import pickletools
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedtct.data.dataset_files import Content
from fedtct.errors import FedtctError

PIXELS = 3 * 32 * 32  # bytes of one picture: the red plane, the green, the blue

Pictures: TypeAlias = NDArray[np.uint8]
Labels: TypeAlias = NDArray[np.int64]

_STRINGS = {"BINSTRING", "SHORT_BINSTRING"}
_INTEGERS = {"BININT", "BININT1", "BININT2"}


def decode_binary(contents: Sequence[Content], label_bytes: int) -> tuple[Pictures, Labels]:
    """Pictures and labels of files made of rows: `label_bytes` labels (the last is ours), then the pixels."""
    rows = np.concatenate([np.frombuffer(c.data, np.uint8).reshape(-1, label_bytes + PIXELS) for c in contents])
    pictures = np.ascontiguousarray(rows[:, label_bytes:]).reshape(-1, 3, 32, 32)
    return pictures, rows[:, label_bytes - 1].astype(np.int64)


def decode_python(contents: Sequence[Content], key: str) -> tuple[Pictures, Labels]:
    """Pictures and labels of Python-2 pickles; `key` is the dictionary key of the list of labels."""
    batches = [_read_batch(content, key) for content in contents]
    return np.concatenate([x for x, _ in batches]), np.concatenate([y for _, y in batches])


def _read_batch(content: Content, key: str) -> tuple[Pictures, Labels]:
    try:
        pixels, labels, columns_first = _walk(content.data, key)
    except ValueError as error:  # what pickletools raises for anything malformed
        raise FedtctError(f"{content.path} is cut off or damaged ({error}): delete it and fetch again") from error
    count = len(labels)
    if count == 0 or len(pixels) != count * PIXELS:
        raise FedtctError(
            f"{content.path} is not a CIFAR batch: it has {count:,} {key!r} and {len(pixels):,} bytes "
            f"of pixels, not {PIXELS:,} for each; delete it and fetch again"
        )
    flat = np.frombuffer(pixels, np.uint8)
    rows = flat.reshape(PIXELS, count).T if columns_first else flat.reshape(count, PIXELS)
    return rows.reshape(count, 3, 32, 32), np.array(labels, np.int64)


def _walk(data: bytes, key: str) -> tuple[bytes, list[int], bool]:
    """The longest string, the integers after the string `key`, and whether pixels are in Fortran order.

    Unpickling runs whatever code a file names, so the opcodes are only listed. The pixels are a plain
    string in the state of a numpy array, right after the array's "Fortran order" flag. The labels are
    the integers between their key and the next string, which is another key of the dictionary;
    memo indices are no integers here, because they are arguments of other opcodes (BINPUT).
    """
    pixels, columns_first = "", False
    labels: list[int] = []
    in_labels = flag = False
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name in _STRINGS and isinstance(argument, str):
            in_labels = argument == key
            if len(argument) > len(pixels):
                pixels, columns_first = argument, flag
        elif in_labels and opcode.name in _INTEGERS and isinstance(argument, int):
            labels.append(argument)
        flag = opcode.name == "NEWTRUE"
    return pixels.encode("latin-1"), labels, columns_first
