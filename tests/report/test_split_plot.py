"""The picture of a split: files, labels, sizes and bad input."""

from pathlib import Path

import numpy as np
import pytest

from fedtct.errors import FedtctError
from fedtct.report.split_plot import _every, _round_numbers, write_split_plot


def test_files_are_written_and_equal(tmp_path: Path) -> None:
    counts = [[3, 0, 40], [0, 120, 1]]
    first = write_split_plot(counts, tmp_path / "first", ["ant", "bee", "cat"])
    second = write_split_plot(np.array(counts), tmp_path / "second", ("ant", "bee", "cat"))
    assert [path.name for path in first] == ["split.png", "split.svg"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert all(f">{text}<" in first[1].read_text() for text in ("ant", "bee", "cat", "silo", "samples", "100", "25"))


@pytest.mark.parametrize(("silos", "classes"), [(1, 1), (100, 10), (10, 100), (300, 2)])
def test_large_and_small_splits_stay_of_readable_size(tmp_path: Path, silos: int, classes: int) -> None:
    path = write_split_plot(np.full((silos, classes), 5), tmp_path, [f"class-{i}" for i in range(classes)])[0]
    width, height = (int.from_bytes(path.read_bytes()[at : at + 4], "big") for at in (16, 20))
    assert 100 < width < 1800
    assert 50 < height < 1800


def test_labels_are_thinned_when_crowded() -> None:
    assert _every(10, cell=0.42, room=0.25) == 1
    assert _every(100, cell=0.09, room=0.25) == 5
    assert _every(10_000, cell=0.001, room=0.25) == 10_000


@pytest.mark.parametrize(("largest", "shown"), [(1, [1]), (9, [5, 1]), (143, [100, 25, 5]), (6000, [5000, 1250, 250])])
def test_the_scale_shows_round_numbers(largest: int, shown: list[int]) -> None:
    assert _round_numbers(largest) == shown


@pytest.mark.parametrize("counts", [[], [1, 2], [[1, 2, 3]], [[0, 0]], np.zeros((0, 2))])
def test_bad_counts_are_refused(tmp_path: Path, counts: object) -> None:
    with pytest.raises(FedtctError, match=r"counts must be silos × 2 classes|nothing to plot"):
        write_split_plot(counts, tmp_path / "plots", ["a", "b"])
    assert not (tmp_path / "plots").exists()
