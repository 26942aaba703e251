"""Samples that are rated beside copies of them that were trained on."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtct import Silo
from fedtct.cli import main
from fedtct.data.copies import warn_of_copies

COPIES = "are equal to training samples"


@settings(max_examples=30, deadline=None)
@given(new=st.integers(1, 20), copied=st.integers(0, 20), kind=st.sampled_from(["table", "features", "images"]))
def test_those_that_are_copies_are_counted(new: int, copied: int, kind: str) -> None:
    draws = np.random.default_rng(0)
    pixels = draws.integers(0, 256, (60, 1, 4, 4), dtype=np.uint8)
    x = torch.from_numpy(pixels if kind == "images" else draws.normal(size=(60, 3)))
    trained, rated = x[:40], x[torch.cat([torch.arange(copied), torch.arange(40, 40 + new)])]
    if kind == "table":
        trained, rated = (pd.DataFrame(part.numpy(), columns=list("abc")).assign(of="x") for part in (trained, rated))
        rated = rated[["of", "c", "a", "b"]]
    with warnings.catch_warnings(record=True, action="always") as heard:
        warn_of_copies(rated, [trained[:7], trained[7:]], "test samples", "leave them out")
    told = [f"{copied} of {copied + new} test samples {COPIES}, so scores say less about new samples: leave them out"]
    assert [str(warning.message) for warning in heard] == (told if copied >= 0.05 * (copied + new) else [])


COUNTS = torch.zeros(40, 3)
TOKENS = torch.ones(40, 5, dtype=torch.int64)
CATEGORIES = pd.DataFrame({"number": [1, 2] * 20, "name": ["a", "b"] * 20})


@pytest.mark.parametrize("x", [COUNTS, TOKENS, CATEGORIES], ids=["counts", "tokens", "categories"])
def test_counts_tokens_and_categories_are_equal_by_chance(x: object, recwarn: pytest.WarningsRecorder) -> None:
    Silo(x, ["ill", "well"] * 20, holdout=0.2)
    assert not [warning for warning in recwarn if COPIES in str(warning.message)]


@pytest.fixture
def silos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "silos").mkdir()
    for seed, name in enumerate(("north", "south")):
        x = np.random.default_rng(seed).normal(size=(40, 3))
        pd.DataFrame(x, columns=list("abc")).assign(well=[0, 1] * 20).to_csv(f"silos/{name}.csv", index=False)
    return tmp_path


ASKED = ["--data", "silos", "--target", "well"]
TRY = ["run", *ASKED, "--method", "fedavg", "--model", "linear", "--rounds", "1", "--out", "run"]


def test_copies_in_a_silo_and_in_test_data_are_told(silos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = pd.read_csv("silos/north.csv")
    table.head(10).to_csv("test.csv", index=False)
    assert main([*TRY, "--test", "test.csv", "--holdout", "0"]) == 0
    told = capsys.readouterr().err
    assert f"10 of 10 test samples {COPIES}" in told
    assert "that north holds out" not in told
    pd.concat([table] * 4).to_csv("silos/north.csv", index=False)
    assert main([*TRY, "--out", "other", "--holdout", "0.1"]) == 0
    assert f"16 of 16 samples that north holds out {COPIES}" in " ".join(capsys.readouterr().err.split())


def test_what_no_silo_has_cannot_be_ignored(silos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = pd.read_csv("silos/north.csv").rename(columns={"c": "seen"})
    table.assign(c=0.5).to_csv("silos/north.csv", index=False)
    assert main([*TRY, "--ignore", "sen"]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    nowhere = "silos/north.csv has no column 'sen' to ignore (the same in south): is it misspelled?"
    assert last == f"fedtct: {nowhere} Every column that is not ignored is used for training"
    assert not (silos / "run").exists() or not (silos / "run" / "metrics.jsonl").exists()
    assert main([*TRY, "--ignore", "seen"]) == 0  # north alone has it
    assert "silos/south.csv has no column 'seen' to ignore" in capsys.readouterr().err
