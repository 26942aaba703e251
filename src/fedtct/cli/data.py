"""fedtct data: which datasets there are, fetching them, and whether their files are right."""

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from fedtct.cli.help import Commands
from fedtct.cli.screen import Screen
from fedtct.cli.stopping import INTERRUPTED
from fedtct.errors import FedtctError

data = Commands(help="Datasets: list, fetch, verify. For example: fedtct data fetch cifar10")

Name = Annotated[str, typer.Argument(help="a dataset", metavar="NAME")]
Names = Annotated[list[str] | None, typer.Argument(help="datasets [all that are downloaded]", metavar="[NAME]...")]
DataDir = Annotated[Path | None, typer.Option(help="folder of datasets [$FEDTCT_DATA, ~/.cache/fedtct]", metavar="DIR")]


@data.command("list")
def list_(data_dir: DataDir = None) -> None:
    """List the datasets, and say which are downloaded.

    \b
    fedtct data list
    """
    with Screen() as screen:
        screen.wait("getting ready")
        from fedtct.data import DATASETS, resolve_data_dir, verify

        found = {name: verify(name, data_dir) for name in screen.track(list(DATASETS), "comparing with the originals")}
    print(f"in {resolve_data_dir(data_dir)}:")
    for name, checks in found.items():
        wrong = [check for check in checks if check.status not in ("ok", "missing")]
        missing = sum(check.status == "missing" for check in checks)
        if not checks:
            state = "comes with fedtct"
        elif missing == len(checks):
            state = f"not here: fedtct data fetch {name}"
        elif missing or wrong:
            state = f"{missing} of {len(checks)} files missing, {len(wrong)} not right: fedtct data verify {name}"
        else:
            state = "here"
        print(f"  {name:<14} {state}")


@data.command()
def fetch(name: Name, data_dir: DataDir = None) -> None:
    """Download a dataset from its own site, or continue a download.

    \b
    fedtct data fetch cifar10
    """
    from fedtct.data import fetch as download

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    bars = Progress(*columns, TimeRemainingColumn(), console=Screen().console)
    tasks: dict[str, TaskID] = {}

    def progress(file: str, done: int, total: int | None) -> None:
        bars.start()
        if file not in tasks:
            tasks[file] = bars.add_task(file)
        bars.update(tasks[file], completed=done, total=total)

    go_on = shlex.join(["fedtct", "data", "fetch", name, *(["--data-dir", str(data_dir)] if data_dir else [])])
    try:
        try:
            written = download(name, data_dir, progress=progress)
        finally:
            if tasks:
                bars.stop()
    except KeyboardInterrupt:
        Screen().say(f"fedtct: stopped; resume with `{go_on}`")
        raise typer.Exit(INTERRUPTED) from None
    print("\n".join(map(str, written)) if written else f"{name} is here already")


@data.command()
def verify(names: Names = None, data_dir: DataDir = None) -> None:
    """Compare downloaded files with the originals by size and digest.

    \b
    fedtct data verify cifar10
    """
    with Screen() as screen:
        screen.wait("getting ready")
        from fedtct.data import DATASETS
        from fedtct.data import verify as check_files

        asked = names or list(DATASETS)
        found = {name: check_files(name, data_dir) for name in screen.track(asked, "comparing with the originals")}
    bad = compared = 0
    for name, checks in found.items():
        if not names and all(check.status == "missing" for check in checks):
            continue  # nobody asked for this one
        for check in checks:
            print(f"{name:<14} {check.status:<18} {check.path}" + (f" ({check.detail})" if check.detail else ""))
            bad, compared = bad + (check.status != "ok"), compared + 1
    if not compared:
        print("nothing to compare: digits comes with fedtct, other datasets must be fetched first")
    if bad:
        raise FedtctError(f"{bad} files are not as published: delete and fetch them again")
