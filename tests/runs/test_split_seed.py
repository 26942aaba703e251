"""Deals and training may have seeds of their own: ± over seeds is then of training alone."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedtct.report.page import write_report
from fedtct.report.page.problems import arrange
from fedtct.runs.compare import comparison
from fedtct.runs.config import RunConfig
from fedtct.runs.findings import find_all
from fedtct.runs.jobs import prepare
from fedtct.runs.reading import read_runs

SMALL: dict[str, Any] = {"method": "fedavg", "silos": 3, "limit": 150, "rounds": 1, "local_epochs": 1, "holdout": 0.2}


def dealt(**settings: Any) -> list[Tensor]:
    """What each silo has, and what of it it holds out."""
    silos = prepare(RunConfig.of(**SMALL, **settings)).silos
    return [part for silo in silos for part in (silo.x, silo.y, silo.held_x, silo.held_y)]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))


@pytest.mark.parametrize("split", ["iid", "classes:4", "dirichlet:1"])
def test_the_split_has_its_own_seed_or_the_seed(split: str) -> None:
    first, second = dealt(split=split), dealt(split=split, seed=1)
    assert not same(first, second)
    assert same(dealt(split=split, seed=1, split_seed=0), first)
    assert same(dealt(split=split, split_seed=1), second)


def test_training_has_the_seed_whatever_the_split_has() -> None:
    assert RunConfig.of(**SMALL, seed=1, split_seed=0).build() == RunConfig.of(**SMALL, seed=1).build()


def test_a_report_tells_one_deal_from_one_a_seed(tmp_path: Path) -> None:
    for name, more in {"anew": {}, "one": {"split_seed": 0}}.items():
        settings = {name: value for name, value in SMALL.items() if name != "method"} | more
        comparison(["fedavg"], ["classes:4"], [0, 1], settings).execute(tmp_path / name, look=find_all)
        write_report(read_runs(tmp_path / name), tmp_path / f"{name}.html")
    told = "over seeds of training, all on the deal of split_seed 0"
    anew, one = ((tmp_path / f"{name}.html").read_text() for name in ("anew", "one"))
    assert told in one
    assert told not in anew
    titles = [problem.title for problem in arrange(read_runs(tmp_path / "anew", tmp_path / "one"))]
    assert [title.rpartition(", ")[2] for title in titles] == ["split_seed seed", "split_seed 0"]
