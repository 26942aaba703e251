"""Several runs under one folder: comparisons, and choices by held-out samples."""

import csv
import json
import shutil
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest

from fedtct import FedtctError
from fedtct.history import Row
from fedtct.runs.choose import candidates, choose, read_choice
from fedtct.runs.combinations import share_rounds
from fedtct.runs.compare import comparison
from fedtct.runs.config import RunConfig
from fedtct.runs.folder import RunFolder
from fedtct.runs.plan import Plan
from fedtct.runs.summary import Summary, in_megabytes, judgement
from fedtct.runs.tables import table, write_comparison
from fedtct.runs.watcher import Watcher

SMALL: dict[str, Any] = {"limit": 150, "silos": 3, "local_epochs": 1, "p": 200, "steps": 10}


def small(**more: Any) -> RunConfig:
    return RunConfig.of(**SMALL | {"method": "fedavg", "split": "iid", "rounds": 2} | more)


def times(path: Path) -> dict[Path, int]:
    return {file: file.stat().st_mtime_ns for file in path.rglob("*") if file.is_file()}


@pytest.mark.parametrize("total", [2, 5, 40])
def test_every_method_gets_the_same_number_of_rounds(total: int) -> None:
    for more in ({}, {"stage2": "ridge"}):
        given = {"rounds": total} | more
        assert sum(share_rounds("tct", given)["rounds"]) == total == sum(share_rounds("fedavg", given)["rounds"])
    assert share_rounds("fedavg", {"rounds": "15,5"})["rounds"] == (20,)
    assert share_rounds("tct", {"rounds": "15,5"})["rounds"] == (15, 5)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (100, 100)),
        ({"stage2": "ridge"}, (100, 1)),
        ({"stage2": "conjugate-gradient"}, (100, 20)),
        ({"data": "silos"}, (100, 1)),
        ({"data": "silos", "stage2": "fedavg"}, (100, 100)),
    ],
)
def test_without_a_number_of_rounds_every_method_gets_those_of_tct(
    given: dict[str, str], expected: tuple[int, int]
) -> None:
    assert share_rounds("tct", given)["rounds"] == expected
    if "data" not in given:  # of a folder, which is not there, a run counts the silos
        assert RunConfig.of(method="tct", **given).rounds == expected
    assert share_rounds("fedavg", given)["rounds"] == (sum(expected),)


def test_a_comparison_is_every_combination_once() -> None:
    plan = comparison(["fedavg", "tct"], ["iid", "classes:2"], [0, 1, 2], SMALL)
    assert len(plan.runs) == 12
    assert len({(c.method, c.split, c.seed) for c in plan.runs.values()}) == 12
    assert "tct-classes2-seed1" in plan.runs
    for bad in ([], ["fedavg", "fedavg"]):
        with pytest.raises(FedtctError, match="none of them twice"):
            comparison(bad, ["iid"], [0])


def test_a_comparison_ends_with_a_table_of_means(tmp_path: Path) -> None:
    plan = comparison(["fedavg", "tct"], ["iid"], [0, 1], SMALL | {"rounds": 2})
    runs = plan.execute(tmp_path / "c")
    fedavg, tct = lines = table(runs)
    write_comparison(lines, runs, tmp_path / "c")
    own = [Summary.of(runs[f"fedavg-iid-seed{seed}"]) for seed in (0, 1)]
    accuracies = [run.test_accuracy or 0.0 for run in own]
    assert fedavg.rating == fmean(accuracies)
    assert fedavg.spread == stdev(accuracies)
    assert fedavg.megabytes * 1e6 == pytest.approx(own[0].bytes_up + own[0].bytes_down)
    assert (fedavg.rounds, tct.rounds) == ("2", "1+2+1")
    record = json.loads((tmp_path / "c" / "summary.json").read_text())
    assert record["runs"].keys() == plan.runs.keys()
    with (tmp_path / "c" / "summary.csv").open() as file:
        assert [row["method"] for row in csv.DictReader(file)] == ["fedavg", "tct"]


def test_a_plan_that_was_stopped_goes_on_and_repeats_nothing(tmp_path: Path) -> None:
    plan = comparison(["fedavg", "scaffold"], ["iid"], [0], SMALL | {"rounds": 2})

    class Impatient(Watcher):
        def begin(self, stage: str, rounds: int, done: int) -> None:
            raise KeyboardInterrupt

    def watch(name: str, config: RunConfig) -> Watcher:
        return Impatient() if config.method == "scaffold" else Watcher()

    with pytest.raises(KeyboardInterrupt):
        plan.execute(tmp_path / "c", watch=watch)
    before = times(tmp_path / "c" / "fedavg-iid-seed0")
    again = Plan.read(tmp_path / "c", "compare")
    assert again == plan
    assert all(run.finished for run in again.execute(tmp_path / "c", resume=True).values())
    assert times(tmp_path / "c" / "fedavg-iid-seed0") == before


@pytest.mark.parametrize(
    ("bad", "message"), [({"split": "classes:11"}, "classes:11"), ({"init_weights": "none.pt"}, "no such file")]
)
def test_a_plan_is_rehearsed_before_anything_is_written(bad: dict[str, str], message: str, tmp_path: Path) -> None:
    plan = Plan("compare", {"good": small(), "bad": small(**bad)})
    with pytest.raises(FedtctError, match=message):
        plan.execute(tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_what_stage_2_refuses_is_refused_before_the_first_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    softmax = "nn.Sequential(nn.Flatten(), nn.Linear(64, outputs), nn.Softmax(1))"
    (tmp_path / "ends_in_softmax.py").write_text(
        f"from torch import nn\n\n\ndef build(shape, outputs):\n    return {softmax}\n"
    )
    monkeypatch.chdir(tmp_path)
    plan = comparison(["fedavg", "tct"], ["iid"], [0], SMALL | {"rounds": 2, "model": "ends_in_softmax:build"})
    with pytest.raises(FedtctError, match="Remove what follows, such as a softmax"):
        plan.execute("c")
    assert not Path("c").exists()


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(FedtctError, match="exists: choose another"):
        Plan("compare", {"a": small()}).execute(tmp_path)


def test_of_equals_the_one_with_the_smallest_loss_is_chosen(tmp_path: Path) -> None:
    """Where one class is rare all have the same accuracy: any order of candidates gives the same choice."""
    config = small(holdout=0.3, rounds=1, local_epochs=1)
    for place, rates in enumerate(([1e-6, 1e-5], [1e-5, 1e-6])):
        best, runs, accuracies = choose(candidates(config, "lr", rates), tmp_path / f"{place}")
        assert len(set(accuracies.values())) == 1
        losses = {name: run.history[-1].holdout_loss for name, run in runs.items()}  # of the only round
        assert losses["lr-1e-05"] < losses["lr-1e-06"]
        assert best.path.name == "lr-1e-05"
        assert read_choice(tmp_path / f"{place}").by_loss()
        record = json.loads((tmp_path / f"{place}" / "choice.json").read_text())
        assert record["holdout_loss"] == losses


def test_a_choice_is_made_by_held_out_samples_alone(tmp_path: Path) -> None:
    plan = candidates(small(holdout=0.2, rounds=3), "lr", [1e-6, 0.1, 1e-5])
    best, _, accuracies = choose(plan, tmp_path / "c")
    assert list(accuracies) == ["lr-1e-06", "lr-0.1", "lr-1e-05"]
    assert best.path.name == max(accuracies, key=lambda name: accuracies[name]) == "lr-0.1"
    for name, accuracy in accuracies.items():
        _, *rows = RunFolder.resume(tmp_path / "c" / name).history
        assert accuracy == fmean(row.holdout_accuracy for row in rows)
    assert json.loads((tmp_path / "c" / "choice.json").read_text())["best"] == "lr-0.1"
    before = times(tmp_path / "c" / "lr-0.1")
    assert choose(Plan.read(tmp_path / "c", "choose"), tmp_path / "c", resume=True).ratings == accuracies
    assert times(tmp_path / "c" / "lr-0.1") == before


def test_a_choice_needs_something_to_choose_by_and_from() -> None:
    with pytest.raises(FedtctError, match="choosing lr needs held-out samples"):
        candidates(small(), "lr", [0.1, 0.2])
    with pytest.raises(FedtctError, match="two different values"):
        candidates(small(holdout=0.1), "lr", [0.1, 0.1])
    with pytest.raises(FedtctError, match="silos that rate models, and with epsilon they do not"):
        candidates(small(holdout=0.1, epsilon=8.0), "lr", [0.1, 0.2])


def test_a_choice_by_nothing_is_refused_before_any_run(tmp_path: Path) -> None:
    with pytest.raises(FedtctError, match=r"no silo has enough samples to hold out 0\.001 of them"):
        choose(candidates(small(holdout=0.001), "lr", [0.1, 0.2]), tmp_path / "c")
    assert not list(tmp_path.iterdir())


def rated(*accuracies: float | None, stage: str = "stage1") -> list[Row]:
    return [Row(stage, n, train_accuracy=1.0, train_loss=0.0, holdout_accuracy=v) for n, v in enumerate(accuracies)]


def test_the_mean_of_the_last_five_rated_rounds_decides() -> None:
    plain, patient, tct = small(holdout=0.2), small(holdout=0.2, patience=2), small(method="tct", rounds=(9, 1))
    assert judgement(rated(0.1, 0.9, 0.2, 0.3, 0.4, 0.5, 0.6), plain) == fmean([0.2, 0.3, 0.4, 0.5, 0.6])
    assert judgement(rated(0.1, 0.9, None, 0.3, None, 0.5), plain) == fmean([0.9, 0.3, 0.5])  # the first is untrained
    assert judgement(rated(0.1), plain) == 0.1  # without any round it is all there is
    assert judgement(rated(0.1, 0.9, 0.2, 0.3), patient) == 0.9  # whose model is kept
    assert judgement([*rated(0.1, 0.9), *rated(None, 0.7, stage="stage2")], tct) == 0.7
    assert judgement(rated(None, None), plain) is None


@pytest.mark.filterwarnings("ignore:stage1 diverged")
def test_a_choice_between_runs_of_which_none_is_rated_is_none(tmp_path: Path) -> None:
    with pytest.raises(FedtctError, match=r"none of lr-1e\+29, lr-1e\+30 can be chosen: every run diverged"):
        choose(candidates(small(holdout=0.2), "lr", [1e29, 1e30]), tmp_path / "c")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "holds no plan"),
        ('{"purpose": "compare", "runs": 3}', "holds no plan"),
        ('{"purpose": "guess", "runs": {}}', "holds no plan"),
        ('{"purpose": "choose", "runs": {}}', "was started to choose: resume with `fedtct run --resume"),
        ('{"purpose": "compare", "runs": {"a": {"lr": -1}}}', "lr must be positive"),
    ],
)
def test_a_damaged_plan_is_refused(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(content)
    with pytest.raises(FedtctError, match=message):
        Plan.read(tmp_path, "compare")


def test_a_folder_without_a_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FedtctError, match=r"there is no plan\.json"):
        Plan.read(tmp_path, "compare")


def own_silos(folder: Path, answers: np.ndarray) -> str:
    """Three silos' files with these answers; returns their folder."""
    draws = np.random.default_rng(0)
    (folder / "silos").mkdir()
    for silo in range(3):
        samples = draws.normal(size=(len(answers), 3)).astype(np.float32)
        np.savez(folder / "silos" / f"{silo}.npz", x=samples, y=answers)
    return str(folder / "silos")


@pytest.mark.filterwarnings("ignore:stage1 diverged")
def test_a_network_that_diverged_is_not_chosen_and_right_about_nothing(tmp_path: Path) -> None:
    data = own_silos(tmp_path, np.arange(60) % 10 // 9)  # nine in ten are of the first class, as no numbers seem to be
    config = RunConfig.of(data=data, method="fedavg", holdout=0.2, model="mlp", rounds=2)
    plan = candidates(config, "lr", [1e6, 0.01])
    choice = choose(plan, tmp_path / "c")
    lost = choice.runs["lr-1000000.0"]
    assert lost.history[-1].holdout_accuracy == 0
    assert Summary.of(lost).rating("holdout") is None
    assert choice.ratings["lr-1000000.0"] is None
    assert choice.best.path.name == "lr-0.01"
    assert choose(Plan.read(tmp_path / "c"), tmp_path / "c", resume=True).ratings == choice.ratings


@pytest.mark.filterwarnings("ignore:stage1 diverged")
def test_a_run_that_diverges_is_given_up_and_the_others_go_on(tmp_path: Path) -> None:
    plan = candidates(small(method="tct", rounds=(2, 2), holdout=0.2), "lr", [1e30, 0.05])
    choice = choose(plan, tmp_path / "c")
    assert choice.best.path.name == "lr-0.05"
    lost = choice.runs["lr-1e+30"]
    assert not lost.finished
    assert "stage 1 diverged" in lost.failure
    assert Summary.of(lost).test_accuracy is None  # that of the network stage 1 ended with is not tct's
    kept = times(choice.best.path)
    again = choose(Plan.read(tmp_path / "c"), tmp_path / "c", resume=True)
    assert (again.best.path, again.ratings) == (choice.best.path, choice.ratings)
    assert times(choice.best.path) == kept


@pytest.mark.filterwarnings("ignore:stage1 diverged")
def test_a_seed_that_diverged_leaves_a_regression_without_a_mean(tmp_path: Path) -> None:
    data = own_silos(tmp_path, np.linspace(0.0, 1.0, 60))
    plan = comparison(["fedavg"], ["own"], [0, 1], {"data": data, "model": "mlp", "rounds": 2, "lr": 1e6})
    for resume in (False, True):  # from a file R² that is no number comes back as none
        (line,) = table(plan.execute(tmp_path / "c", resume=resume))
        assert line.regression
        assert (line.rating, line.spread) == (None, None)


def test_what_is_over_is_shown_where_its_data_is_gone(tmp_path: Path) -> None:
    data = own_silos(tmp_path, np.linspace(0.0, 1.0, 60))
    plan = comparison(["fedavg"], ["own"], [0, 1], {"data": data, "model": "mlp", "rounds": 1})
    shown = table(plan.execute(tmp_path / "c"))
    shutil.rmtree(data)
    assert table(Plan.read(tmp_path / "c").execute(tmp_path / "c", resume=True)) == shown
    shutil.rmtree(tmp_path / "c" / "fedavg-own-seed1")  # but what is left to run is refused before anything is run
    with pytest.raises(FedtctError, match="there is no folder"):
        Plan.read(tmp_path / "c").execute(tmp_path / "c", resume=True)


@pytest.mark.parametrize(
    ("count", "told"), [(0, "0.0"), (4_321, "0.0043"), (61_000, "0.061"), (960_000, "1.0"), (1_234_567_890, "1,234.6")]
)
def test_few_bytes_are_not_told_as_none(count: int, told: str) -> None:
    assert in_megabytes(count) == told
