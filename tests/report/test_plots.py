"""Plots of accuracies: what is drawn, and that files are written, equal and readable."""

import re
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest

from fedtct.errors import FedtctError
from fedtct.history import History, Row
from fedtct.report.curves import beneath, read_curves
from fedtct.report.looks import COLOURS, MARKERS, looks
from fedtct.report.plots import write_plots
from fedtct.report.style import FOR_PAPERS

NAMES = [f"accuracy-by-{unit}.{kind}" for unit in ("round", "megabyte") for kind in ("png", "svg")]


def stage(name: str, accuracies: list[float], cost: int = 500_000) -> list[Row]:
    return [
        Row(name, i, test_accuracy=a, train_accuracy=1.0, bytes_up=cost * (i > 0), bytes_down=cost * (i > 0))
        for i, a in enumerate(accuracies)
    ]


def tct(*, lift: float = 0.0) -> History:
    between = [Row("convexify", 1, bytes_up=1_000_000), Row("convexify", 2, bytes_down=1_000_000)]
    return History([*stage("stage1", [0.1, 0.4, 0.5 + lift]), *between, *stage("stage2", [0.1, 0.8, 0.9 + lift])])


def centralized() -> list[Row]:
    return stage("stage1", [0.1, 0.7, 0.95], cost=0)


def svg(folder: Path, unit: str) -> str:
    return (folder / f"accuracy-by-{unit}.svg").read_text()


def test_files_are_written_into_a_new_folder(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "plots"
    paths = write_plots({"FedAvg": stage("stage1", [0.1, 0.5]), "TCT": tct()}, folder, title="digits, classes:1")
    assert paths == [folder / name for name in NAMES]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths if path.suffix == ".png")
    for text in ("digits, classes:1", "test accuracy at the end", "90.0 %  TCT", "stage 2 begins", "rounds"):
        assert text in svg(folder, "round")  # as text, not as outlines
    assert "megabytes sent and received by a silo" in svg(folder, "megabyte")


def test_same_histories_give_the_same_bytes_whatever_the_users_style(tmp_path: Path) -> None:
    histories = {"TCT": [tct(), tct(lift=0.05)], "Centralized": centralized()}
    first = write_plots(histories, tmp_path / "first", kinds=FOR_PAPERS)
    with matplotlib.rc_context({"axes.facecolor": "black", "font.size": 20, "svg.fonttype": "path"}):
        before = dict(matplotlib.rcParams)
        second = write_plots(histories, tmp_path / "second", kinds=FOR_PAPERS)
        assert dict(matplotlib.rcParams) == before
    assert {path.suffix for path in first} == {".png", ".svg", ".pdf"}
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_rounds_and_bytes_add_up_over_stages() -> None:
    (curve,), accuracy = read_curves({"TCT": tct()})
    assert accuracy == "test accuracy"
    assert [point.rounds for point in curve.points] == [0, 1, 2, 5, 6]  # two rounds of convexifying have no accuracy
    assert [point.megabytes for point in curve.points] == pytest.approx([0, 1, 2, 5, 6])
    assert [point.value for point in curve.points] == [0.1, 0.4, 0.5, 0.8, 0.9]  # and W = 0 is not drawn
    assert [[point.rounds for point in part] for part in curve.stages] == [[0, 1, 2], [2, 5, 6]]


def test_rows_without_accuracy_are_skipped_but_count() -> None:
    rows = [Row("stage1", i, test_accuracy=0.1 * i if i % 2 == 0 else None, bytes_up=10**6) for i in range(5)]
    (curve,), _ = read_curves({"FedAvg": rows})
    assert [(point.rounds, point.megabytes) for point in curve.points] == [(0, 1), (2, 3), (4, 5)]


def test_training_accuracy_without_a_test_set() -> None:
    (curve,), accuracy = read_curves({"FedAvg": [Row("stage1", 0, train_accuracy=0.25)]})
    assert accuracy == "training accuracy"
    assert curve.last.value == 0.25


def test_seeds_are_a_mean_and_a_range(tmp_path: Path) -> None:
    histories = {"FedAvg": [stage("stage1", [0.1, 0.4]), stage("stage1", [0.1, 0.6])]}
    (curve,), _ = read_curves(histories)
    assert curve.last[4:] == pytest.approx((0.5, 0.4, 0.6))
    write_plots(histories, tmp_path)
    assert "mean test accuracy at the end" in svg(tmp_path, "round")
    assert "worst to best seed" in svg(tmp_path, "round")


def test_a_seed_that_stopped_early_stays_where_it_is() -> None:
    (curve,), _ = read_curves({"FedAvg": [stage("stage1", [0.1, 0.4]), stage("stage1", [0.1, 0.6, 0.7, 0.8])]})
    assert [point.value for point in curve.points] == pytest.approx([0.1, 0.5, 0.55, 0.6])
    assert [point.rounds for point in curve.points] == [0, 1, 1.5, 2]


def test_what_sends_nothing_is_level_by_megabyte(tmp_path: Path) -> None:
    write_plots({"TCT": tct(), "Centralized": centralized()}, tmp_path)
    assert "95.0 %  Centralized (sends nothing)" in svg(tmp_path, "megabyte")
    assert "sends nothing" not in svg(tmp_path, "round")
    assert len(write_plots({"Centralized": centralized()}, tmp_path / "alone")) == len(NAMES)


def test_many_methods_are_all_in_the_legend_best_first(tmp_path: Path) -> None:
    write_plots({f"method {i}": stage("stage1", [0.1, i / 20]) for i in range(20)}, tmp_path)
    places = [svg(tmp_path, "round").index(f"method {i}<") for i in range(20)]
    assert places == sorted(places, reverse=True)
    pairs = {(COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]) for i in range(72)}
    assert len(pairs) == 72


def test_r2_below_zero_is_seen(tmp_path: Path) -> None:
    rows = [Row("stage1", i, test_r2=r2) for i, r2 in enumerate((-0.5, -0.3, -9.0))]
    for count, lowest in ((2, "−0.5"), (3, "−1.0")):  # far below, it would hide the rest
        write_plots({"FedAvg": rows[:count]}, tmp_path)
        ticks = re.findall(r">(−?\d\.\d)</text>", svg(tmp_path, "round"))
        assert (ticks[0], ticks[-1]) == (lowest, "0.0")


def test_labels_are_plain_text(tmp_path: Path) -> None:
    write_plots({"_a $b_1$ & <c>": stage("stage1", [0.1, 0.5])}, tmp_path)
    assert "_a $b_1$ &amp; &lt;c&gt;" in svg(tmp_path, "round")


@pytest.mark.parametrize("row", [Row("stage1", 0, train_accuracy=0.1), Row("stage2", 1, test_accuracy=1, bytes_up=9)])
def test_a_single_row_is_enough(tmp_path: Path, row: Row) -> None:
    assert all(path.stat().st_size for path in write_plots({"FedAvg": [row]}, tmp_path))


@pytest.mark.parametrize("empty", [[], History(), [[]], [stage("stage1", [0.1]), []], [Row("convexify", 1)]])
def test_empty_histories_are_refused_before_anything_is_written(tmp_path: Path, empty: list[Row]) -> None:
    with pytest.raises(FedtctError, match=r"nothing to plot for 'TCT'.*no test accuracy"):
        write_plots({"FedAvg": stage("stage1", [0.1, 0.5]), "TCT": empty}, tmp_path / "plots")
    with pytest.raises(FedtctError, match="no histories"):
        write_plots({}, tmp_path / "plots")
    assert not (tmp_path / "plots").exists()


def test_pyplot_is_never_loaded() -> None:
    code = "import sys, fedtct.report.plots; print(*sorted({'matplotlib', 'matplotlib.pyplot'} & {*sys.modules}))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "matplotlib\n"


def test_a_curve_that_others_lie_on_is_drawn_wider_and_ordinary_ones_are_not(tmp_path: Path) -> None:
    def widths(**accuracies: list[float]) -> list[float]:
        curves, _ = read_curves({label: stage("stage1", values) for label, values in accuracies.items()})
        return beneath(curves, lambda point: point.rounds, 4)

    assert widths(a=[0.1, 0.5, 0.9], b=[0.1, 0.5, 0.9], c=[0.1, 0.5, 0.9]) == [6, 3, 0]
    assert widths(a=[0.2, 0.5, 0.9], b=[0.1, 0.6, 0.8]) == [0, 0]
    assert widths(a=[0.9, 0.9, 0.9], b=[0.9, 0.9]) == [4, 0]  # as far as it goes
    assert widths(**{f"m{k}": [0.9, 0.9] for k in range(9)})[0] == 4 * 1.5  # no wider, however many they are
    curves, _ = read_curves({"FedAvg": stage("stage1", [0.1, 0.4, 0.5]), "TCT": tct()})
    assert beneath(curves, lambda point: point.rounds, 4) == [4, 0]  # on both sides of the dashes
    write_plots({"a": stage("stage1", [0.9, 0.9]), "b": stage("stage1", [0.9, 0.9])}, tmp_path)
    assert "stroke-width: 4.8" in svg(tmp_path, "round")


def test_a_well_known_method_looks_the_same_everywhere() -> None:
    assert looks(["TCT", "FedAvg"]) == {"TCT": 2, "FedAvg": 0}
    assert looks(["Centralized", "FedAvg (lr 0.1)", "FedAvg (lr 1)", "mine", "TCT [a and 2 more]"]) == {
        "Centralized": 3,
        "FedAvg (lr 0.1)": 0,  # the first of its name
        "FedAvg (lr 1)": 1,  # what no other has
        "mine": 4,
        "TCT [a and 2 more]": 2,
    }


def test_colours_are_seen_on_the_page_in_light_and_dark() -> None:
    def light(colour: str) -> float:
        shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
        return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True)) + 0.05

    for colour in COLOURS:
        assert light("#ffffff") / light(colour) > 3  # WCAG's least for what is not text
        assert colour == "#000000" or light(colour) / light("#14171a") > 3  # which is light in dark
