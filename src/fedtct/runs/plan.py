"""Several runs under one folder, and the plan that says which: with it they can be resumed after a stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from fedtct.errors import Diverged, FedtctError
from fedtct.files import read_json, write_json
from fedtct.runs.config import RunConfig
from fedtct.runs.execute import Look, execute, rehearse
from fedtct.runs.folder import CONFIG, RunFolder
from fedtct.runs.jobs import own_files
from fedtct.runs.lock import hold, release
from fedtct.runs.places import PLAN as PLAN
from fedtct.runs.places import free_folder, resuming
from fedtct.runs.watcher import Watcher

COMMANDS = {"compare": "fedtct compare", "choose": "fedtct run"}  # a plan's command, by its purpose

Watch = Callable[[str, RunConfig], Watcher]  # makes a watcher for a run, by its name
# Chooses between runs of a comparison, given the name of their folder in the plan's.
Settle = Callable[[str, Mapping[str, RunFolder]], None]


@dataclass(frozen=True)
class Plan:
    """Runs by name. ``purpose`` says what is made of them: "compare" or "choose".

    A comparison may contain choices: with names such as ``tct-iid-seed0/lr-0.1``, the folder of the candidates has a
    plan of its own.
    """

    purpose: str
    runs: Mapping[str, RunConfig]

    @classmethod
    def read(cls, folder: str | Path, purpose: str = "") -> Plan:
        """The plan that a folder was begun with; refused if it has another purpose than one that is given."""
        path = Path(folder) / PLAN
        if not path.is_file():
            raise FedtctError(f"{folder} cannot be resumed: there is no {PLAN} in it")
        try:
            plan = read_json(path)
            begun, runs = plan["purpose"], plan["runs"].items()
            command = COMMANDS[begun]
        except (KeyError, TypeError, AttributeError) as error:
            raise FedtctError(f"{path} is damaged: it holds no plan") from error
        if purpose and begun != purpose:
            raise FedtctError(f"{folder} was started to {begun}: resume with `{resuming(command, folder)}`")
        return cls(begun, {name: RunConfig.of(**values) for name, values in runs})

    def write(self, folder: Path) -> None:
        """Keep the plan in its folder."""
        folder.mkdir(parents=True, exist_ok=True)
        record = {"purpose": self.purpose, "runs": {name: asdict(config) for name, config in self.runs.items()}}
        write_json(folder / PLAN, record)

    @property
    def parts(self) -> dict[str, Plan]:
        """The choices that are compared, by their folders in the plan's; if there are none, the plan itself by ""."""
        folders: dict[str, dict[str, RunConfig]] = {}
        for name, config in self.runs.items():
            folder, _, candidate = name.rpartition("/")
            folders.setdefault(folder, {})[candidate] = config
        return {folder: Plan("choose", runs) if folder else self for folder, runs in folders.items()}

    @property
    def chooses(self) -> bool:
        """Whether held-out samples choose between runs: between all of them, or within each part."""
        return self.purpose == "choose" or "" not in self.parts

    def finished(self, folder: str | Path) -> bool:
        """Whether every run has come to its end in this folder."""
        return not self._unfinished(Path(folder))

    def _unfinished(self, folder: Path) -> list[str]:
        return [name for name, config in self.runs.items() if not RunFolder(folder / name, config).finished]

    def execute(
        self,
        folder: str | Path,
        *,
        resume: bool = False,
        watch: Watch | None = None,
        look: Look | None = None,
        settle: Settle | None = None,
    ) -> dict[str, RunFolder]:
        """Run what is not finished yet; all of that is rehearsed before the first run starts.

        A run that diverges to no model is given up, and the others go on. ``settle`` is called for each choice of a
        comparison as soon as its runs are over.
        """
        folder = Path(folder) if resume else free_folder(folder)
        left = self._unfinished(folder)
        for name in left:
            if (folder / name / CONFIG).is_file():
                RunFolder.read(folder / name).provenance.check_silos(own_files(self.runs[name]))
            job, share = rehearse(self.runs[name]), self.runs[name].holdout
            if self.chooses and not any(len(silo.held_y) for silo in job.silos):
                raise FedtctError(f"no silo has enough samples to hold out {share:g} of them: use a larger holdout")
        if not left:
            return self._carry_out(folder, watch, look, settle)
        folder.mkdir(parents=True, exist_ok=True)
        hold(folder)
        try:
            if not resume:
                free_folder(folder)  # checked again now that it is held
            if not (folder / PLAN).is_file():
                self.write(folder)
            return self._carry_out(folder, watch, look, settle)
        finally:
            release(folder)

    def _carry_out(
        self, folder: Path, watch: Watch | None, look: Look | None, settle: Settle | None
    ) -> dict[str, RunFolder]:
        """Do every run, from where it stands."""
        done: dict[str, RunFolder] = {}
        for place, part in self.parts.items():
            if not (folder / place / PLAN).is_file():
                part.write(folder / place)
            names = {name: f"{place}/{name}" if place else name for name in part.runs}
            runs = {name: self._run(folder, whole, watch, look) for name, whole in names.items()}
            if settle and place:
                settle(place, runs)
            done |= {names[name]: run for name, run in runs.items()}
        return done

    def _run(self, folder: Path, name: str, watch: Watch | None, look: Look | None) -> RunFolder:
        """Do one run to its end."""
        path, config = folder / name, self.runs[name]
        watcher = watch(name, config) if watch else None
        begun = (path / CONFIG).is_file()
        run = RunFolder.resume(path, asdict(config), watcher) if begun else RunFolder.create(path, config, watcher)
        try:
            if not run.finished:  # the model or data of a finished run may be gone
                execute(run, look)
        except Diverged as error:
            run.watcher.say(str(error))
        return run
