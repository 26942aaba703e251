"""Run a configuration from its data to its model, in a folder."""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from fedtct.classifier import Fit
from fedtct.data import Dataset, load_dataset, partition
from fedtct.errors import FedtctError
from fedtct.federation import LocalFederation, pick_device
from fedtct.runs.config import RunConfig
from fedtct.runs.folder import PLOTS, RunFolder
from fedtct.seeds import generator
from fedtct.silo import Silo


class Job(NamedTuple):
    """What a run works on."""

    data: Dataset
    silos: list[Silo]


def execute(folder: RunFolder, *, plots: bool = True) -> Fit:
    """Fit what the folder's configuration says, from where it stands; a finished run is only read."""
    if folder.finished:
        return folder.fit()
    config = folder.config
    job = prepare(config)
    federation = LocalFederation(job.silos, config.device)
    federation.on_reply = folder.watcher.reply
    fit = config.build().fit(federation, test=job.data.test, journal=folder)
    if plots:
        plot(folder, job)
    folder.finish(fit)
    return fit


def prepare(config: RunConfig) -> Job:
    """Load the data and deal it, with every check that can be made before training."""
    pick_device(config.device)
    data = _load(config.dataset, config.data_dir)
    x, y = subset(data, config)
    parts = partition(y, config.silos, config.split, config.seed)
    silos = [
        Silo(x[part], y[part], holdout=config.holdout, name=f"silo {index}")
        for index, part in enumerate(map(torch.from_numpy, parts))
    ]
    empty = [silo.name for silo in silos if not len(silo.held_y)]
    if config.needs_holdout and empty:
        raise FedtctError(
            f"{empty[0]} is too small to hold out {config.holdout:g} of {len(silos[int(empty[0][5:])])} samples: "
            "use fewer silos or a larger holdout"
        )
    return Job(data, silos)


def subset(data: Dataset, config: RunConfig) -> tuple[Tensor, Tensor]:
    """The training samples that are used: all, or as many as ``limit`` says, drawn by the seed."""
    x, y = data.train
    if not config.limit:
        return x, y
    if config.limit > len(y):
        raise FedtctError(f"limit is {config.limit}, but {data.name} has only {len(y)} training samples")
    chosen = torch.randperm(len(y), generator=generator(config.seed, "limit"))[: config.limit].sort().values
    return x[chosen], y[chosen]


@lru_cache(maxsize=1)  # a comparison runs many configurations on one dataset
def _load(name: str, data_dir: str) -> Dataset:
    return load_dataset(name, data_dir or None)


def plot(folder: RunFolder, job: Job) -> None:
    """Accuracy by round and by megabyte, and who holds which classes."""
    from fedtct.report import write_plots, write_split_plot

    plots = folder.path / PLOTS
    plots.mkdir(exist_ok=True)
    config = folder.config
    write_plots({config.method: folder.history}, plots, title=f"{config.dataset}, {config.split}")
    labels = [torch.cat([silo.y, silo.held_y]).cpu() for silo in job.silos]
    counts = torch.stack([y.bincount(minlength=job.data.num_classes) for y in labels]).numpy()
    write_split_plot(counts, plots, job.data.class_names)
