"""The runner where something goes wrong: what it cannot do it says, and no result is there that is none."""

import json
import math
import time
from dataclasses import replace

import pytest
from paper_helpers import let_jump

from fedtct.cli import paper as cli
from fedtct.errors import FedtctError
from fedtct.history import Row
from fedtct.paper import runner as module
from fedtct.paper.figures import FASHION, train
from fedtct.paper.folder import OutOfTime
from fedtct.paper.protocol import SCALES, Tangent
from fedtct.paper.results import Results
from fedtct.paper.runner import Runner
from fedtct.runs.metrics import METRICS, to_line
from fedtct.stage2.iterative import IterativeRegression

FEDAVG = train(FASHION, "classes:2", rates=(0.1,))


@pytest.fixture
def runner(tmp_path):
    return Runner(tmp_path / "state", tmp_path / "results", scale="tiny")


def record(runner, run):
    return json.loads(runner.result(run).read_text())


def test_a_failure_is_not_taken_for_a_step_size_that_diverges(runner, monkeypatch):
    def full_disk(self, session, problem):
        raise FedtctError("cannot write: free disk space and resume")

    monkeypatch.setattr(IterativeRegression, "solve", full_disk)
    with pytest.raises(FedtctError, match="free disk space"):
        runner.run([Tangent(FEDAVG, lr=1e-5)])
    assert not runner.result(Tangent(FEDAVG, lr=1e-5)).exists()


def test_features_of_random_weights_take_no_training(runner):
    runner.run([Tangent(FEDAVG, share=0.0)])
    assert [row["stage"] for row in record(runner, Tangent(FEDAVG, share=0.0))["rows"]].count("stage1") == 1
    assert not runner._folder(FEDAVG, 0.1).exists()


def test_tct_without_a_rate_that_lasts_has_no_number_and_stops_no_other_run(tmp_path):
    runner = Runner(tmp_path / "state", tmp_path / "results", scale="tiny", lr=1e30)
    network = train(FASHION, "classes:2")
    runs = [Tangent(network), Tangent(network, steps=100)]
    with pytest.warns(UserWarning, match="diverged"):
        runner.run([*runs, Tangent(FEDAVG)])
    for run in runs:
        assert record(runner, run)["top1_percent"] is None
        assert "stage 1 diverged" in record(runner, run)["refused"]
        (result,) = Results(runner.results).of(run)
        assert result.diverged
    assert record(runner, Tangent(FEDAVG))["top1_percent"] is not None


def test_a_rate_that_diverges_in_the_very_round_that_tct_starts_from_does_not_last(runner, monkeypatch):
    let_jump(monkeypatch, 0.1, SCALES["tiny"].stage1)
    run = Tangent(replace(FEDAVG, rates=(0.1, 1e-5)))
    with pytest.warns(UserWarning, match="diverged"):
        runner.run([run])
    assert record(runner, run)["config"]["lr"] == 1e-5
    assert record(runner, run)["diverged"] == {"0.1": SCALES["tiny"].stage1}


def test_a_rate_is_judged_by_the_mean_of_its_last_rounds(tmp_path, monkeypatch):
    """A single round is noisy: the last may be a lucky one."""
    curves = {0.1: [0.9, 0.5, 0.5, 0.5, 0.5, 0.5, 0.9], 0.01: [0.6] * 7}

    def advance(self, run, lr, rounds):
        rows = [Row("stage1", number, holdout_accuracy=value) for number, value in enumerate(curves[lr])]
        (tmp_path / str(lr)).mkdir()
        (tmp_path / str(lr) / METRICS).write_text("".join(map(to_line, rows)))
        return tmp_path / str(lr)

    monkeypatch.setattr(Runner, "_advance", advance)
    runner = Runner(tmp_path / "state", tmp_path / "results", scale="tiny", grid_rounds=7)
    scores, _ = runner._grid(replace(FEDAVG, rates=tuple(curves)))
    assert scores == pytest.approx({0.1: 0.58, 0.01: 0.6})


def test_tct_says_what_both_of_its_stages_ran_on(runner, monkeypatch):
    monkeypatch.setattr("fedtct.runs.provenance.environment", lambda device: {"git_commit": "of stage 1"})
    runner.run([FEDAVG])
    monkeypatch.setattr("fedtct.runs.provenance.environment", lambda device: {"git_commit": "of stage 2"})
    runs = [Tangent(FEDAVG), Tangent(FEDAVG, steps=100)]
    runner.run(runs)
    for run in runs:
        assert {sitting["git_commit"] for sitting in record(runner, run)["environment"]} == {"of stage 1", "of stage 2"}
        assert record(runner, run)["environment"][-1]["git_commit"] == "of stage 2"


def test_a_run_that_was_killed_as_it_began_is_begun_again(runner):
    folder = runner._folder(FEDAVG, 0.1)
    folder.mkdir(parents=True)
    (folder / "config.toml.half").write_text("dataset")
    runner.run([FEDAVG])
    assert runner.result(FEDAVG).is_file()


def test_no_run_is_begun_when_time_is_over(runner, monkeypatch):
    write = Runner._write

    def last(self, *given):
        write(self, *given)
        self.deadline = -math.inf

    monkeypatch.setattr(module.Runner, "_write", last)
    other = train(FASHION, "classes:1", rates=(0.1,))
    with pytest.raises(OutOfTime):
        runner.run([FEDAVG, other])
    assert not runner._folder(other, 0.1).exists()


def test_all_seeds_together_have_the_time_that_is_given(tmp_path, monkeypatch):
    ends = []

    def run(self, wanted):
        ends.append(self.deadline)
        time.sleep(0.2)

    monkeypatch.setattr(Runner, "run", run)
    cli.run(["table2"], scale="tiny", seeds=3, minutes=1, state=tmp_path / "state", results=tmp_path / "results")
    assert len(ends) == 3
    assert max(ends) - min(ends) < 0.1
