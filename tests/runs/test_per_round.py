"""Some silos a round: a configuration does what the federation does, and a report does not call those away away."""

from pathlib import Path

import pytest
import torch

from fedtct import FedtctError, LocalFederation, Scaffold
from fedtct.report.page import silos
from fedtct.report.page.problems import arrange
from fedtct.runs.config import RunConfig
from fedtct.runs.execute import execute
from fedtct.runs.folder import RunFolder
from fedtct.runs.jobs import prepare
from fedtct.runs.summary import Summary

DATA = {"split": "classes:4", "limit": 200, "silos": 4}
SETTINGS = DATA | {"rounds": 3, "local_epochs": 1, "model": "linear", "per_round": 2}


def run_of(path: Path, **more: object) -> RunFolder:
    folder = RunFolder.create(path, RunConfig.of(**{**SETTINGS, "method": "scaffold", "device": "cpu", **more}))
    execute(folder)
    return RunFolder.read(path)


def test_a_run_is_the_fit_with_as_many_silos_a_round(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run")
    job = prepare(run.config)
    federation = LocalFederation(job.silos, "cpu", per_round=2)
    fit = Scaffold("linear", rounds=3, local_epochs=1, num_classes=10).fit(federation)
    assert [row.silos for row in run.history] == [row.silos for row in fit.history]
    x, _ = job.test
    assert torch.equal(run.fit().model.scores(x), fit.model.scores(x))


@pytest.mark.parametrize("method", [{}, {"method": "tct", "rounds": (3, 2), "p": 50, "steps": 5}])
def test_bytes_are_the_mean_silos_drawn_or_not(tmp_path: Path, method: dict[str, object]) -> None:
    run = run_of(tmp_path / "run", **method)
    travelled = sum(sum(row.silo_bytes_up) + sum(row.silo_bytes_down) for row in run.history)
    told = Summary.of(run)
    assert told.bytes_up + told.bytes_down == pytest.approx(travelled / 4, abs=len(run.history) * 2)
    assert min(len(row.silos) for row in run.history if row.silos) == 2


def test_those_that_were_not_drawn_were_not_away(tmp_path: Path) -> None:
    (problem,) = arrange([run_of(tmp_path / "run")])
    section = silos.section(problem)
    assert section is not None
    assert "In each round of training 2 of the silos take part, drawn at random." in section.intro
    assert "Away" not in section.intro


def test_more_than_there_are_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FedtctError, match="per_round is 5, but there are 4 silos"):
        run_of(tmp_path / "run", per_round=5)
