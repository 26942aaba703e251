"""What the page says about a choice: which candidate it was, and by what."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fedtct.report.page import classes, results
from fedtct.report.page.problems import arrange
from fedtct.runs.choose import candidates, choose
from fedtct.runs.compare import carry_out, comparison
from fedtct.runs.config import RunConfig
from fedtct.runs.folder import RunFolder
from fedtct.runs.reading import read_runs
from fedtct.runs.tables import Line, table

pytestmark = pytest.mark.xdist_group("report")


@pytest.fixture(scope="module")
def choice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Learning rates that are chosen from, of which the first learns nothing."""
    config = RunConfig.of(limit=150, silos=3, method="fedavg", rounds=1, local_epochs=1, holdout=0.3)
    folder = tmp_path_factory.mktemp("choice") / "c"
    choose(candidates(config, "lr", [1e-9, 0.3]), folder)
    return folder


def copy_of(choice: Path, run_with: Callable[..., RunFolder], name: str, best: str, **settings: object) -> Path:
    """The same choice as if settings had been others, and this candidate the best."""
    for candidate in ("lr-1e-09", "lr-0.3"):
        folder = run_with(choice / candidate, f"{name}/{candidate}", **settings).path.parent
    shutil.copy(choice / "plan.json", folder)
    record = json.loads((choice / "choice.json").read_text())
    (folder / "choice.json").write_text(json.dumps(record | {"best": best}))
    return folder


def headline(*paths: Path) -> str:
    (problem,) = arrange(read_runs(*paths))
    return results.section(problem).intro


def test_the_page_says_which_candidate_was_chosen_and_by_what(choice: Path) -> None:
    rated = json.loads((choice / "choice.json").read_text())["holdout_accuracy"]
    low, high = (f"{100 * rated[name]:.1f} %" for name in ("lr-1e-09", "lr-0.3"))
    told = (
        f"FedAvg (lr 0.3) was chosen, by accuracy on what silos hold out: {high}, against {low} for FedAvg (lr 1e-09)."
    )
    text = headline(choice)
    assert text.startswith("FedAvg (lr 0.3) reaches ")
    assert text.endswith(told)
    assert "federated methods" not in text
    assert "chosen" not in headline(choice / "lr-0.3")  # of which there is nothing to choose


def test_it_is_not_the_best_on_test_data_that_the_page_begins_with(choice: Path) -> None:
    file = choice / "choice.json"
    before = file.read_text()
    equal = {"lr-1e-09": 0.5, "lr-0.3": 0.5}
    file.write_text(json.dumps({"best": "lr-1e-09", "holdout_accuracy": equal, "holdout_loss": equal}))
    text = headline(choice)
    file.write_text(before)
    assert text.startswith("FedAvg (lr 1e-09) reaches ")
    assert "was chosen, the first of equals, by accuracy" in text
    assert "50.0 %, against 50.0 % for FedAvg (lr 0.3)" in text


def test_of_equals_the_loss_decides_and_the_page_says_so(choice: Path) -> None:
    file = choice / "choice.json"
    before = file.read_text()
    ratings, losses = {"lr-1e-09": 0.5, "lr-0.3": 0.5}, {"lr-1e-09": 0.3, "lr-0.3": 0.2}
    file.write_text(json.dumps({"best": "lr-0.3", "holdout_accuracy": ratings, "holdout_loss": losses}))
    text = headline(choice)
    file.write_text(before)
    assert "was chosen, of equals the one with the smallest loss, by accuracy" in text


def test_beside_other_runs_only_what_was_chosen_is_shown(choice: Path, run_with: Callable[..., RunFolder]) -> None:
    """Whatever losing candidates reach on test data."""
    other = run_with(choice / "lr-0.3", "other", method="fedprox")
    (problem,) = arrange(read_runs(choice, other.path))
    assert [method.label for method in problem.methods] == ["FedAvg", "FedProx"]
    shown = results.section(problem)
    assert "chosen" not in shown.intro
    assert "though they differ in lr" in shown.intro
    table, *notes = shown.blocks
    assert table.columns[:2] == ["method", "chosen lr"]
    assert {row.cells[0]: row.cells[1] for row in table.rows} == {"FedAvg": "0.3", "FedProx": "–"}
    told = " ".join(note.text for note in notes)
    how = "chosen from 1e-09 and 0.3 for FedAvg"
    assert f"Each run’s lr was {how}, by accuracy on what silos hold out; the other candidates are not shown." in told
    assert "lr: chosen from 1e-09 and 0.3 for FedAvg, 0.3 for FedProx" in told


def test_what_was_chosen_for_each_seed_is_one_method(choice: Path, run_with: Callable[..., RunFolder]) -> None:
    """Whichever candidate it was, as long as it was chosen from the same ones; order is no difference."""
    second = copy_of(choice, run_with, "second", best="lr-1e-09", seed=1)
    (problem,) = arrange(read_runs(choice, second))
    (method,) = problem.methods
    assert method.label == "FedAvg"
    assert [run.path for run in method.runs] == [choice / "lr-0.3", second / "lr-1e-09"]
    shown = results.section(problem)
    assert shown.blocks[0].rows[0].cells[:3] == ["FedAvg", "2", "0.3, 1e-09"]
    assert shown.blocks[0].rows[0].cells[3].count("±") == 1
    assert "federated methods" not in shown.intro
    more = run_with(choice / "lr-0.3", "given", seed=2)  # a rate that nobody chose is another way of learning
    labels = {method.label for method in arrange(read_runs(choice, second, more.path))[0].methods}
    assert labels == {"FedAvg (lr chosen from 1e-09 and 0.3)", "FedAvg (lr 0.3)"}


def test_a_choice_that_is_not_made_yet_does_not_compete(choice: Path, run_with: Callable[..., RunFolder]) -> None:
    second = copy_of(choice, run_with, "second", best="lr-0.3", seed=1)
    (second / "choice.json").unlink()
    (problem,) = arrange(read_runs(choice, second))
    assert [run.path for method in problem.methods for run in method.runs] == [choice / "lr-0.3"]
    (problem,) = arrange(read_runs(second))
    assert [method.label for method in problem.methods] == ["FedAvg (lr 1e-09)", "FedAvg (lr 0.3)"]


def test_of_a_tuned_comparison_the_page_shows_what_its_table_does(tmp_path: Path) -> None:
    settings = {"limit": 150, "silos": 3, "rounds": 2, "local_epochs": 1, "holdout": 0.3, "lr": "1e-9,0.3"}
    runs = carry_out(comparison(["fedavg", "scaffold"], ["iid"], [0, 1], settings), tmp_path / "c")
    for given in (list(runs.values()), read_runs(tmp_path / "c"), read_runs(*(tmp_path / "c").glob("*-iid-*"))):
        (problem,) = arrange(given)
        lines = {method.label: Line.of(method.counted) for method in problem.methods}
        assert [lines[label] for label in ("FedAvg", "SCAFFOLD")] == table(runs)


def test_the_page_says_that_samples_are_counted_over_seeds(compared: Path) -> None:
    told = "On the test set. The first chart shows means over seeds, the second the samples of all seeds together."
    (problem,) = arrange(read_runs(compared))
    shown = classes.section(problem)
    assert shown is not None
    assert shown.intro == told
    (problem,) = arrange(read_runs(compared / "fedavg-classes4-seed0", compared / "tct-classes4-seed0"))
    shown = classes.section(problem)
    assert shown is not None
    assert shown.intro == "On the test set."
