"""fedtct run: one method, one split, one folder."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedtct.cli.artifacts import look_at_run, optional_if, report_on, to_look_at
from fedtct.cli.flower import need_flower
from fedtct.cli.options import Config, Json, Out, Resume, with_settings
from fedtct.cli.output import print_choice, print_summary
from fedtct.cli.screen import Screen
from fedtct.cli.stopping import stoppable
from fedtct.errors import Diverged, FedtctError, check_one_of
from fedtct.runs.checks import check_given
from fedtct.runs.combinations import slug
from fedtct.runs.places import PLAN, check_begun, free_folder, next_free, resuming
from fedtct.runs.settings import read_toml

if TYPE_CHECKING:
    from fedtct.runs.config import RunConfig
    from fedtct.runs.folder import RunFolder
    from fedtct.runs.plan import Plan

ENGINES = ("local", "flower")
Engine = Annotated[
    str,
    typer.Option(help="local, or flower for Flower's simulation on Ray [local]", metavar="NAME", show_default=False),
]


@with_settings()
def run(
    *,
    config: Config = None,
    resume: Resume = None,
    out: Out = None,
    json: Json = False,
    engine: Engine = "local",
    settings: dict[str, Any],
) -> None:
    """Train with one method across silos; can be stopped and resumed.

    \b
    fedtct run --dataset fashion-mnist --split classes:2 --method tct --rounds 20,20 --out runs/a
    fedtct run --data silos/ --target diagnosis --model my_module:build
    fedtct run --resume runs/a

    Methods: tct, fedavg, fedprox, scaffold, feddyn, fedadam, centralized, fedavg-last-layer, module:Class.
    """
    given = (read_toml(config) if config else {}) | settings
    with Screen(quiet=json) as screen:
        screen.wait("getting ready")
        check_one_of(ENGINES, engine=engine)
        if resume is not None:
            if out is not None:
                raise FedtctError(f"--resume continues {resume}: leave out --out")
            _resume(resume, given, screen, json, engine)
            return
        check_given([given])
        if out is not None:
            free_folder(out)
        from fedtct.runs.choose import choice_of
        from fedtct.runs.config import RunConfig, warn_of_unread

        if plan := choice_of(given):
            if engine != "local":
                raise FedtctError("--engine flower runs one configuration: give a single lr")
            warn_of_unread(plan.runs.values(), settings)
            first = next(iter(plan.runs.values()))
            _carry_out(plan, out or next_free(default_folder(first)), False, screen, json)
            return
        chosen = RunConfig.of(**given)
        warn_of_unread([chosen], settings)
        path = out or next_free(default_folder(chosen))
        _execute(_folders(engine).create(path, chosen, screen.watch(chosen.full_method)), screen, json, engine)


def default_folder(config: "RunConfig") -> Path:
    """Where a run goes if nobody says."""
    return Path("runs") / f"{slug(config.dataset)}-{slug(config.full_method)}-{slug(config.split)}-seed{config.seed}"


def _resume(path: Path, given: dict[str, Any], screen: Screen, json: bool, engine: str) -> None:
    check_begun(path)
    if (path / PLAN).is_file():
        from fedtct.runs.plan import Plan

        plan = Plan.read(path, "choose")
        if given:
            raise FedtctError(f"{path} chooses between several runs: resume it without other options")
        _carry_out(plan, path, True, screen, json)
        return
    folder = _folders(engine).resume(path, given)
    if folder.finished:
        screen.say(f"{path} is finished already")
    folder.watcher = screen.watch(folder.config.full_method)
    _execute(folder, screen, json, engine)


def _folders(engine: str) -> "type[RunFolder]":
    """The kind of run folder that an engine works in."""
    if engine == "flower":
        need_flower()
        from fedtct.deploy.simulate import SimulationFolder

        return SimulationFolder
    from fedtct.runs.folder import RunFolder

    return RunFolder


def _execute(folder: "RunFolder", screen: Screen, json: bool, engine: str) -> None:
    from fedtct.runs.metrics import METRICS
    from fedtct.runs.summary import Summary

    if engine == "flower":
        from fedtct.deploy.simulate import simulate as execute
    else:
        from fedtct.runs.execute import execute
    was_over = folder.finished
    with stoppable(screen, folder.path, folder.go_on), screen:
        if not was_over:  # what is over may be looked at where its model cannot be made: without its module or its GPU
            try:
                execute(folder, look_at_run)
            except Diverged as error:
                raise FedtctError(f"{error}{folder.way_out}") from error
        screen.wait("writing the report")
        with optional_if(was_over, screen):
            report_on([folder], folder.path)
    print_summary(Summary.of(folder), json, to_look_at(folder.path, METRICS))


def _carry_out(plan: "Plan", path: Path, resume: bool, screen: Screen, json: bool) -> None:
    from fedtct.runs.choose import CHOICE, choose

    were_over = plan.finished(path)
    with stoppable(screen, path, resuming("fedtct run", path)), screen:
        choice = choose(plan, path, resume=resume, watch=lambda name, _: screen.watch(name), look=look_at_run)
        screen.wait("writing the report")
        with optional_if(were_over, screen):
            report_on(list(choice.runs.values()), path)
    print_choice(choice, json, to_look_at(path, CHOICE))
