"""Methods that are equally good, and classes so common that accuracy says little: the page says so."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import pytest

from fedtct.report.page import classes, headline, results
from fedtct.report.page.blocks import ACCURACY, R2, Chart, Rating, Table
from fedtct.report.page.problems import arrange
from fedtct.runs.common_class import CommonClass
from fedtct.runs.folder import RunFolder
from fedtct.runs.saved import Saved, write_card
from fedtct.runs.tables import Line

pytestmark = pytest.mark.xdist_group("report")

RunWith = Callable[..., RunFolder]
FEDAVG, TCT, CENTRALIZED = (f"{method}-classes4-seed0" for method in ("fedavg", "tct", "centralized"))
DEFECTS = [[1, 3], [0, 196]]  # a quarter of 2 % is found


def with_confusion(run: RunFolder, confusion: list[list[int]]) -> RunFolder:
    """The run as if its model had two classes, and took them for each other like this."""
    table = [[*row, 0] if len(row) == 2 else row for row in confusion]  # all have an answer, if nothing else is said
    (run.path / "findings" / "classes.json").write_text(json.dumps({"confusion": table, "tested": True}))
    file = run.path / "findings" / "split.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"class_names": ["defect", "ok"]}))
    return run


@pytest.mark.parametrize(
    ("rating", "values", "told"),
    [
        (ACCURACY, [0.98, 0.98, 0.98], "A, B and C all reach 98.0 %: by this, the federated methods here are equally"),
        (ACCURACY, [0.9803, 0.98, 0.9], "A and B both reach 98.0 %, the best of the federated methods here."),
        (ACCURACY, [0.98, 0.96, 0.96], "A reaches 98.0 %, the best of the federated methods here. It took "),
        (
            ACCURACY,
            [0.98, 0.97, 0.9],  # 360 samples: twice the standard error is 1.5 points
            "A reaches 98.0 %, the best of the federated methods here; its lead over B may be chance. It took ",
        ),
        (R2, [0.5, 0.5, 0.1], "A and B both reach an R² of 0.500, the best of the federated methods here."),
    ],
)
def test_methods_that_tie_are_named_together(rating: Rating, values: list[float], told: str, compared: Path) -> None:
    (problem,) = arrange([RunFolder.read(compared / FEDAVG)])
    method, line = problem.methods[0], Line.of(problem.methods[0].runs)
    rated = [
        (replace(method, label=label), replace(line, rating=value)) for label, value in zip("ABC", values, strict=True)
    ]
    said = headline._headline(rated, None, rating)
    assert said.startswith(told)
    assert ("It took" in said) == (len(set(map(rating.text, values[:2]))) == 2)  # whose, if there are several?
    beside = headline._headline(rated, values[0] - 0.01, rating)
    assert "chance" not in beside.partition(" in one place")[0]  # or "that" would be what may be chance


@pytest.mark.parametrize(
    ("others", "close"),
    [
        ({0: 0.90, 1: 0.50, 2: 0.73}, True),  # it is behind by 8, 1 and -3 points
        ({0: 0.90, 1: 0.50, 2: 0.67}, True),  # by 8, 1 and 3 points: 4 ± 2.1, and t is 1.9 of the 4.3 that it takes
        ({0: 0.93, 1: 0.46, 2: 0.65}, False),  # by 5 points with each seed, and seeds are far apart
        ({3: 0.93, 4: 0.46, 5: 0.65}, True),  # other seeds have other deals
    ],
    ids=["signs vary", "differences vary", "differences are alike", "other seeds"],
)
def test_methods_with_the_same_seeds_are_compared_seed_by_seed(
    others: dict[int, float], close: bool, compared: Path
) -> None:
    (problem,) = arrange(
        [RunFolder.read(compared / FEDAVG), RunFolder.read(compared / FEDAVG.replace("seed0", "seed1"))]
    )
    method, usual = replace(problem.methods[0], runs=[]), Line.of(problem.methods[0].runs)

    def line(by_seed: dict[int, float]) -> Line:
        return replace(usual, rating=fmean(by_seed.values()), spread=stdev(by_seed.values()), by_seed=by_seed)

    first = line({0: 0.98, 1: 0.51, 2: 0.70})
    assert headline._may_be_chance(line(others), (method, first)) == close


@pytest.mark.parametrize(
    ("seeds", "same"),
    [((2, 2), True), ((3, 3), True), ((10, 10), True), ((2, 2), False), ((1, 3), False), ((3, 8), False)],
    ids=str,
)
def test_equally_good_methods_are_told_apart_in_one_of_twenty_cases(seeds: tuple[int, int], same: bool) -> None:
    draws, apart = random.Random(0), 0
    for _ in range(4000):
        one, two = ([draws.gauss(0.9, 0.05) for _ in range(count)] for count in seeds)
        ratings = dict(enumerate(one)), dict(enumerate(two, 0 if same else len(one)))
        apart += abs(fmean(one) - fmean(two)) > headline._by_seeds(*ratings)
    assert apart / 4000 == pytest.approx(0.05, abs=0.012)


def test_where_a_class_is_very_common_it_says_what_always_naming_it_would_have(
    compared: Path, run_with: RunWith
) -> None:
    runs = [with_confusion(run_with(compared / name, name), DEFECTS) for name in (FEDAVG, TCT, CENTRALIZED)]
    with_confusion(runs[1], [[3, 1], [0, 196]])
    (problem,) = arrange(runs)
    shown = results.section(problem)
    assert "Always predicting “ok” would give 98.0 %: accuracy says little here." in shown.intro
    balanced = shown.intro.partition("Balanced accuracy, the mean over classes, is ")[2]
    assert sorted(balanced.removesuffix(".").split(" and ")) == ["62.5 % for FedAvg", "87.5 % for TCT"]
    table = shown.blocks[0]
    assert isinstance(table, Table)
    column = list(table.columns).index("balanced accuracy")
    assert column == list(table.columns).index("accuracy") + 1
    told = {row.cells[0]: row.cells[column] for row in table.rows}
    assert told == {"FedAvg": "62.5 %", "TCT": "87.5 %", "Centralized": "62.5 %"}
    assert all(len(row.cells) == len(table.columns) for row in table.rows)


BLIND = [[0, 4], [0, 196]]


def test_where_nobody_finds_the_rare_class_that_comes_first_and_nobody_is_called_good(
    compared: Path, run_with: RunWith
) -> None:
    runs = [with_confusion(run_with(compared / name, name), BLIND) for name in (FEDAVG, TCT, CENTRALIZED)]
    intro = results.section(*arrange(runs)).intro
    assert intro.startswith("None of the federated methods here has been shown to find any class but “ok”. Accuracy ")
    assert not any(word in intro for word in ("good", "best", "on a par", "in one place"))
    assert results.section(*arrange([runs[0]])).intro.startswith(
        "FedAvg has not been shown to find any class but “ok”."
    )
    with_confusion(runs[1], DEFECTS)
    intro = results.section(*arrange(runs)).intro
    assert intro.startswith("FedAvg has not been shown to find any class but “ok”. Accuracy is ")
    assert "best" not in intro
    with_confusion(runs[0], DEFECTS)
    assert results.section(*arrange(runs)).intro.startswith("Accuracy is ")


def test_symbols_of_classes_that_are_never_recognised_are_not_on_their_names(compared: Path, run_with: RunWith) -> None:
    shown = classes.section(*arrange([with_confusion(run_with(compared / FEDAVG, "fedavg"), BLIND)]))
    assert shown is not None
    recognised = shown.blocks[0]
    assert isinstance(recognised, Chart)
    assert min(recognised.data[0]["x"]) == 0
    low, high = recognised.layout["xaxis"]["range"]
    assert 0.02 < -low / (high - low) < 0.05


def test_the_card_says_so_too(compared: Path, run_with: RunWith) -> None:
    run = with_confusion(run_with(compared / TCT, "tct"), DEFECTS)
    card = write_card(Saved.load(run.path, device="cpu"), "model")
    assert "- **Balanced accuracy,** the mean over classes: 62.5%; always predicting 'ok' would give 98.0%\n" in card


@pytest.mark.parametrize(("common", "told"), [(159, False), (160, True)])
def test_only_if_it_has_four_fifths(common: int, told: bool, compared: Path, run_with: RunWith) -> None:
    run = with_confusion(run_with(compared / FEDAVG, "fedavg"), [[0, 200 - common], [0, common]])
    found = CommonClass.of([run])
    assert (found is not None) == told
    assert found is None or (found == ("ok", 0.8, 0.5, 0.5) and not found.others_found)


def test_where_nobody_looked_nothing_is_said(compared: Path, run_with: RunWith) -> None:
    run = with_confusion(run_with(compared / FEDAVG, "fedavg"), DEFECTS)
    (problem,) = arrange([run])
    assert "Always predicting “ok”" in results.section(problem).intro
    (run.path / "findings" / "classes.json").unlink()
    (problem,) = arrange([run])
    shown = results.section(problem)
    assert "lways" not in shown.intro
    assert isinstance(shown.blocks[0], Table)
    assert "balanced accuracy" not in shown.blocks[0].columns
    (run.path / "findings" / "classes.json").write_text('{"confusion": [[0, 0], [0, 0]]}')  # of no samples
    assert CommonClass.of([run]) is None


def test_silos_elsewhere_have_classes_with_names(compared: Path, run_with: RunWith) -> None:
    run = with_confusion(run_with(compared / FEDAVG, "fedavg"), DEFECTS)
    (run.path / "findings" / "split.json").unlink()
    agreed = run.agreement() or {}
    for names, told in ((["bad", "fine"], ["bad", "fine"]), ([], ["0", "1"]), (["bad"], ["0", "1"])):
        agreed["task"]["names"] = names
        (run.path / "agreement.json").write_text(json.dumps(agreed))
        assert CommonClass.of([run]) == (told[1], 0.98, 0.625, 0.5)
        shown = classes.section(*arrange([run]))
        assert shown is not None
        recognised = shown.blocks[0]
        assert isinstance(recognised, Chart)
        assert recognised.layout["yaxis"]["ticktext"] == told


def test_where_nothing_else_is_rated_that_is_said(compared: Path, run_with: RunWith) -> None:
    run = with_confusion(run_with(compared / FEDAVG, "fedavg"), [[0, 0], [0, 200]])
    assert CommonClass.of([run]) == ("ok", 1.0, None, 1.0)
    (problem,) = arrange([run])
    shown = results.section(problem)
    assert shown.intro.startswith("FedAvg has not been shown to find any class but “ok”.")
    assert shown.intro.endswith(" All rated samples are “ok”: the score says nothing about other classes.")
    card = write_card(Saved.load(run.path, device="cpu"), "model")
    assert "the mean over classes: not known: no other class was rated; always predicting 'ok' would give" in card


def test_seeds_are_averaged(compared: Path, run_with: RunWith) -> None:
    runs = [
        with_confusion(run_with(compared / FEDAVG, str(k)), confusion)
        for k, confusion in enumerate((DEFECTS, [[10, 0], [0, 90]]))
    ]
    assert CommonClass.of(runs) == ("ok", pytest.approx(0.94), pytest.approx(0.8125), 0.5)
    (runs[1].path / "findings" / "classes.json").unlink()
    assert CommonClass.of(runs) is None


def test_samples_without_an_answer_count_and_are_shown_only_if_there_are_any(compared: Path, run_with: RunWith) -> None:
    run = with_confusion(run_with(compared / FEDAVG, "1", seed=1), [[1, 0, 3], [0, 98, 98]])
    other = with_confusion(run_with(compared / FEDAVG, "0"), DEFECTS)
    assert CommonClass.of([run]) == ("ok", 0.98, pytest.approx((1 / 4 + 1 / 2) / 2), 0.5)
    assert CommonClass.of([other, run]) == ("ok", 0.98, pytest.approx((0.625 + 0.375) / 2), 0.5)
    for runs, answers, taken, recognised in (
        ([other], ["defect", "ok"], [[1 / 4, 3 / 4], [0, 1]], [1 / 4, 1]),
        ([run], ["defect", "ok", "no answer"], [[1 / 4, 0, 3 / 4], [0, 1 / 2, 1 / 2]], [1 / 4, 1 / 2]),
        ([other, run], ["defect", "ok", "no answer"], [[1 / 4, 3 / 8, 3 / 8], [0, 3 / 4, 1 / 4]], [1 / 4, 3 / 4]),
    ):
        shown = classes.section(*arrange(runs))
        assert shown is not None
        points, cells = shown.blocks
        assert isinstance(points, Chart)
        assert isinstance(cells, Chart)
        assert cells.layout["xaxis"]["ticktext"] == answers
        assert cells.layout["yaxis"]["ticktext"] == ["defect", "ok"]
        assert cells.data[0]["z"] == taken
        assert points.data[0]["x"] == recognised
