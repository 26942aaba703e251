"""Comparisons that choose a learning rate for each method, split and seed, as ``fedtct run`` does for one."""

import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from fedtct import FedtctError
from fedtct.runs.caveats import caveats
from fedtct.runs.choose import choice_of, choose, chosen, chosen_settings
from fedtct.runs.combinations import share_rounds
from fedtct.runs.compare import carry_out, comparison
from fedtct.runs.config import RunConfig
from fedtct.runs.execute import execute
from fedtct.runs.folder import RunFolder
from fedtct.runs.plan import Plan
from fedtct.runs.summary import Summary
from fedtct.runs.tables import table
from fedtct.runs.watcher import Watcher

METHODS, SEEDS, RATES = ["fedavg", "tct"], [0, 1], "0.2,1e-6"
SMALL: dict[str, Any] = {
    "limit": 150,
    "silos": 3,
    "local_epochs": 1,
    "p": 200,
    "steps": 10,
    "rounds": 4,
    "holdout": 0.3,
}
TUNED = comparison(METHODS, ["iid"], SEEDS, SMALL | {"lr": RATES})


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned") / "c"
    carry_out(TUNED, folder)
    return folder


def contents(folder: Path) -> dict[str, Any]:
    """All that a run, a choice or a comparison left behind, but for how long it took and on what."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.name == "metrics.jsonl":
            found[name] = [replace(row, seconds=0.0) for row in RunFolder.read(path.parent).history]
        elif path.is_file() and path.name != "environment.json" and path.parent.name != "checkpoints":
            found[name] = path.read_bytes()
    return found


def test_a_single_rate_is_no_choice() -> None:
    for lr in ("0.2", 0.2):
        assert comparison(METHODS, ["iid"], SEEDS, SMALL | {"lr": lr}) == comparison(
            METHODS, ["iid"], SEEDS, SMALL | {"lr": 0.2}
        )
    assert choice_of({"lr": [0.2]}) is None


def test_every_combination_has_a_run_for_each_rate() -> None:
    assert len(TUNED.runs) == len(METHODS) * len(SEEDS) * 2
    plain = comparison(METHODS, ["iid"], SEEDS, SMALL).runs
    assert TUNED.parts.keys() == plain.keys()
    for name, config in plain.items():
        for rate in (0.2, 1e-6):
            assert TUNED.runs[f"{name}/lr-{rate}"] == replace(config, lr=rate)
    assert comparison(METHODS, ["iid"], SEEDS, SMALL | {"lr": [0.2, 1e-6]}) == TUNED  # as a file has it
    with pytest.raises(FedtctError, match="choosing lr needs held-out samples"):
        comparison(METHODS, ["iid"], SEEDS, SMALL | {"lr": RATES, "holdout": 0})


def test_each_choice_is_what_run_makes(tuned: Path, tmp_path: Path) -> None:
    for method in METHODS:
        given = share_rounds(method, SMALL | {"lr": RATES}) | {"method": method, "split": "iid", "seed": 1}
        plan = choice_of(given)
        assert plan is not None
        choose(plan, tmp_path / method)
        assert contents(tuned / f"{method}-iid-seed1") == contents(tmp_path / method)


def test_what_is_chosen_is_the_run_of_that_rate(tuned: Path, tmp_path: Path) -> None:
    """As if it had been given alone, in a comparison without a choice."""
    for name, run in comparison(["fedavg"], ["iid"], [0], SMALL | {"lr": 0.2}).runs.items():
        execute(RunFolder.create(tmp_path / name, run))
        assert chosen(tuned / name) == tuned / name / "lr-0.2"
        assert contents(tuned / name / "lr-0.2") == contents(tmp_path / name)


def test_the_table_has_what_was_chosen_and_nothing_of_what_lost(tuned: Path) -> None:
    runs = carry_out(Plan.read(tuned, "compare"), tuned, resume=True)
    assert list(runs) == list(TUNED.parts)
    for line, method in zip(table(runs), METHODS, strict=True):
        folders = [tuned / f"{method}-iid-seed{seed}" for seed in SEEDS]
        best = [RunFolder.read(folder / json.loads((folder / "choice.json").read_text())["best"]) for folder in folders]
        ratings = [Summary.of(run).test_accuracy for run in best]
        assert (line.seeds, line.rating, line.spread) == (2, fmean(ratings), stdev(ratings))
        assert line.chosen == {"lr": tuple(run.config.lr for run in best)}
        assert line.as_dict()["chosen_lr"] == [run.config.lr for run in best]
        assert [chosen_settings(run) for run in best] == [{"lr": (0.2, 1e-6)}] * 2
    with pytest.raises(FedtctError, match="several runs: give the folder of one of them, fedavg-iid-seed0, fedavg-iid"):
        chosen(tuned)


def test_what_was_chosen_is_told_once_if_it_is_the_same_for_all_seeds(tuned: Path) -> None:
    line = table(carry_out(Plan.read(tuned), tuned, resume=True))[0]
    told = {(0.2, 0.2): "0.2", (0.2, 1e-6): "0.2, 1e-06", (None, 0.2): "-, 0.2", (): "-"}
    for values, text in told.items():
        assert replace(line, chosen={"lr": values}).choice("lr") == text


def test_a_rate_that_is_best_at_an_end_of_those_given_is_told_of(tuned: Path) -> None:
    def told(*runs: RunFolder) -> list[str]:
        return [note for note in caveats(runs) if "lr" in note]

    def one(name: str, lr: float, split: str = "iid") -> RunFolder:
        run = RunFolder.read(chosen(tuned / name))
        run.config = replace(run.config, lr=lr, split=split)
        return run

    first, second = (one(f"fedavg-iid-seed{seed}", lr=0.2) for seed in SEEDS)
    largest = "for {} the largest lr that was given was best: try larger ones, too"
    smallest = "for {} the smallest lr that was given was best: try smaller ones, too"
    assert told(first, second) == told(first) == [largest.format("fedavg")]
    tct = one("tct-iid-seed0", lr=1e-6)
    assert told(first, second, tct) == [largest.format("fedavg"), smallest.format("tct")]
    assert told(first, one("fedavg-iid-seed1", lr=1e-6)) == told(one("fedavg-iid-seed0", lr=0.1)) == []
    elsewhere = one("fedavg-iid-seed1", lr=1e-6, split="classes:2")
    assert told(first, elsewhere) == [largest.format("fedavg on iid"), smallest.format("fedavg on classes:2")]
    assert not told(RunFolder.read(tuned / "fedavg-iid-seed0" / "lr-1e-06"))  # which was not chosen


def test_a_comparison_that_was_stopped_goes_on_as_if_it_had_not_been(tuned: Path, tmp_path: Path) -> None:
    stop = "fedavg-iid-seed1/lr-1e-06"

    class Impatient(Watcher):
        def begin(self, stage: str, rounds: int, done: int) -> None:
            raise KeyboardInterrupt

    def watch(name: str, config: RunConfig) -> Watcher:
        return Impatient() if name == stop else Watcher()

    with pytest.raises(KeyboardInterrupt):
        carry_out(TUNED, tmp_path / "c", watch=watch)
    choices = [path.parent.name for path in (tmp_path / "c").glob("*/choice.json")]
    assert choices == ["fedavg-iid-seed0"]  # made as soon as its runs were over
    over = {path: path.stat().st_mtime_ns for path in (tmp_path / "c" / choices[0]).rglob("*")}
    again = Plan.read(tmp_path / "c", "compare")
    assert again == TUNED
    assert table(carry_out(again, tmp_path / "c", resume=True))[0].seeds == 2
    assert contents(tmp_path / "c") == contents(tuned)
    assert {path: path.stat().st_mtime_ns for path in over} == over


@pytest.mark.filterwarnings("ignore:stage1 diverged")
def test_where_every_rate_diverges_there_is_no_mean_and_the_others_go_on(tmp_path: Path) -> None:
    plan = comparison(["tct", "fedavg"], ["iid"], [0], SMALL | {"lr": "1e30,1e29"})
    runs = carry_out(plan, tmp_path / "c")
    for line in table(runs):
        assert (line.rating, line.chosen, line.choice("lr")) == (None, {"lr": (None,)}, "-")
    with pytest.raises(FedtctError, match=r"none of lr-1e\+30, lr-1e\+29 can be chosen: every run diverged"):
        chosen(tmp_path / "c" / "fedavg-iid-seed0")


def test_nobody_to_choose_by_is_refused_before_any_run(tmp_path: Path) -> None:
    plan = comparison(["fedavg"], ["iid"], [0], SMALL | {"lr": RATES, "holdout": 0.001})
    with pytest.raises(FedtctError, match=r"no silo has enough samples to hold out 0\.001 of them"):
        carry_out(plan, tmp_path / "c")
    assert not list(tmp_path.iterdir())
