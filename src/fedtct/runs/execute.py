"""Run a configuration from its data to its model, in a folder."""

import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from fedtct.classifier import Fit
from fedtct.data import Dataset, load_dataset, partition
from fedtct.errors import FedtctError
from fedtct.federation import LocalFederation, pick_device
from fedtct.memory import free_bytes
from fedtct.models.registry import build_module
from fedtct.runs.config import RunConfig
from fedtct.runs.folder import RunFolder
from fedtct.seeds import generator
from fedtct.silo import Silo
from fedtct.tct import TCT


class Job(NamedTuple):
    """What a run works on."""

    data: Dataset
    silos: list[Silo]


Look = Callable[[RunFolder, Job, Fit], None]  # at a run that is over, before it counts as finished


def execute(folder: RunFolder, look: Look | None = None) -> Fit:
    """Fit what the folder's configuration says, from where it stands; a finished run is only read."""
    if folder.finished:
        return folder.fit()
    config = folder.config
    job = prepare(config)
    federation = LocalFederation(job.silos, config.device)
    federation.on_reply = folder.watcher.reply
    fit = config.build(job.data.num_classes).fit(federation, test=job.data.test, journal=folder)
    if look:
        look(folder, job, fit)
    folder.finish(fit)
    return fit


def rehearse(config: RunConfig) -> None:
    """Refuse, without writing anything, what ``execute`` would refuse before its first round."""
    job = prepare(config)
    method = config.build(job.data.num_classes)
    stage1 = method.stage1 if isinstance(method, TCT) else method
    stage1.open(LocalFederation(job.silos, config.device), config.model, job.data.test, None)


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
    for silo in silos:
        if config.needs_holdout and not len(silo.held_y):
            raise FedtctError(
                f"{silo.name} has {len(silo)} samples, too few to hold out {config.holdout:g} of them: "
                "use fewer silos or a larger holdout"
            )
    warn_of_memory(config, data, samples=len(y))
    return Job(data, silos)


def warn_of_memory(config: RunConfig, data: Dataset, samples: int) -> None:
    """Say so before hours of stage 1 if the features of stage 2 will not fit; ridge keeps none."""
    if config.method != "tct" or config.stage2 == "ridge":
        return
    module = build_module(config.model, tuple(data.train.x.shape[1:]), data.num_classes)
    p = min(config.p, sum(parameter.numel() for parameter in module.parameters()))
    need, have = 2 * p * (samples + len(data.test.y)), free_bytes(pick_device(config.device))
    if need > have:
        warnings.warn(
            f"stage 2 needs about {need / 1e9:.0f} GB of memory for its features, {have / 1e9:.0f} GB are free: "
            "if it fails, use a smaller p or limit, or stage2 = ridge",
            stacklevel=2,
        )


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
