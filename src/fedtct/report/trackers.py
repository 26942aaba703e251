"""Writes the metrics of runs for TensorBoard and MLflow."""

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from fedtct.errors import FedtctError
from fedtct.history import Row
from fedtct.report.curves import so_far
from fedtct.runs.choose import read_choice
from fedtct.runs.folder import RunFolder
from fedtct.runs.summary import Summary


def need(tracker: str) -> None:
    """Refuse to go on without it."""
    if importlib.util.find_spec(tracker) is None:
        raise FedtctError(f"{tracker} is not installed: pip install 'fedtct[{tracker}]'")


def metrics(run: RunFolder) -> Iterator[tuple[int, dict[str, float]]]:
    """What was measured after each round, counted over all stages; names are such as ``stage1/test_accuracy``."""
    for row, rounds, megabytes in so_far(run.history):
        yield rounds, {f"{row.stage}/{name}": value for name, value in _numbers(row).items()} | {"megabytes": megabytes}


def _numbers(row: Row) -> dict[str, float]:
    plain = {name: value for name, value in asdict(row).items() if isinstance(value, int | float) and name != "round"}
    measure = "r2" if row.regression else "accuracy"
    return plain | {f"silo_{measure}/{k}": value for k, value in enumerate(row.silo_ratings) if value is not None}


def _settings(run: RunFolder) -> dict[str, Any]:
    return {name: str(value) for name, value in asdict(run.config).items()}


def write_tensorboard(run: RunFolder) -> str:
    """Events in the run's folder; returns where."""
    from torch.utils.tensorboard import SummaryWriter

    folder = run.path / "tensorboard"
    for old in folder.glob("events.out.tfevents.*"):  # each writer begins a file of its own
        old.unlink()
    with SummaryWriter(str(folder)) as writer:
        writer.add_text("config", f"```\n{run.config.to_toml()}```")
        for step, values in metrics(run):
            for name, value in values.items():
                writer.add_scalar(name, value, step)
    return str(folder)


def write_mlflow(run: RunFolder) -> str:
    """A run of the experiment "fedtct" wherever MLflow tracks; returns its name there."""
    import mlflow

    mlflow.set_experiment("fedtct")
    name = run.path.name if read_choice(run.path.parent) is None else f"{run.path.parent.name}/{run.path.name}"
    with mlflow.start_run(run_name=name) as tracked:
        mlflow.log_params(_settings(run))
        for step, values in metrics(run):
            mlflow.log_metrics(values, step=step)
        mlflow.set_tags({name: str(value) for name, value in asdict(Summary.of(run)).items()})
    return f"{mlflow.get_tracking_uri()}: fedtct, {tracked.info.run_name} ({tracked.info.run_id})"


TRACKERS: dict[str, Callable[[RunFolder], str]] = {"tensorboard": write_tensorboard, "mlflow": write_mlflow}
