"""Methods side by side on the page: what counts, what they are compared with, and in what else they differ."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from fedtct.report.page import classes, results, silos
from fedtct.report.page.blocks import ACCURACY, QUIET, Chart, Choice, Note, Table
from fedtct.report.page.problems import Problem, arrange
from fedtct.runs.folder import RunFolder
from fedtct.runs.reading import read_runs
from fedtct.runs.summary import SILO_SAMPLES
from fedtct.runs.tables import Line

pytestmark = pytest.mark.xdist_group("report")

RunWith = Callable[..., RunFolder]
FEDAVG, TCT, CENTRALIZED = (f"{method}-classes4-seed0" for method in ("fedavg", "tct", "centralized"))


def table_of(problem: Problem) -> tuple[list[str], dict[str, list[str]]]:
    """The columns of the table of answers, and its rows by their method, in order."""
    table = results.section(problem).blocks[0]
    assert isinstance(table, Table)
    return list(table.columns), {row.cells[0]: list(row.cells[1:]) for row in table.rows}


def notes_of(problem: Problem) -> str:
    return " ".join(block.text for block in results.section(problem).blocks if isinstance(block, Note))


def with_own_models(run: RunFolder, shift: float, **settings: object) -> RunFolder:
    """The run with silos that were better alone by so much, having trained with these settings."""
    file = run.path / "findings" / "alone.json"
    found = json.loads(file.read_text())
    found["settings"] |= settings
    found |= {where: [value + shift for value in found[where]] for where in ("own", "everybody")}
    file.write_text(json.dumps(found))
    return run


def drawn_gains(charts: Chart | Choice, label: str) -> list[float]:
    """How far a method's symbols are from the grey bars, over all seeds."""
    gains = []
    for chart in charts.options.values() if isinstance(charts, Choice) else [charts]:
        mine = [trace for trace in chart.data if trace.get("meta", {"method": label})["method"] == label]
        (bars,) = [trace for trace in mine if trace.get("line", {}).get("color") == QUIET]
        (symbols,) = [trace for trace in mine if trace["mode"] == "markers"]
        gains += [there - alone for there, alone in zip(symbols["x"], bars["x"][::3], strict=True)]
        for y, low, high in zip(symbols["y"], bars["y"][::3], bars["y"][1::3], strict=True):
            assert low < y < high
    return gains


@pytest.mark.parametrize("shift", [0.0, 0.125])
def test_the_charts_of_silos_show_the_gains_that_the_table_tells(
    shift: float, compared: Path, run_with: RunWith
) -> None:
    other = {"lr": 0.01, "epochs": 3} if shift else {}
    tct = with_own_models(run_with(compared / TCT, "tct"), shift, **other)
    (problem,) = arrange([RunFolder.read(compared / FEDAVG), tct, RunFolder.read(compared / CENTRALIZED)])
    shown = silos.section(problem)
    table, *charts = shown.blocks
    assert isinstance(table, Table)
    for row in table.rows:
        for chart, column in zip(charts, ("mean gain", "mean gain there"), strict=True):
            assert isinstance(chart, Chart)
            told = row.cells[table.columns.index(column)]
            assert told == ACCURACY.difference(fmean(drawn_gains(chart, row.cells[0])))
            assert sum(trace.get("line", {}).get("color") == QUIET for trace in chart.data) == (3 if shift else 1)
    if shift:
        assert (
            "for 4 epochs with lr 0.1 beside FedAvg and Centralized; for 3 epochs with lr 0.01 beside TCT"
            in shown.intro
        )
    else:
        assert "the same network alone, for 4 epochs on its own samples" in shown.intro


def test_seeds_have_other_models_of_silos_and_no_other_settings(compared: Path) -> None:
    (problem,) = arrange(read_runs(compared))
    shown = silos.section(problem)
    table, *charts = shown.blocks
    assert isinstance(table, Table)
    assert "differ" not in shown.intro
    for row in table.rows:
        for chart, column in zip(charts, ("mean gain", "mean gain there"), strict=True):
            assert isinstance(chart, Choice)
            told = row.cells[table.columns.index(column)]
            assert told == ACCURACY.difference(fmean(drawn_gains(chart, row.cells[0])))


def test_a_copy_of_a_run_leaves_the_seeds_of_a_comparison_together(compared: Path, run_with: RunWith) -> None:
    copies = [run_with(compared / FEDAVG, name).path for name in ("a", "b")]
    for paths in permutations([compared, *copies]):
        (problem,) = arrange(read_runs(*paths))
        runs = {method.label: {run.path.name for run in method.runs} for method in problem.methods}
        assert runs["FedAvg"] == {FEDAVG, "fedavg-classes4-seed1"}
        assert (runs["FedAvg [a]"], runs["FedAvg [b]"]) == ({"a"}, {"b"})
        columns, rows = table_of(problem)
        seeds = {label: cells[columns.index("seeds") - 1] for label, cells in rows.items()}
        assert seeds == {label: str(len(names)) for label, names in runs.items()}
        assert "0 and 1 for " in notes_of(problem).partition("differ in seeds: ")[2]


def test_a_comparison_that_was_made_again_is_another_one(compared: Path, tmp_path: Path) -> None:
    shutil.copytree(compared, tmp_path / "again")
    (problem,) = arrange(read_runs(compared, tmp_path / "again"))
    assert len(problem.methods) == 6
    for method in problem.methods:
        assert [run.config.seed for run in method.runs] == [0, 1]
        assert len({run.path.parent for run in method.runs}) == 1
    assert "FedAvg [again/fedavg-classes4-seed0 and 1 more]" in [method.label for method in problem.methods]
    alone = [compared / FEDAVG, tmp_path / "again" / FEDAVG]
    (problem,) = arrange(read_runs(*alone))
    assert [len(method.runs) for method in problem.methods] == [1, 1]


def test_seeds_are_counted_where_there_are_several(compared: Path) -> None:
    one, several = (arrange(read_runs(*paths)) for paths in ([compared / FEDAVG, compared / TCT], [compared]))
    assert "seeds" not in table_of(one[0])[0]
    columns, rows = table_of(several[0])
    assert columns[:3] == ["method", "seeds", "accuracy"]
    assert {cells[0] for cells in rows.values()} == {"2"}
    assert all(len(cells) == len(columns) - 1 for cells in rows.values())


def cut(run: RunFolder, rows: int) -> RunFolder:
    """The run as it was after so many rows."""
    shutil.rmtree(run.path / "model")
    shutil.rmtree(run.path / "findings")
    lines = (run.path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run.path / "metrics.jsonl").write_text("".join(lines[:rows]))
    return RunFolder.read(run.path)


def test_how_far_a_run_got_that_is_not_finished_changes_no_answer(compared: Path, run_with: RunWith) -> None:
    finished = [RunFolder.read(compared / name) for name in (FEDAVG, CENTRALIZED)]
    whole = RunFolder.read(compared / TCT)
    (without,), (problem,) = arrange(finished), arrange([*finished, whole])
    assert results.section(problem).intro.startswith("TCT reaches ")
    for rows in range(1, len(whole.history) + 1):
        (problem,) = arrange([cut(run_with(compared / TCT, f"tct{rows}"), rows), *finished])
        assert results.section(problem).intro == results.section(without).intro
        columns, found = table_of(problem)
        assert list(found)[-1] == "TCT"
        assert found["TCT"][: columns.index("rounds") - 1] == ["not finished", "–", "–"]
        assert f"tct{rows} is not finished" in notes_of(problem)
        assert SILO_SAMPLES["own"] not in notes_of(problem)  # which no row shows
    (problem,) = arrange(
        [RunFolder.read(compared / TCT), *(cut(run_with(run.path, run.path.name), 2) for run in finished)]
    )
    assert "centralized training" not in notes_of(problem)
    assert "in one place" not in results.section(problem).intro


def test_the_best_is_the_best_of_those_that_are_finished(compared: Path, run_with: RunWith) -> None:
    finished = [RunFolder.read(compared / name) for name in (FEDAVG, TCT)]
    half = cut(run_with(compared / FEDAVG, "half", method="scaffold"), 2)
    for runs, which in ((finished, ""), ([*finished, half], " that are finished")):
        (problem,) = arrange(runs)
        assert f"the best of the federated methods here{which}. It took" in results.section(problem).intro
    (problem,) = arrange([half])
    assert results.section(problem).intro == ""
    assert not [block for block in silos.section(problem).blocks if isinstance(block, Chart)]  # nor of silos' ratings


def test_seeds_that_are_finished_count_without_the_one_that_is_not(compared: Path, run_with: RunWith) -> None:
    half = cut(run_with(compared / "fedavg-classes4-seed1", "half"), 2)
    first, tct = RunFolder.read(compared / FEDAVG), RunFolder.read(compared / TCT)
    (problem,), (without,) = arrange([first, half, tct]), arrange([first, tct])
    assert table_of(problem) == table_of(without)
    assert "half is not finished" in notes_of(problem)


@pytest.mark.parametrize(
    ("seeds", "told"),
    [
        (1, "A lead may be chance if it is at most twice the standard error of the better model."),
        (
            2,
            "A lead over a method with the same seeds may be chance if the 95 % confidence interval of the mean "
            "difference, seed by seed, includes zero, or if it is at most twice the standard error of the better model",
        ),
    ],
)
def test_how_methods_are_told_apart_is_said_where_there_are_several(seeds: int, told: str, compared: Path) -> None:
    names = [name.replace("seed0", f"seed{seed}") for name in (FEDAVG, TCT) for seed in range(seeds)]
    (problem,) = arrange([RunFolder.read(compared / name) for name in names])
    assert told in notes_of(problem)
    (alone,) = arrange([RunFolder.read(compared / name) for name in names[:seeds]])
    assert "A lead" not in notes_of(alone)


def test_what_has_no_rating_comes_after_every_rating(compared: Path) -> None:
    (problem,) = arrange([RunFolder.read(compared / FEDAVG)])
    line = Line.of(problem.methods[0].runs)
    for ratings in permutations([0.5, 0.0, -0.25, -3.0, None]):
        rated = [(problem.methods[0], replace(line, rating=rating)) for rating in ratings]
        in_order = [line.rating for _, line in sorted(rated, key=results._place)]
        assert in_order == [0.5, 0.0, -0.25, -3.0, None]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, ""),
        ({"lr": 0.01}, "lr: 0.01 for FedAvg, 0.1 for TCT"),
        ({"lr": 0.01, "batch_size": 8}, "batch_size: 8 for FedAvg, 64 for TCT; in lr: 0.01 for FedAvg, 0.1 for TCT"),
        ({"local_epochs": 10}, "local_epochs: 10 for FedAvg, 1 for TCT"),
        ({"rounds": (4,)}, ""),  # 2+2 of TCT
        ({"rounds": (5,)}, "rounds: 5 for FedAvg, 2+2 for TCT"),
        ({"seed": 7}, "seeds: 7 for FedAvg, 0 for TCT"),
        ({"mu": 0.5, "p": 7, "d": 3, "clip": 9.0}, ""),  # which FedAvg does not read
        ({"device": "cpu", "data_dir": "elsewhere", "evaluate_every": 2}, ""),  # which change no model
    ],
)
def test_settings_that_methods_read_and_differ_in_are_named(
    settings: dict[str, Any], told: str, compared: Path, run_with: RunWith
) -> None:
    (problem,) = arrange([run_with(compared / FEDAVG, "fedavg", **settings), RunFolder.read(compared / TCT)])
    assert [method.label for method in problem.methods] == ["FedAvg", "TCT"]
    notes, names = notes_of(problem), [part.split(":")[0] for part in told.split("; in ") if part]
    assert f"The methods also differ in {told}." in notes if told else "differ" not in notes
    intro = results.section(problem).intro
    assert (f", though they differ in {' and '.join(names)}." in intro) if told else ("differ" not in intro)


def test_what_methods_are_called_by_is_not_named_again(compared: Path, run_with: RunWith) -> None:
    two = [run_with(compared / TCT, f"p{p}", p=p, lr=0.1 / p) for p in (100, 200)]
    (problem,) = arrange(two)
    assert [method.label for method in problem.methods] == ["TCT (p 100, lr 0.001)", "TCT (p 200, lr 0.0005)"]
    assert "differ" not in notes_of(problem)
    (problem,) = arrange([*two, RunFolder.read(compared / FEDAVG)])
    assert "in lr: 0.001 for TCT (p 100, lr 0.001), 0.0005 for TCT (p 200, lr 0.0005), 0.1 for FedAvg." in notes_of(
        problem
    )


def test_more_seeds_do_not_make_a_method_the_best_at_classes(compared: Path) -> None:
    for one, two in permutations(("fedavg", "tct", "centralized"), 2):
        runs = [f"{one}-classes4-seed0", f"{two}-classes4-seed0", f"{two}-classes4-seed1"]
        (problem,) = arrange([RunFolder.read(compared / name) for name in runs])
        shown = classes.section(problem)
        assert shown is not None
        choice = shown.blocks[1]
        assert isinstance(choice, Choice)
        assert list(choice.options) == [label for label in table_of(problem)[1]]


def test_accuracies_come_with_their_number_of_samples_and_what_that_leaves_to_chance(
    compared: Path, run_with: RunWith
) -> None:
    run = run_with(compared / FEDAVG, "fedavg")
    table = (run.finding("classes") or {})["confusion"]
    samples = sum(map(sum, table))
    right = sum(row[label] for label, row in enumerate(table)) / samples
    error = 100 * (right * (1 - right) / samples) ** 0.5
    told = f" is on the test set, {samples} samples (standard error of one model: {error:.1f} points)."
    (problem,) = arrange([run])
    assert told in notes_of(problem)
    (run.path / "findings" / "classes.json").unlink()
    (problem,) = arrange([RunFolder.read(run.path)])
    assert " is on the test set. " in notes_of(problem)
