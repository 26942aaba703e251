"""The pictures that commands leave in run folders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedtct.runs.execute import Job
    from fedtct.runs.folder import RunFolder

PLOTS = "plots"
TITLES = {"fedavg": "FedAvg", "fedprox": "FedProx", "scaffold": "SCAFFOLD", "feddyn": "FedDyn", "fedadam": "FedAdam"}
TITLES |= {"centralized": "Centralized", "fedavg-last-layer": "FedAvg, last layer", "tct": "TCT"}


def draw_run(folder: RunFolder, job: Job) -> None:
    """Accuracy by round and by megabyte, and who holds which classes."""
    import torch

    from fedtct.report import write_plots, write_split_plot

    config, plots = folder.config, folder.path / PLOTS
    write_plots({TITLES[config.method]: folder.history}, plots, title=f"{config.dataset}, {config.split}")
    labels = [torch.cat([silo.y, silo.held_y]).cpu() for silo in job.silos]
    counts = torch.stack([y.bincount(minlength=job.data.num_classes) for y in labels]).numpy()
    write_split_plot(counts, plots, job.data.class_names)


def draw_comparison(runs: Mapping[str, RunFolder], folder: Path) -> None:
    """All methods in one picture, for each split."""
    from fedtct.report import write_plots
    from fedtct.runs.compare import by_method_and_split, slug

    groups = by_method_and_split(runs)
    for split in dict.fromkeys(split for split, _ in groups):
        curves = {
            TITLES[method]: [run.history for run in group] for (own, method), group in groups.items() if own == split
        }
        dataset = next(iter(runs.values())).config.dataset
        write_plots(curves, folder / PLOTS / slug(split), title=f"{dataset}, {split}")
