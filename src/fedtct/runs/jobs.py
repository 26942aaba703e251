"""What a run works on: the data of its silos, read or dealt, with every check that can be made before training."""

import warnings
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedtct.agreement import agree
from fedtct.answers import Description
from fedtct.data import Dataset, load_dataset, partition
from fedtct.data.copies import warn_of_copies
from fedtct.data.samples import as_inputs
from fedtct.data.sources import NothingToIgnore, Reading, read_samples, read_silo, silo_paths
from fedtct.errors import FedtctError
from fedtct.files import glance
from fedtct.hardware.devices import pick_device, pick_precision
from fedtct.hardware.memory import free_bytes
from fedtct.models import InputSpec, build_module, build_own
from fedtct.remarks import Remarks, joined_warnings
from fedtct.runs.config import RunConfig
from fedtct.runs.provenance import TEST
from fedtct.runs.watcher import Watcher
from fedtct.seeds import generator
from fedtct.silo import Silo
from fedtct.tasks import Regression

MOST_LINES = 12  # of an error about several silos' files


class Job(NamedTuple):
    """What a run works on; a regression has no classes."""

    silos: list[Silo]
    test: tuple[Any, Any] | None
    num_classes: int | None = None
    class_names: tuple[str, ...] = ()


def own_files(config: RunConfig) -> dict[str, Path]:
    """The user's own files that a run reads: each silo's, by its name, and the test data."""
    test = {TEST: Path(config.test)} if config.test else {}
    return test | (silo_paths(Path(config.data)) if config.data else {})


def prepare(config: RunConfig, watcher: Watcher | None = None) -> Job:
    """Load the data and deal it, with every check that can be made before training."""
    pick_precision(config.precision, pick_device(config.device))
    job = own_job(config, watcher or Watcher()) if config.data else dealt_job(config)
    if config.holdout and not any(len(silo.held_y) for silo in job.silos):
        warnings.warn(f"there are too few samples for holdout={config.holdout:g}: nothing is held out", stacklevel=2)
    return job


def dealt_job(config: RunConfig) -> Job:
    """A dataset, dealt to silos."""
    data = _load(config.dataset, config.data_dir)
    x, y = subset(data, config)
    parts = [torch.from_numpy(part) for part in partition(y, config.silos, config.split, config.dealt_by)]
    if nobodys := data.num_classes - len(y[torch.cat(parts)].unique()):
        warnings.warn(
            f"{nobodys} of {data.num_classes} classes are in the test set but in no silo, so they cannot be learnt: "
            "use more silos, another split or more samples",
            stacklevel=2,
        )
    silos = [Silo(x[part], y[part], holdout=config.holdout, name=f"silo {index}") for index, part in enumerate(parts)]
    warn_of_memory(config, tuple(x.shape[1:]), data.num_classes, len(y) + len(data.test.y))
    return Job(silos, data.test, data.num_classes, data.class_names)


def own_job(config: RunConfig, watcher: Watcher) -> Job:
    """Silos' own data, from a file or a folder of images each."""
    config.network()  # to fail before the data is read, if it fails
    paths = silo_paths(Path(config.data))
    if len(paths) != config.silos:
        raise FedtctError(f"{config.data} holds {len(paths)} silos, but the run was started with {config.silos}")
    if config.test:
        check_test(Path(config.test), paths)
    silos, told = _read_silos(config, paths, watcher)
    agreed = agree(told, None, names=[silo.name for silo in silos])
    test = read_test(Path(config.test), config, agreed.inputs) if config.test else None
    if test:
        rated, trained = as_inputs(test[0], "the test data"), [silo.x for silo in silos]
        warn_of_copies(rated, trained, "test samples", "leave them out of the test data")
    warn_of_memory(config, agreed.inputs.shape, agreed.outputs, sum(map(len, silos)) + (len(test[1]) if test else 0))
    if isinstance(agreed.task, Regression):
        return Job(silos, test)
    names = agreed.task.names or tuple(map(str, range(agreed.outputs)))
    return Job(silos, test, agreed.outputs, names)


def _read_silos(config: RunConfig, paths: Mapping[str, Path], watcher: Watcher) -> tuple[list[Silo], list[Description]]:
    """All silos and their descriptions. Everything that is wrong in any file is refused in one error."""
    silos: list[Silo] = []
    told: list[Description] = []
    wrong, lacking, how = Remarks(), Remarks(), Reading.of(config)
    with joined_warnings([*map(str, paths.values()), *paths]):
        for done, (name, path) in enumerate(paths.items(), 1):
            try:
                with warnings.catch_warnings(record=True, action="always") as heard:
                    x, y, groups = _read(path, how, glance(path))
                    silos.append(Silo(x, y, task=config.task, holdout=config.holdout, groups=groups, name=name))
                    told.append(silos[-1].describe())
            except FedtctError as error:
                wrong.add(str(error), name, path)
            for warning in heard:
                warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
                if warning.category is NothingToIgnore:
                    lacking.add(str(warning.message), name, path)
            watcher.count("reading silos", done, len(paths))
    for line, of in zip(lacking.lines(), lacking.values(), strict=True):
        if len(of) == len(paths):
            wrong.add(f"{line}: is it misspelled? Every column that is not ignored is used for training", "", Path())
    if wrong:
        lines = wrong.lines()
        more = [f"and {len(lines) - MOST_LINES} more"] if len(lines) > MOST_LINES else []
        raise FedtctError("\n".join(lines[:MOST_LINES] + more))
    return silos, told


def check_test(test: Path, silos: Mapping[str, Path]) -> None:
    """Refuse test data that is missing, or that a silo would learn from."""
    if not test.exists():
        raise FedtctError(f"test: there is no {test}")
    for name, path in silos.items():
        one, other = test.resolve(), path.resolve()
        if one.is_relative_to(other) or other.is_relative_to(one):
            raise FedtctError(
                f"test: {test} is also training data of silo {name}: keep test data in a place of its own"
            )


def read_test(test: Path, config: RunConfig, inputs: InputSpec) -> tuple[Any, Any]:
    """Test data, read in the form of the silos' data; a table may have more columns."""
    texts, only = (inputs.table.texts, inputs.table.names) if inputs.table else ([], [])
    return read_samples(test, Reading(config.target, config.task, inputs.image_size, texts), only)


def warn_of_memory(config: RunConfig, shape: tuple[int, ...], outputs: int, samples: int) -> None:
    """Warn before hours of stage 1 if stage 2's features will not fit; ridge keeps none."""
    if config.method != "tct" or config.stage2 == "ridge":
        return
    model = config.network()
    module = build_module(model, shape, outputs) if isinstance(model, str) else build_own(model, shape, outputs)
    p = min(config.p, sum(parameter.numel() for parameter in module.parameters()))
    need, have = 2 * p * samples, free_bytes(pick_device(config.device))
    if need > have:
        warnings.warn(
            f"stage 2 needs about {need / 1e9:.0f} GB of memory for its features, {have / 1e9:.0f} GB are free: "
            "if it fails, use a smaller p or limit, or stage2 = ridge",
            stacklevel=2,
        )


def subset(data: Dataset, config: RunConfig) -> tuple[Tensor, Tensor]:
    """The training samples that are used: all, or as many as ``limit`` says, drawn by the split's seed."""
    x, y = data.train
    if not config.limit:
        return x, y
    if config.limit > len(y):
        raise FedtctError(f"limit is {config.limit}, but {data.name} has only {len(y)} training samples")
    chosen = torch.randperm(len(y), generator=generator(config.dealt_by, "limit"))[: config.limit].sort().values
    return x[chosen], y[chosen]


@lru_cache(maxsize=1000)  # a comparison reads the same files many times
def _read(path: Path, how: Reading, seen: str) -> tuple[Any, Any, Any]:
    """What is in a silo's files, as they were when they were ``seen``."""
    return read_silo(path, how)


@lru_cache(maxsize=1)  # a comparison runs many configurations on one dataset
def _load(name: str, data_dir: str) -> Dataset:
    return load_dataset(name, data_dir or None)
