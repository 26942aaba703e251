"""What the page says about a choice: which candidate it was, and by what."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fedtct.report.page import answer, classes, read_runs
from fedtct.report.page.tasks import arrange
from fedtct.runs.choose import candidates, choose
from fedtct.runs.config import RunConfig
from fedtct.runs.folder import RunFolder

pytestmark = pytest.mark.xdist_group("report")


@pytest.fixture(scope="module")
def choice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Learning rates that are chosen from, of which the first learns nothing."""
    config = RunConfig.of(limit=150, silos=3, method="fedavg", rounds=1, local_epochs=1, holdout=0.3)
    folder = tmp_path_factory.mktemp("choice") / "c"
    choose(candidates(config, "lr", [1e-9, 0.3]), folder)
    return folder


def headline(*paths: Path) -> str:
    (task,) = arrange(read_runs(paths))
    return answer.section(task).intro


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


def test_beside_other_methods_a_choice_is_one_sentence_more(choice: Path, run_with: Callable[..., RunFolder]) -> None:
    other = run_with(choice / "lr-0.3", "other", method="fedprox")
    text = headline(choice, other.path)
    assert "federated methods here" in text
    assert text.count("FedAvg (lr 0.3) was chosen") == 1


def test_the_page_says_that_samples_are_counted_over_seeds(compared: Path) -> None:
    told = "On the test set. The first chart shows means over seeds, the second the samples of all seeds together."
    (task,) = arrange(read_runs([compared]))
    shown = classes.section(task)
    assert shown is not None
    assert shown.intro == told
    (task,) = arrange(read_runs([compared / "fedavg-classes4-seed0", compared / "tct-classes4-seed0"]))
    shown = classes.section(task)
    assert shown is not None
    assert shown.intro == "On the test set."
