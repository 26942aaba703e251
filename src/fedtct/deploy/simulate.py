"""Many silos on one machine or a Ray cluster, by Flower's own simulation: fedtct run --engine flower."""

import importlib.util
import os
import shutil
import tomllib
from functools import lru_cache
from pathlib import Path

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedtct.classifier import Fit
from fedtct.deploy.answering import SiloSetup
from fedtct.deploy.client_app import client_app
from fedtct.deploy.processes import QUIET
from fedtct.errors import FedtctError
from fedtct.federation.flower.exchange import Terms
from fedtct.federation.flower.federation import FlowerFederation
from fedtct.history import Checkpoint
from fedtct.importing import is_function_name
from fedtct.runs.config import RunConfig
from fedtct.runs.execute import Look, execute
from fedtct.runs.folder import RunFolder
from fedtct.runs.jobs import Job, prepare

CACHE = "cache"
CACHE_BYTES = 10**12  # no limit but the disk's, which a simulation's silos share
WAIT_SECONDS = 30.0  # for a silo whose process Ray ended to answer after all


class SimulationFolder(RunFolder):
    """A run folder that is saved after every round: silos remember no more than two."""

    engine = "fedtct run --engine flower"
    early = (CACHE,)  # silos put what they keep there before the run begins

    def due(self, stage: str, checkpoint: Checkpoint) -> bool:
        """Every round."""
        return True

    @property
    def device(self) -> torch.device:
        """The processor: the server only averages, and silos may need the GPU."""
        return torch.device("cpu")


def simulate(folder: RunFolder, look: Look | None = None) -> Fit:
    """Fit what the folder's configuration says, every silo a node of Flower's simulation."""
    if importlib.util.find_spec("ray") is None:
        raise FedtctError("--engine flower needs Ray: pip install 'fedtct[flower-simulation]'")
    if folder.config.method == "centralized":
        raise FedtctError("centralized needs all data in one process: leave out --engine flower")
    if folder.config.per_round:
        raise FedtctError("per_round is for silos of this process: leave out --engine flower")
    return execute(folder, look, fit_by_flower)


def fit_by_flower(folder: RunFolder, job: Job) -> Fit:
    """Fit with silos that live in processes of Ray's."""
    from flwr.server.superlink.fleet.vce.backend import BackendConfig
    from flwr.simulation import run_simulation

    config, done = folder.config, list[Fit]()
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        terms = Terms(config.silos, min_silos=config.silos, round_timeout=24 * 3600.0, wait=WAIT_SECONDS)
        own_model = config.model if is_function_name(config.model) else ""
        federation = FlowerFederation(grid, "simulation", terms, own_model=own_model, warn=folder.watcher.say)
        federation.on_reply = folder.watcher.reply
        done.append(config.build(job.num_classes).fit(federation, test=job.test, journal=folder))
        federation.close()

    os.environ.update(QUIET)
    cache, settings = folder.path.absolute() / CACHE, config.to_toml()
    client = client_app(lambda context: simulated_silo(context, settings, cache))
    resources: BackendConfig = {"client_resources": {"num_cpus": 1.0, "num_gpus": gpu_share(config)}}
    run_simulation(server, client, config.silos, backend_config=resources)
    if not done:
        raise FedtctError("the simulation did not finish: what Flower printed above says why")
    shutil.rmtree(cache, ignore_errors=True)
    return done[0]


def simulated_silo(context: Context, settings: str, cache: Path) -> SiloSetup:
    """One of the silos that the configuration's data is dealt to."""
    index = int(context.node_config["partition-id"])
    job, config = _job(settings)
    silo = job.silos[index]
    return SiloSetup(
        name=f"silo-{index}",
        load=lambda: silo,
        cache=cache / str(index),
        cache_bytes=CACHE_BYTES,
        device=config.device,
        precision=config.precision,
        installed_models=True,
    )


@lru_cache(maxsize=1)  # a process answers for many silos, one after the other
def _job(settings: str) -> tuple[Job, RunConfig]:
    config = RunConfig.of(**tomllib.loads(settings))
    return prepare(config), config


def gpu_share(config: RunConfig) -> float:
    """The share of a GPU that a silo takes while it works: an equal one for each processor core."""
    if config.device == "cpu" or not torch.cuda.is_available():
        return 0.0
    return torch.cuda.device_count() / (os.cpu_count() or 1)
