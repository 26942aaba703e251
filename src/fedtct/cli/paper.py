"""fedtct paper: what the paper shows, running any part of it, and ours against published."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedtct.cli.help import Commands
from fedtct.cli.screen import Screen
from fedtct.cli.stopping import stoppable
from fedtct.errors import FedtctError

if TYPE_CHECKING:
    from fedtct.paper.protocol import Run
    from fedtct.paper.runner import Runner
    from fedtct.runs.config import RunConfig
    from fedtct.runs.plan import Watch
    from fedtct.runs.watcher import Watcher

paper = Commands(help="The paper's tables and figures. For example: fedtct paper list", no_args_is_help=True)

RESULTS = Path("results/paper")
ALL = "all"
ResultsDir = Annotated[Path, typer.Option("--results", help="folder of results", metavar="DIR")]


@paper.command("list")
def list_(
    part: Annotated[str, typer.Argument(help="a table or figure", metavar="[PART]")] = "", results: ResultsDir = RESULTS
) -> None:
    """List tables and figures, and how much of each is done.

    With a PART, list every cell or curve of that table or figure.

    \b
    fedtct paper list
    fedtct paper list table2
    """
    from fedtct.paper.figures import figures
    from fedtct.paper.results import Results
    from fedtct.paper.tables import TITLES, cells

    found = Results(results)
    if part:
        for key, run in parts(part).items():
            done = found.of(run)
            print(f"{key:<52} {f'{done[0].scale}, {len(done)} seed(s)' if done else '-'}")
        return
    for table, title in TITLES.items():
        done_cells = sum(map(found.has_cell, cells(table)))
        print(f"{table:<8} {done_cells:>3} of {len(cells(table)):>3} cells   {title}")
    for figure in figures().values():
        curves = [curve for panel in figure.panels for curve in panel.curves]
        drawn = sum(found.has_curve(curve.run) for curve in curves)
        print(f"{figure.name:<8} {drawn:>3} of {len(curves):>3} curves  {figure.title}")


@paper.command()
def run(
    part: Annotated[list[str], typer.Argument(help="tables and figures, or all", metavar="PART...")],
    only: Annotated[str, typer.Option(help="only cells whose name contains this", metavar="TEXT")] = "",
    scale: Annotated[str, typer.Option(help="full, half or tiny", metavar="NAME")] = "full",
    seeds: Annotated[int, typer.Option(help="how many seeds", metavar="N", min=1)] = 1,
    minutes: Annotated[float, typer.Option(help="save and stop after N minutes", metavar="N")] = float("inf"),
    grid_rounds: Annotated[
        int, typer.Option(help="choose learning rates after N rounds [0: a fifth of all]", metavar="N", min=0)
    ] = 0,
    lr: Annotated[
        float, typer.Option(help="use this learning rate, and hold nothing out [0: choose]", metavar="RATE", min=0)
    ] = 0.0,
    imagenet: Annotated[str, typer.Option(help="state dict of a ResNet-18 trained on ImageNet", metavar="FILE")] = "",
    state: Annotated[Path, typer.Option(help="folder of unfinished runs", metavar="DIR")] = Path("runs/paper"),
    results: ResultsDir = RESULTS,
) -> None:
    """Run tables and figures, or some of their cells.

    Cells that have a result are not run again.

    \b
    fedtct paper run table2 --only cifar10/classes:2/tct --scale half
    fedtct paper run all --minutes 25
    """
    if not minutes > 0:  # nor if it is no number
        raise FedtctError(f"minutes must be positive, it is {minutes:g}")
    screen = Screen()
    with screen:
        screen.wait("getting ready")
        from fedtct.paper.folder import OutOfTime
        from fedtct.paper.runner import Runner

    wanted = _wanted(part, only, bool(imagenet) or scale == "tiny", screen)
    with stoppable(screen, None, shlex.join(["fedtct", *sys.argv[1:]])), screen:
        screen.wait("getting ready")
        end = time.monotonic() + 60 * minutes  # for all seeds together
        for seed in range(seeds):
            left = (end - time.monotonic()) / 60
            more: dict[str, Any] = {"minutes": left, "scale": scale, "seed": seed, "imagenet": imagenet}
            more |= {"grid_rounds": grid_rounds, "lr": lr}
            runner = Runner(state, results, **more)
            runner.watch = _counting(screen, runner, wanted)
            try:
                runner.run(wanted)
            except OutOfTime:
                screen.say("out of time: run the same command again to continue")
                return
        there = "" if results == RESULTS else " " + shlex.join(["--results", str(results)])
        beside = "shows that they ran" if scale == "tiny" else "puts them beside the published ones"
        screen.say(f"all results are in {results}: `fedtct paper report{there}` {beside}")


def _wanted(part: list[str], only: str, imagenet: bool, screen: Screen) -> list[Run]:
    """The runs that are asked for; of all of them only those that can be done if there are no ImageNet weights."""
    from fedtct.paper.protocol import network_of

    named = [found for name in part for key, found in parts(name).items() if only in key]
    if not named:
        raise FedtctError(
            f"{' '.join(part)} has nothing with '{only}' in its name: fedtct paper list {part[0]} shows all"
        )
    possible = [run for run in named if imagenet or network_of(run).init != "imagenet"]
    if len(possible) < len(named):
        if ALL not in part or not possible:
            raise FedtctError("these runs start from ImageNet weights: give the state dict with --imagenet FILE")
        screen.say("runs from ImageNet weights are left out: they need a state dict, --imagenet FILE")
    return possible


def _counting(screen: Screen, runner: Runner, wanted: list[Run]) -> Watch:
    """Shows runs with how many of those that are wanted have their result."""
    several = dict.fromkeys(wanted)

    def watch(name: str, config: RunConfig) -> Watcher:
        done = sum(runner.result(run).is_file() for run in several)
        short = name.removesuffix(f"-{runner.tag}")
        short = short if len(short) < 42 else f"{short[:13]}…{short[-26:]}"  # bars need room
        return screen.watch(f"{done}/{len(several)} done  {short}")

    return watch


@paper.command()
def report(
    results: ResultsDir = RESULTS,
    docs: Annotated[Path, typer.Option(help="folder to write the page to", metavar="DIR")] = Path("docs"),
) -> None:
    """Write results.md: our numbers beside the published ones.

    \b
    fedtct paper report
    """
    if not results.is_dir():  # an empty page would take the place of one with results
        raise FedtctError(f"there is no folder {results}: fedtct paper run makes it, or say where it is with --results")
    with Screen() as screen:
        screen.wait("reading results, drawing figures")
        from fedtct.paper.report import FINDINGS, write_report
        from fedtct.paper.results import Results

        findings = results.parent / FINDINGS
        text = findings.read_text(encoding="utf-8") if findings.is_file() else ""
        written = list(write_report(Results(results), docs, text))
    print("\n".join(map(str, written)))


@paper.command()
def pack(
    state: Annotated[Path, typer.Argument(help="folder of unfinished runs", metavar="STATE")],
    carried: Annotated[Path, typer.Argument(help="the folder to make", metavar="DIR")],
) -> None:
    """Copy unfinished runs into small files, to continue elsewhere.

    \b
    fedtct paper pack runs/paper carried
    """
    from fedtct.paper.carry import pack

    files, again = pack(state, carried), shlex.join(["fedtct", "paper", "unpack", str(carried), str(state)])
    print(f"{len(files)} files in {carried}: {again} restores them")


@paper.command()
def unpack(
    carried: Annotated[Path, typer.Argument(help="the folder that pack made", metavar="DIR")],
    state: Annotated[Path, typer.Argument(help="folder to restore the runs to", metavar="STATE")],
) -> None:
    """Restore runs that were packed.

    \b
    fedtct paper unpack carried runs/paper
    """
    from fedtct.paper.carry import unpack

    files, go_on = unpack(carried, state), shlex.join(["fedtct", "paper", "run", "PART", "--state", str(state)])
    print(f"{len(files)} files in {state}: {go_on}, with the same options as before, continues them")


def parts(part: str) -> dict[str, Run]:
    """The cells of a table or the curves of a figure, by name; of all of them every run, the most valuable first."""
    from fedtct.paper.figures import figures
    from fedtct.paper.order import by_value
    from fedtct.paper.tables import TITLES, cells

    if part == ALL:
        return {run.name: run for run in by_value()}
    if part in figures():
        panels = figures()[part].panels
        return {f"{panel.title}/{curve.label}": curve.run for panel in panels for curve in panel.curves}
    if part not in TITLES:
        raise FedtctError(f"there is no '{part}'. There are {', '.join([*TITLES, *figures()])}, and {ALL}")
    return {cell.key: cell.run for cell in cells(part)}
