"""The page on performance says what the results say, and nothing else."""

import pytest
from benchmarks.rows import RESULTS, Record, Row

from benchmarks import report


def test_the_page_is_what_the_results_make_it():
    assert report.PAGE.read_text(encoding="utf-8") == report.page(), "run: python -m benchmarks.report"


@pytest.mark.parametrize("file", sorted(RESULTS.glob("bench-*.json")), ids=lambda path: path.name)
def test_every_file_is_shown_and_can_be_read(file):
    assert file.name in report.FILES
    record = Record.read(file)
    assert record.rows
    assert record.commit
    assert record.hardware


@pytest.mark.parametrize(
    ("row", "ratio", "met"),
    [
        (Row("stage 1", "a", "images/s", ours=300, plain=100, ratio_target=2), 3, True),
        (Row("stage 2", "a", "s", ours=300, plain=100, ratio_target=2), 1 / 3, False),
        (Row("start-up", "a", "s", ours=2, ours_target=3), None, True),
        (Row("stage 1", "a", "images/s", ours=2, ours_target=3), None, False),
        (Row("side by side", "a", "MiB", ours=2, plain=3, ratio_target=1), 1.5, True),
        (Row("stage 1", "a", "images/s", ours=2), None, None),
    ],
)
def test_ratios_and_targets(row, ratio, met):
    assert row.ratio == (None if ratio is None else pytest.approx(ratio))
    assert row.met is met


def test_a_record_is_read_as_it_was_written(tmp_path):
    record = Record("make bench", "a machine", [Row("stage 1", "a", "images/s", ours=1.5, detail={"turns": [1.0]})])
    record.write(tmp_path / "bench.json")
    assert Record.read(tmp_path / "bench.json") == record
