"""Metrics for TensorBoard and MLflow: written by the real ones and read back."""

import sys
from pathlib import Path

import pytest

from fedtct.cli import main
from fedtct.history import History, Row
from fedtct.report.trackers import metrics
from fedtct.runs.folder import RunFolder

pytestmark = pytest.mark.xdist_group("report")


@pytest.fixture
def run(compared: Path) -> RunFolder:
    return RunFolder.read(compared / "tct-classes4-seed0")


def test_tensorboard_holds_every_row_once(run: RunFolder) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for _ in range(2):  # written again, it is not there twice
        assert main(["report", str(run.path), "--tensorboard"]) == 0
    events = EventAccumulator(str(run.path / "tensorboard")).Reload()
    accuracies = [row.test_accuracy for row in run.history if row.stage == "stage2"]
    assert [event.value for event in events.Scalars("stage2/test_accuracy")] == pytest.approx(accuracies)
    assert [event.step for event in events.Scalars("stage2/test_accuracy")] == [4, 5, 6]  # after 2 + 2 rounds
    total = sum(row.bytes_up + row.bytes_down for row in run.history) / 1e6
    assert events.Scalars("megabytes")[-1].value == pytest.approx(total)


def test_silos_are_told_apart_whatever_is_learnt(run: RunFolder) -> None:
    (_, found), *_ = metrics(run)
    assert [found[f"stage1/silo_accuracy/{k}"] for k in range(3)] == list(run.history[0].silo_accuracies)
    run.history = History([Row("stage1", 0, train_r2=0.5, silo_r2s=(0.25, None, 0.75))])  # as a file has no number
    ((_, found),) = metrics(run)
    assert {name: value for name, value in found.items() if "silo" in name} == {
        "stage1/silo_r2/0": 0.25,
        "stage1/silo_r2/2": 0.75,
    }


@pytest.mark.slow
def test_mlflow_holds_settings_and_rows(run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    mlflow.set_tracking_uri(None)
    assert main(["report", str(run.path), "--mlflow"]) == 0
    client = mlflow.MlflowClient()
    (found,) = client.search_runs([client.get_experiment_by_name("fedtct").experiment_id])
    assert found.data.params["method"] == "tct"
    assert found.data.metrics["stage2/test_accuracy"] == pytest.approx(run.history[-1].test_accuracy)
    assert len(client.get_metric_history(found.info.run_id, "stage1/train_loss")) == 3


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_one_that_is_not_installed_is_named(
    name: str, compared: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr("importlib.util.find_spec", lambda wanted: None)
    assert main(["report", str(compared), f"--{name}"]) == 2
    assert f"{name} is not installed: pip install 'fedtct[{name}]'" in capsys.readouterr().err
