"""Runs that were made, read again in Python, and a comparison's table for a paper."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtct
from fedtct import FedtctError
from fedtct.runs.choose import candidates, choose
from fedtct.runs.compare import comparison
from fedtct.runs.config import RunConfig
from fedtct.runs.folder import RunFolder
from fedtct.runs.summary import Summary
from fedtct.runs.tables import Line, as_latex, table, write_comparison

SMALL: dict[str, Any] = {"limit": 150, "silos": 3, "local_epochs": 1, "p": 200, "steps": 10, "rounds": 2}


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "compared"
    runs = comparison(["fedavg", "fedprox"], ["iid", "classes:2"], [0, 1], SMALL).execute(folder)
    write_comparison(table(runs), runs, folder)
    return folder


def test_runs_that_are_read_are_those_in_the_folders_each_once(compared: Path) -> None:
    one = compared / "fedavg-iid-seed0"
    runs = fedtct.read_runs(compared, str(one))
    assert len(runs) == 8
    assert sorted(run.path for run in runs) == sorted(path.parent for path in compared.glob("*/config.toml"))
    (again,) = fedtct.read_runs(one)
    assert again.config == RunFolder.read(one).config
    assert list(again.history) == list(RunFolder.read(one).history)
    assert again.fit().history == again.history
    assert [run.path for run in runs[2:4]] == [runs[2].path, runs[3].path]


def test_a_table_of_runs_has_what_they_reached_and_the_settings_in_which_they_differ(compared: Path) -> None:
    runs = fedtct.read_runs(compared)
    found = runs.to_pandas()
    for (_, row), run in zip(found.iterrows(), runs, strict=True):
        expected = Summary.of(run)
        assert (row.folder, row.method, row.test_accuracy) == (str(run.path), expected.method, expected.test_accuracy)
    assert not {"chosen", "lr", "mu", "device"} & set(found)
    means = found.groupby(["split", "method"])["test_accuracy"].mean()
    for line in table({str(run.path): run for run in runs}):
        assert means[line.split, line.method] == pytest.approx(line.rating)


def test_of_a_choice_the_table_has_the_run_that_was_taken_and_on_request_the_others(
    compared: Path, tmp_path: Path
) -> None:
    made = choose(candidates(RunConfig.of(**SMALL, method="fedavg", holdout=0.2), "lr", [0.1, 0.001]), tmp_path / "c")
    runs = fedtct.read_runs(tmp_path / "c")
    assert runs.to_pandas()["folder"].tolist() == [str(made.best.path)]
    found = runs.to_pandas(lost=True)
    assert sorted(found["lr"]) == [0.001, 0.1]
    assert found.set_index("folder")["chosen"].to_dict() == {
        str(run.path): run.path == made.best.path for run in made.runs.values()
    }
    (beaten,) = set(made.runs.values()) - {made.best}
    assert len(fedtct.read_runs(beaten.path).to_pandas()) == 1  # whoever asks for it alone gets it
    both = fedtct.read_runs(tmp_path / "c", compared).to_pandas(lost=True)
    assert both["chosen"].notna().sum() == 2
    assert {"lr", "holdout"} <= set(both)


def test_what_is_no_run_or_has_no_rounds_is_refused(compared: Path, tmp_path: Path) -> None:
    with pytest.raises(FedtctError, match="is not a run"):
        fedtct.read_runs(compared, tmp_path)
    with pytest.raises(FedtctError, match="none was given"):
        fedtct.read_runs()
    (tmp_path / "config.toml").write_text((compared / "fedavg-iid-seed0" / "config.toml").read_text())
    with pytest.raises(FedtctError, match="no rounds yet"):
        fedtct.read_runs(tmp_path)


def line(method: str, split: str, rating: float | None, spread: float | None = None, **more: Any) -> Line:
    values: dict[str, Any] = dict.fromkeys(Line.__dataclass_fields__) | {"rated_on": "test", "regression": False}
    return Line(**values | {"method": method, "split": split, "rating": rating, "spread": spread, "seeds": 1} | more)


def test_a_table_for_a_paper_has_the_means_of_the_comparison(compared: Path) -> None:
    written = (compared / "summary.tex").read_text()
    runs = {str(run.path): run for run in fedtct.read_runs(compared)}
    for found in table(runs):
        assert found.rating is not None
        assert found.spread is not None
        assert f"{100 * found.rating:.1f}" in written
        assert rf"\pm {100 * found.spread:.1f}" in written
        assert found.spread == pytest.approx(np.std([*found.by_seed.values()], ddof=1))
    assert "method & iid & classes:2" in written
    assert "over 2 seeds" in written
    assert written.count(r"\\") == 3
    assert written.count(r"\mathbf") >= 2


def test_the_best_of_each_split_is_in_bold_and_what_is_missing_is_a_dash() -> None:
    text = as_latex([line("tct", "iid", 0.9), line("fedavg", "iid", 0.8), line("tct", "classes:1", None)])
    assert r"TCT & $\mathbf{90.0}$ & -- \\" in text
    assert r"FedAvg & $80.0$ & -- \\" in text
    bound = as_latex([line("centralized", "iid", 0.95), line("tct", "iid", 0.9004), line("scaffold", "iid", 0.8997)])
    assert [row for row in bound.splitlines() if "mathbf" in row] == [
        r"TCT & $\mathbf{90.0}$ \\",
        r"SCAFFOLD & $\mathbf{90.0}$ \\",
    ]
    numbers = as_latex([line("tct", "own", 0.5, 0.01, seeds=3, regression=True)])
    assert r"$\mathbf{0.500} \pm 0.010$" in numbers
    assert numbers.startswith("% R2 on test data, mean and standard deviation (n - 1) over 3 seeds")


def test_names_of_ones_own_cannot_break_a_table() -> None:
    text = as_latex([line("my_module:A&B{50%}", "my#split", 0.5)])
    assert r"my\_module:A\&B\{50\%\}" in text
    assert r"my\#split" in text
    assert not re.search(r"(?<!\\)[#_]", text.partition("\n")[2])
