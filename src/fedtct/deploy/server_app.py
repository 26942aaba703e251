"""The Flower app of the server: the run that a run.toml describes, over a grid, kept in a run folder."""

import json
import secrets
import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedtct.classifier import Fit
from fedtct.deploy.log_lines import Speaker, say, warnings_said
from fedtct.deploy.polling import pull_sooner
from fedtct.deploy.registration import whose_keys
from fedtct.deploy.server_config import ServerConfig, read_run
from fedtct.errors import FedtctError
from fedtct.federation.flower.federation import FlowerFederation
from fedtct.files import write_text
from fedtct.history import Checkpoint
from fedtct.importing import is_function_name
from fedtct.runs.config import RunConfig
from fedtct.runs.finding_types import CLASSES
from fedtct.runs.findings import confusion
from fedtct.runs.folder import RunFolder
from fedtct.runs.jobs import read_test
from fedtct.runs.provenance import TEST
from fedtct.runs.watcher import Watcher
from fedtct.tasks import Regression

KEY, SILOS = "flower-run", "silos.jsonl"


class ServerFolder(RunFolder):
    """A run folder that is saved after every round, with the name silos know the run by and who answered what."""

    engine = "fedtct deploy run APP"
    lock_seconds = 30.0  # an app whose server was killed ends a few seconds later

    def __init__(self, path: Path, config: RunConfig, watcher: Watcher | None = None) -> None:
        super().__init__(path, config, watcher)
        file = path / KEY
        # The run's name in the silos' caches: a resumed run finds them again.
        self.key = file.read_text().strip() if file.is_file() else secrets.token_hex(8)
        self._unwritten: list[str] = []  # notes from before there is a folder

    def begin(self, stage: str, rounds: int, done: int) -> None:
        """Open the folder; the run's name is kept from then on."""
        super().begin(stage, rounds, done)
        write_text(self.path / KEY, self.key)
        self._write_notes()

    def due(self, stage: str, checkpoint: Checkpoint) -> bool:
        """Every round: silos remember no more than two, and one across machines takes longer than a checkpoint."""
        return True

    def note(self, record: dict[str, Any]) -> None:
        """Record who answered a question, with how many bytes, and who did not and why."""
        for silo in record["forgot"]:
            say(f"{silo} has lost what it remembered of earlier rounds: its cache was removed or damaged")
        self._unwritten.append(json.dumps({"time": round(time.time(), 3)} | record) + "\n")
        if self.begun:
            self._write_notes()

    @property
    def begun(self) -> bool:
        """Whether the name is kept by which silos know the run: without it the run cannot be resumed."""
        return self._has(self.path / KEY)

    def _write_notes(self) -> None:
        with (self.path / SILOS).open("a", encoding="utf-8") as file:
            file.writelines(self._unwritten)
        self._unwritten.clear()


def server_app(settings: Path) -> ServerApp:
    """A Flower app that runs what ``settings`` describe; `flwr run -c` may override them, or resume a run."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        pull_sooner()
        overrides = {key: value for key, value in context.run_config.items() if value != ""}
        resume = str(overrides.pop("resume", ""))
        try:
            with warnings_said(say):
                config, server = read_run(settings, overrides, resume)
                serve(grid, config, server, resume, whose_keys())
        except FedtctError as error:
            say(f"stopped: {error}")
            raise

    return app


def serve(
    grid: Grid, config: RunConfig, server: ServerConfig, resume: str = "", keys: Mapping[int, str] | None = None
) -> Fit:
    """Run from the beginning, or go on with the stopped run in the folder ``resume``.

    That run must have the same settings, except for those in [server], which may have changed. ``keys`` tells for which
    silo each node's key was made.
    """
    if resume:
        folder = ServerFolder.resume(resume, asdict(config), Speaker())
    else:
        folder = ServerFolder.create(server.out, config, Speaker())
    config = folder.config
    own_model = config.model if is_function_name(config.model) else ""
    plan = {"planned_noise": config.noise, "planned_releases": config.releases} if config.epsilon else None
    federation = FlowerFederation(
        grid,
        folder.key,
        server.terms(config.silos),
        note=folder.note,
        own_model=own_model,
        warn=folder.watcher.say,
        keys=keys,
        plan=plan,
    )
    finished = "finished already" if folder.finished else "finished"
    try:
        fit = folder.fit() if folder.finished else _fit(federation, folder, server)
    except FedtctError:
        if not folder.begun:  # it cannot be resumed: silos need not keep anything
            federation.close()
        raise
    _report(folder)  # also if it had finished: perhaps without a report, or without telling silos
    federation.close()
    say(f"{finished}: everything is in {folder.path}")
    return fit


def _report(folder: ServerFolder) -> None:
    from fedtct.report.page import write_report  # only here: no silo should wait for what a report takes to load
    from fedtct.report.page.write import REPORT

    try:
        write_report([folder], folder.path / REPORT)
    except FedtctError as error:  # there may be nothing to draw: no test data, and silos that rate nothing
        say(f"no report: {error}")


def _fit(federation: FlowerFederation, folder: ServerFolder, server: ServerConfig) -> Fit:
    config = folder.config
    federation.on_reply = folder.watcher.reply
    test = lru_cache(maxsize=1)(partial(read_test, Path(server.test), config)) if server.test else None
    if server.test and not Path(server.test).exists():
        raise FedtctError(f"test: there is no {server.test}")
    folder.provenance.mark_files({TEST: Path(server.test)} if server.test else {})
    with folder.telling_why():
        fit = config.build(server.num_classes or None).fit(federation, test=test, journal=folder)
    if test is not None and not isinstance(fit.model.spec.task, Regression):
        with warnings.catch_warnings():  # training has warned of the same samples, as the test data
            warnings.simplefilter("ignore", UserWarning)
            folder.find_out(CLASSES, lambda: confusion(fit.model, *test(fit.model.spec.inputs)))
    folder.finish(fit)
    return fit
