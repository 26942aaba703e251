"""The tables that commands end with: a regression's error, and what to look at where one class is rare."""

import json
import math
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtct.cli import main
from fedtct.history import Row
from fedtct.runs.caveats import _behind, caveats
from fedtct.runs.folder import RunFolder

QUICK = ["--rounds", "2", "--local-epochs", "1", "--d", "20"]


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two factories: how long parts last, and whether they are among the four in a hundred that have a defect."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "silos").mkdir()
    for seed, name in enumerate(("north", "south")):
        draws = np.random.default_rng(seed)
        heat = draws.normal(size=200)
        table = pd.DataFrame({"heat": heat, "state": draws.permutation(["defect"] * 8 + ["ok"] * 192)})
        table["hours"] = 1000.5 + 100 * heat + draws.normal(0, 20, 200)
        table.to_csv(f"silos/{name}.csv", index=False)
    return tmp_path


def out_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    code = main([*words])
    out, err = capsys.readouterr()
    assert code == 0, err
    return out


def test_a_regression_shows_its_error_in_its_own_units(parts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--data", "silos", "--target", "hours", "--ignore", "state", *QUICK]
    table = out_of(capsys, "run", *asked, "--method", "fedavg", "--out", "a")
    told = json.loads(out_of(capsys, "run", "--resume", "a", "--json"))
    assert told["train_rmse"] > 10
    titles, values, *_ = (re.split(r"  +", line.strip()) for line in table.splitlines())
    assert dict(zip(titles, values, strict=True))["held-out RMSE"] == f"{told['holdout_rmse']:.4g}"
    assert "always" not in table
    table = out_of(capsys, "compare", *asked, "--methods", "fedavg,tct", "--seeds", "2", "--out", "b")
    titles, first, second, *_ = (re.split(r"  +", line.strip()) for line in table.splitlines())
    written = json.loads((parts / "b" / "summary.json").read_text())
    for shown, line, method in zip((first, second), written["table"], ("fedavg", "tct"), strict=True):
        errors = [written["runs"][f"{method}-own-seed{seed}"]["holdout_rmse"] for seed in (0, 1)]
        assert dict(zip(titles, shown, strict=True))["held-out RMSE"] == f"{sum(errors) / 2:.4g}"
        assert line["holdout_rmse"] == pytest.approx(sum(errors) / 2)


def test_a_silo_whose_targets_have_no_r2_is_named(parts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (parts / "silos" / "west.csv").write_text("heat,state,hours\n" + "0.5,ok,1000.5\n" * 30)
    asked = ["--data", "silos", "--target", "hours", "--ignore", "state", *QUICK]
    unknown = (
        "no R² for west: all held-out targets are equal, or there is only one; the worst silo is one of the others"
    )
    assert unknown in out_of(capsys, "run", *asked, "--method", "fedavg", "--out", "a").splitlines()
    assert f"N{unknown[1:]}." in (parts / "a" / "report.html").read_text(encoding="utf-8")
    assert unknown in out_of(capsys, "compare", *asked, "--methods", "fedavg,tct", "--out", "b").splitlines()


def test_what_diverged_is_not_laid_to_the_targets(parts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--data", "silos", "--target", "hours", "--ignore", "state", *QUICK, "--method", "fedavg"]
    assert "no R²" not in out_of(capsys, "run", *asked, "--lr", "1e6", "--out", "a")


def test_where_no_silo_has_an_r2_there_is_no_worst(parts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in (parts / "silos").iterdir():
        pd.read_csv(file).head(5).to_csv(file, index=False)  # one of them is held out
    asked = ["--data", "silos", "--target", "hours", "--ignore", "state", *QUICK, "--method", "fedavg"]
    told = out_of(capsys, "run", *asked, "--out", "a").splitlines()
    assert "no R² for north, south: all held-out targets are equal, or there is only one" in told
    assert not [line for line in told if "worst silo" in line]


def test_a_worst_silo_that_few_samples_make_so_is_told(parts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def notes(target: str, other: str, share: str) -> list[str]:
        asked = ["--data", "silos", "--target", target, "--ignore", other, "--holdout", share, *QUICK]
        told = out_of(capsys, "compare", *asked, "--methods", "fedavg", "--out", f"{target}{share}").splitlines()
        return [line for line in told if line.startswith("the worst silo, ")]

    (few,) = notes("state", "hours", "0.1")
    assert re.fullmatch("the worst silo, (north|south), is rated on 20 held-out samples, each worth 5 points", few)
    assert f"T{few[1:]}." in (parts / "state0.1" / "report.html").read_text(encoding="utf-8")
    (few,) = notes("hours", "state", "0.1")
    assert re.fullmatch("the worst silo, (north|south), is rated on 20 held-out samples", few)
    assert not notes("state", "hours", "0.25")
    runs = [
        RunFolder.read(folder) for made in ("state0.1", "hours0.1") for folder in sorted(Path(made).glob("*-seed0"))
    ]
    assert len(set(caveats(runs[:1]) + caveats(runs[1:]))) == 2
    (told,) = caveats(runs)  # once for all that are compared
    assert told.startswith("worst silo")


def test_that_held_out_samples_also_chose_the_learning_rates_is_told_once(
    parts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--data", "silos", "--target", "state", "--ignore", "hours", *QUICK, "--lr", "1.0,0.01,0.001"]
    told = out_of(capsys, "compare", *asked, "--methods", "fedavg,tct", "--out", "a").splitlines()
    same = "the held-out samples that rate these runs also chose their learning rates, each from 3 candidates"
    assert [line for line in told if "also chose" in line] == [same]
    assert f"T{same[1:]}." in (parts / "a" / "report.html").read_text(encoding="utf-8")


def test_a_model_that_was_better_in_earlier_rounds_is_told(parts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in (parts / "silos").iterdir():  # much to learn by heart: what can be learnt soon is, and then noise
        columns = np.random.default_rng(0).normal(size=(200, 12))
        noisy = columns[:, 0] + np.random.default_rng(1).normal(0, 2, 200)
        pd.DataFrame(columns).add_prefix("c").assign(hours=noisy).to_csv(file, index=False)
    asked = ["--data", "silos", "--target", "hours", "--rounds", "30", "--lr", "0.1", "--holdout", "0.3"]

    def note(command: str, *more: str) -> list[str]:
        told = out_of(capsys, command, *asked, *more).splitlines()
        return [line for line in told if line.startswith("held-out ratings were better in 5 earlier rounds")]

    (told,) = note("run", "--method", "fedavg", "--out", "a")
    rated = [row.rating("holdout") or 0.0 for row in RunFolder.read("a").history]
    fall = max(sum(rated[k : k + 5]) for k in range(len(rated) - 4)) / 5 - sum(rated[-5:]) / 5
    assert fall > 0.01
    assert f", fedavg by {fall:.2f}: a patience of 3 " in told
    assert f"H{told[1:]}." in (parts / "a" / "report.html").read_text(encoding="utf-8")
    assert not note("run", "--method", "fedavg", "--patience", "3", "--out", "b")
    (told,) = note("compare", "--methods", "fedavg,centralized", "--out", "c")
    assert re.search(f", fedavg by {fall:.2f}, centralized by [0-9.]+:", told)
    runs = [RunFolder.read("a")]
    runs[0].history = runs[0].history[:8]  # too short to tell
    assert not [told for told in caveats(runs) if "earlier rounds" in told]


@given(
    before=st.floats(0, 1),
    after=st.floats(0, 1),
    held=st.integers(1, 10_000),
    regression=st.booleans(),
    stayed=st.booleans(),
    finished=st.booleans(),
)
def test_a_model_worse_than_its_stage_1_is_told_unless_that_may_be_noise(
    before, after, held, regression, stayed, finished
):
    def row(stage: str, number: int, rating: float, raters: str) -> Row:
        kind = {"train_r2": 0.5, "holdout_r2": rating} if regression else {"holdout_accuracy": rating}
        return Row(stage, number, train_loss=1.0, rated_by=tuple(raters), **kind)

    run = SimpleNamespace(
        history=[
            row("stage1", 0, 1.0, "ab"),
            row("stage1", 9, before, "ab"),
            row("stage2", 1, after, "ab"[: 1 + stayed]),
        ],
        finished=finished,
        failure="",
        config=SimpleNamespace(full_method="tct", patience=0),
        agreement=lambda: {"held": {"a": held, "b": 0}},
    )
    lag = before - after
    variance = (4 * after * (1 - after) ** 2 if regression else after * (1 - after)) / held  # of either rating
    told = _behind([run])
    assert bool(told) == (finished and stayed and lag >= 0.01 and lag > 2 * math.sqrt(2 * variance))
    lost = f"by {lag:.2f}" if regression else f"by {100 * lag:.1f} points"
    assert f"better than the model, tct {lost}: to keep that network, run stage 1's method alone" in told or not told


def test_where_one_class_is_rare_it_says_what_to_look_at(parts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--data", "silos", "--target", "state", "--ignore", "hours", *QUICK]
    told = out_of(capsys, "run", *asked, "--method", "fedavg", "--out", "a").splitlines()
    file = parts / "a" / "findings" / "classes.json"
    (found, missed, *none), (wrong, right, *_) = json.loads(file.read_text())["confusion"]
    assert (found, wrong, none) == (0, 0, [0])  # heat tells nothing: the model says that all parts are good
    share = f"{100 * right / (missed + right):.1f} %"
    always = (
        f"always predicting 'ok' would give {share}: accuracy says little. Balanced accuracy, the mean over classes: "
    )
    assert f"{always}50.0 %" in told
    assert "RMSE" not in told[0]
    told = out_of(capsys, "compare", *asked, "--methods", "fedavg,centralized", "--out", "b").splitlines()
    assert f"{always}fedavg 50.0 %, centralized 50.0 %" in told
    assert pd.read_csv(parts / "b" / "summary.csv")["balanced_accuracy"].tolist() == [0.5, 0.5]
    file.write_text('{"confusion": [[0, 0, 0], [0, 9, 0]], "tested": false}')
    told = out_of(capsys, "run", "--resume", "a").splitlines()
    assert "all rated samples are 'ok': the score says nothing about other classes" in told
    file.unlink()
    assert "'ok'" not in out_of(capsys, "run", "--resume", "a")


@pytest.mark.drawn
def test_a_silo_of_one_sample_hides_nothing_about_the_others(parts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (parts / "silos" / "west.csv").write_text("heat,state,hours\n0.5,ok,1000.5\n")
    asked = ["--data", "silos", "--target", "state", "--ignore", "hours", *QUICK]
    told = out_of(capsys, "run", *asked, "--method", "fedavg", "--out", "a").splitlines()
    titles, values, *_ = (re.split(r"  +", line.strip()) for line in told)
    assert dict(zip(titles, values, strict=True))["worst silo"].endswith(" %")
    unknown = "nothing is held out by west: held-out ratings say nothing about it"
    assert unknown in told
    assert any(line.startswith("always predicting 'ok' would give ") for line in told)
    found = {name: json.loads((parts / "a" / "findings" / f"{name}.json").read_text()) for name in ("silos", "alone")}
    for finding in found.values():
        assert [value is None for value in finding["own"]] == [False, False, True]  # in the order of their names
    assert len(found["alone"]["everybody"]) == 3
    page = (parts / "a" / "report.html").read_text()
    assert page.count(f"N{unknown[1:]}.") == 2  # with the answer and the silos
    told = out_of(capsys, "compare", *asked, "--methods", "fedavg,centralized", "--out", "b").splitlines()
    assert unknown in told
    assert pd.read_csv(parts / "b" / "summary.csv")["balanced_accuracy"].tolist() == [0.5, 0.5]


def test_so_it_is_with_numbers(parts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (parts / "silos" / "west.csv").write_text("heat,state,hours\n0.5,ok,1000.5\n")
    asked = ["--data", "silos", "--target", "hours", "--ignore", "state", *QUICK]
    told = out_of(capsys, "run", *asked, "--method", "fedavg", "--out", "a").splitlines()
    assert "worst silo, own" not in told[0]
    assert "nothing is held out by west: held-out ratings say nothing about it" in told
    own = json.loads((parts / "a" / "findings" / "silos.json").read_text())["own"]
    assert [value is None for value in own] == [False, False, True]


def test_what_is_odd_about_samples_is_told_under_their_silos_names(
    parts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in sorted((parts / "silos").iterdir()):
        table = pd.read_csv(file)
        table["town"] = [f"{file.stem} {row}" if row % 15 == 0 else "elsewhere" for row in range(len(table))]
        table.to_csv(file, index=False)
    command = ["run", "--data", "silos", "--target", "state", "--ignore", "hours", "--method", "fedavg", *QUICK]
    assert main([*command, "--holdout", "0.3", "--out", "a"]) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if "column 'town'" in line]
    assert told
    assert all(re.search(r"warning: (north|south): column", line) for line in told)


@pytest.mark.drawn
def test_private_silos_that_rate_no_model_end_with_one_all_the_same(
    parts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (parts / "arrays").mkdir()
    for name in ("north", "south"):
        np.savez(parts / "arrays" / f"{name}.npz", x=np.eye(20, 5)[:, None], y=np.arange(20) % 2)
    few = ["--data", "arrays", "--rounds", "1", "--epsilon", "8", "--model", "linear", "--json"]
    assert main(["run", *few, "--method", "fedavg", "--out", "a"]) == 0
    assert json.loads(capsys.readouterr().out)["train_accuracy"] is None
    assert (parts / "a" / "model").is_dir()
    assert (parts / "a" / "report.html").is_file()
    assert main(["export", "a"]) == 0
    card = capsys.readouterr().out
    assert "**Accuracy:** not known: private silos rate no models" in card
    assert "not calibrated: silos shared nothing about held-out samples" in card
    assert "| silo |" not in card  # what each silo holds out would tell of it
    assert main(["compare", *few, "--methods", "fedavg,fedprox", "--out", "b"]) == 0
    assert (parts / "b" / "report.html").is_file()


def test_what_is_spent_is_said_of_runs_that_begin_alone(parts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not of one that is refused, nor of one that is over."""
    (parts / "arrays").mkdir()
    np.savez(parts / "arrays" / "north.npz", x=np.eye(20, 5)[:, None], y=np.arange(20) % 2)
    few = ["--rounds", "1", "--epsilon", "8", "--model", "linear", "--method", "fedavg", "--out", "a"]
    promise = "fedavg  differential privacy of every sample: ε = 8 at δ = 1e-05, spent on 1 reply of each silo"

    def said(*words: str) -> str:
        main(["run", *words])
        return capsys.readouterr().err

    refused = said("--data", "silos", "--target", "state", *few)
    assert refused.startswith("fedtct: differential privacy needs arrays with labels from 0")
    assert promise in said("--data", "arrays", *few)
    assert "differential privacy" not in said("--resume", "a")
