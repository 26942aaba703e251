"""Run a configuration from its data to its model, in a folder."""

from collections.abc import Callable

from fedtct.classifier import Fit
from fedtct.federation import LocalFederation
from fedtct.runs.config import RunConfig
from fedtct.runs.folder import RunFolder
from fedtct.runs.jobs import Job, own_files, prepare

Look = Callable[[RunFolder, Job, Fit], None]  # looks at a run that is over, before it counts as finished


def fit_here(folder: RunFolder, job: Job) -> Fit:
    """Fit with silos that live in this process."""
    config = folder.config
    federation = simulated(config, job)
    federation.on_reply = folder.watcher.reply
    return config.build(job.num_classes).fit(federation, test=job.test, journal=folder)


def simulated(config: RunConfig, job: Job) -> LocalFederation:
    """The job's silos, in this process."""
    several = config.method != "centralized"
    per_round = config.per_round if several and config.per_round else None
    return LocalFederation(job.silos, config.device, precision=config.precision, per_round=per_round)


def execute(folder: RunFolder, look: Look | None = None, fit: Callable[[RunFolder, Job], Fit] = fit_here) -> Fit:
    """Fit as the folder's configuration says, from where the run stands; a finished run is only read."""
    if folder.finished:
        return folder.fit()
    folder.provenance.check_silos(own_files(folder.config))
    job = prepare(folder.config, folder.watcher)
    folder.provenance.mark_files(own_files(folder.config))
    with folder.telling_why():
        done = fit(folder, job)
        if look:
            look(folder, job, done)
    folder.finish(done)
    return done


def rehearse(config: RunConfig) -> Job:
    """Refuse, without writing anything, what ``execute`` would refuse before its first round."""
    job = prepare(config)
    federation = simulated(config, job)
    config.build(job.num_classes).open(federation, job.test)
    return job
