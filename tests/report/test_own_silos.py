"""Silos' own data on the page: what is learnt, who stayed, how much each has, and a regression's error in its units."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtct.history import Row
from fedtct.report.page import dealing, progress, results, silos
from fedtct.report.page.blocks import ACCURACY, R2, Chart, Note, Table
from fedtct.report.page.problems import arrange
from fedtct.runs.caveats import absent, hold_nothing_out
from fedtct.runs.compare import comparison
from fedtct.runs.findings import find_all
from fedtct.runs.folder import RunFolder
from fedtct.runs.metrics import to_line
from fedtct.runs.saved import Saved, write_card
from fedtct.runs.settings import ELSEWHERE, OWN
from fedtct.runs.summary import Summary, silos_told

pytestmark = pytest.mark.xdist_group("report")

RunWith = Callable[..., RunFolder]
FEDAVG, TCT = (f"{method}-classes4-seed0" for method in ("fedavg", "tct"))


def without(run: RunFolder, silo: str) -> RunFolder:
    """The run as if a silo had left before its last row."""
    *rows, last = run.history
    left = tuple(name for name in last.rated_by if name != silo)
    assert len(left) == len(last.rated_by) - 1
    last = replace(last, rated_by=left, silo_accuracies=last.silo_accuracies[: len(left)])
    (run.path / "metrics.jsonl").write_text("".join(map(to_line, [*rows, last])))
    return RunFolder.read(run.path)


def test_who_left_is_told_in_the_same_words_on_the_page_and_on_the_card(compared: Path, run_with: RunWith) -> None:
    run = run_with(
        compared / FEDAVG, "fedavg", dataset="silos' own data", data=ELSEWHERE, split=OWN, limit=0, target="rul"
    )
    assert silos_told(run) == "3 silos"
    run = without(run, run.history[-1].rated_by[0])
    told = "silos' own data, 3 silos, 2 of them to the end"
    (problem,) = arrange([run])
    assert problem.title == f"{told}, target rul"
    assert results.section(problem).title == problem.title
    assert f"- **Data:** {told}\n" in write_card(Saved.load(run.path, device="cpu"), "model")


@given(
    begun=st.sets(st.sampled_from("abcd"), min_size=1),
    rounds=st.lists(st.sets(st.sampled_from("abcd"), min_size=1), min_size=1, max_size=3),
)
def test_silos_are_said_to_be_absent_that_no_round_of_the_models_stage_had(begun, rounds):
    """Whoever came later is not, and has taken part also if it was gone again."""
    first, *rest = [Row("stage1", 1, silos=tuple(rounds[0])), *(Row("stage2", 1, silos=tuple(of)) for of in rounds[1:])]
    run = SimpleNamespace(
        finished=True,
        history=[first, *rest],
        config=SimpleNamespace(silos=4, per_round=0),
        agreement=lambda: {"silos": dict.fromkeys(sorted(begun), 10)},
    )
    there = set().union(*(rounds[1:] or rounds))
    ever = begun.union(*rounds)
    told = absent(run)
    assert (" ran without " in told) == bool(ever - there)
    assert all(name in told.partition(" ran without ")[2].partition(";")[0] for name in ever - there)
    assert (f"{4 - len(ever)} of 4 silos took no part" in told) == (len(ever) < 4)
    assert not any(f" {name}" in told for name in there)


def test_runs_that_differ_in_who_stayed_are_one_task(compared: Path, run_with: RunWith) -> None:
    run = run_with(compared / FEDAVG, "fedavg")
    run = without(run, run.history[-1].rated_by[0])
    (problem,) = arrange([run, RunFolder.read(compared / TCT)])
    assert problem.title == "digits, classes:4, 3 silos"
    notes = " ".join(block.text for block in results.section(problem).blocks if isinstance(block, Note))
    assert "fedavg had 3 silos, 2 of them to the end." in notes
    assert f"{TCT} had" not in notes
    shutil.rmtree(run.path / "model")  # and it is not over
    assert silos_told(run) == "3 silos"


def test_silos_elsewhere_have_the_sizes_that_they_agreed_on(compared: Path, run_with: RunWith) -> None:
    run = run_with(compared / FEDAVG, "fedavg")
    shutil.rmtree(run.path / "findings")
    file = run.path / "agreement.json"
    agreed = json.loads(file.read_text())
    names = list(agreed["silos"])
    agreed["silos"] = {names[0]: 1920, names[1]: 720}  # the third came later
    file.write_text(json.dumps(agreed))
    (problem,) = arrange([run])
    shown = dealing.section(problem)
    table, note = shown.blocks
    assert isinstance(table, Table)
    assert isinstance(note, Note)
    told = [list(row.cells) for row in table.rows]
    assert told == [[names[0], "1,920"], [names[1], "720"], [names[2], "came later: not known"]]
    assert "of each class these are is not known" in note.text
    file.unlink()
    (block,) = dealing.section(problem).blocks
    assert isinstance(block, Note)
    assert block.text.startswith("Not known: ")


def test_seeds_deal_anew_and_have_sizes_of_their_own(compared: Path, run_with: RunWith) -> None:
    runs = [run_with(compared / f"fedavg-classes4-seed{seed}", f"seed{seed}") for seed in (0, 1)]
    for run in runs:
        shutil.rmtree(run.path / "findings")
    (problem,) = arrange(runs)
    table = dealing.section(problem).blocks[0]
    assert isinstance(table, Table)
    sizes = [(run.agreement() or {})["silos"] for run in runs]
    assert sizes[0] != sizes[1]
    assert table.columns == ["silo", "samples, seed 0", "samples, seed 1"]
    assert [list(row.cells) for row in table.rows] == [[k, f"{sizes[0][k]}", f"{sizes[1][k]}"] for k in sizes[0]]


def test_silos_that_gain_lose_and_stay_are_all_silos(compared: Path, run_with: RunWith) -> None:
    run = run_with(compared / FEDAVG, "fedavg")
    own = [0.5, 0.6, 0.7]
    (run.path / "findings" / "silos.json").write_text(json.dumps({"own": own, "everybody": 0.6, "held_out": True}))
    alone = {"settings": {"epochs": 1}, "own": [0.4, 0.6, 0.8], "everybody": [0.5, 0.5, 0.5]}
    (run.path / "findings" / "alone.json").write_text(json.dumps(alone))
    (problem,) = arrange([run])
    table = silos.section(problem).blocks[0]
    assert isinstance(table, Table)
    assert list(table.columns[1:4]) == ["silos that gain", "that lose", "that stay as they were"]
    assert list(table.rows[0].cells[1:4]) == ["1 of 3", "1", "1"]


def test_a_run_that_diverged_has_no_silos_that_stay_as_they_were(compared: Path, run_with: RunWith) -> None:
    lasting, diverged = run_with(compared / FEDAVG, "lasting"), run_with(compared / FEDAVG, "diverged", lr=1e9)
    *rows, last = diverged.history
    lines = map(to_line, [*rows, replace(last, train_loss=float("inf"))])
    (diverged.path / "metrics.jsonl").write_text("".join(lines))
    (problem,) = arrange([lasting, RunFolder.read(diverged.path)])
    table = silos.section(problem).blocks[0]
    assert isinstance(table, Table)
    assert [row.cells[0] for row in table.rows] == ["FedAvg (lr 0.1)"]


@pytest.mark.parametrize(
    ("values", "low", "step"),
    [([0.98, None, 0.975], 0.97, 0.01), ([0.91, 1.0], 0.9, 0.02), ([0.9, 0.99], 0, 0.2), ([1.0], 0.99, 0.01)],
)
def test_accuracies_that_are_all_very_high_have_an_axis_of_their_own(
    values: list[float | None], low: float, step: float
) -> None:
    axis = ACCURACY.axis_for(values)
    assert (axis["range"][0], axis["dtick"]) == (low, step)
    assert 1 < axis["range"][1] <= 1.02
    assert R2.axis_for(values)["range"] == [0, 1.02]
    assert R2.axis_for([float("nan"), -0.5])["range"][0] == -0.55


def test_the_untrained_model_does_not_make_one_line_of_all_others(compared: Path, run_with: RunWith) -> None:
    run = run_with(compared / FEDAVG, "fedavg")
    for first, later, alone in ((0.3, 0.98, True), (0.3, 0.9, False), (0.97, 0.98, False)):
        rows = [replace(row, test_accuracy=later if row.round else first) for row in run.history]
        (run.path / "metrics.jsonl").write_text("".join(map(to_line, rows)))
        (problem,) = arrange([RunFolder.read(run.path)])
        shown = progress.section(problem)
        chart, *_, loss = [block for block in shown.blocks if isinstance(block, Chart)]
        assert chart.data[0]["x"] == [row.round for row in rows if row.round or not alone]
        assert loss.data[0]["x"][0] == 0
        assert (chart.layout["yaxis"]["range"][0] > 0.9) == (min(later, 1 if alone else first) > 0.9)
        assert ("Round 0 is lower, and left out" in shown.intro) == alone


@pytest.fixture(scope="module")
def regressions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("regressions")
    (folder / "silos").mkdir()
    for seed, name in enumerate(("north", "south")):
        draws = np.random.default_rng(seed)
        age = draws.normal(50, 9, 60)
        pd.DataFrame({"age": age, "cost": 1e4 * age + draws.normal(0, 5e4, 60)}).to_csv(folder / f"silos/{name}.csv")
    settings = {"data": str(folder / "silos"), "target": "cost", "rounds": (2,), "local_epochs": 1, "d": 20}
    comparison(["fedavg", "tct"], [OWN], [0, 1], settings).execute(folder / "runs", look=find_all)
    return folder / "runs"


def test_a_regression_has_its_error_in_the_targets_units(regressions: Path) -> None:
    runs = [RunFolder.read(regressions / f"fedavg-own-seed{seed}") for seed in (0, 1)]
    (problem,) = arrange([*runs, RunFolder.read(regressions / "tct-own-seed0")])
    assert problem.title == "silos, 2 silos, target cost"
    table, note, *_ = results.section(problem).blocks
    assert isinstance(table, Table)
    assert isinstance(note, Note)
    assert "RMSE is the root of the mean squared error, in the units of cost." in note.text
    told = {row.cells[0]: row.cells[list(table.columns).index("RMSE")] for row in table.rows}
    errors = [run.history[-1].holdout_rmse or 0.0 for run in runs]
    assert min(errors) > 1e4
    assert float(told["FedAvg"].replace(",", "")) == pytest.approx(sum(errors) / 2, rel=1e-3)


def test_so_has_its_card(regressions: Path) -> None:
    run = RunFolder.read(regressions / "tct-own-seed0")
    last, card = run.history[-1], write_card(Saved.load(run.path, device="cpu"), "model")
    held, trained = f"{last.holdout_rmse:.4g} on held-out", f"{last.train_rmse:.4g} on training"
    assert f"- **RMSE:** {held} samples, {trained} samples, in the units of cost\n" in card
    assert Summary.of(run).as_dict()["train_rmse"] == last.train_rmse


def test_who_was_away_for_some_rounds_is_said_in_words(compared: Path, run_with: RunWith) -> None:
    run = run_with(compared / FEDAVG, "fedavg")
    gone = run.history[-1].silos[1]
    assert "Away" not in silos.section(*arrange([run])).intro
    rows = []
    for row in run.history:
        there = [k for k, name in enumerate(row.silos) if name != gone or row.round < 3]
        names, down, up = (
            tuple(parts[k] for k in there) for parts in (row.silos, row.silo_bytes_down, row.silo_bytes_up)
        )
        rows.append(replace(row, silos=names, silo_bytes_down=down, silo_bytes_up=up))
    (run.path / "metrics.jsonl").write_text("".join(map(to_line, rows)))
    told = f"Not every silo answered in all of the 4 rounds. Away: {gone} for 2."
    run = RunFolder.read(run.path)
    assert silos.section(*arrange([run])).intro.endswith(told)
    shutil.rmtree(run.path / "findings")  # silos elsewhere
    assert silos.section(*arrange([run])).intro == told
    both = silos.section(*arrange([run, RunFolder.read(compared / TCT)])).intro
    assert "in all of the 4 rounds (FedAvg, seed 0). Away: " in both


@pytest.mark.parametrize("epsilon", [0.0, 8.0])
def test_silos_elsewhere_that_hold_nothing_out_are_named_unless_nothing_is_rated(
    compared: Path, run_with: RunWith, epsilon: float
) -> None:
    run = run_with(compared / FEDAVG, "fedavg", epsilon=epsilon)
    shutil.rmtree(run.path / "findings")
    names = list((run.agreement() or {})["silos"])
    for held, told in (([5, 0, 7], names[1:2]), ([5, 1, 7], []), ([0, 0, 0], [])):
        agreed = (run.agreement() or {}) | {"held": dict(zip(names, held, strict=True))}
        (run.path / "agreement.json").write_text(json.dumps(agreed))
        assert hold_nothing_out(run) == told
        (problem,) = arrange([run])
        assert (f"othing is held out by {names[1]}: " in problem.caveats) == bool(told and not epsilon)
