"""fedtct report: one page about one run or many."""

from pathlib import Path
from typing import Annotated

import typer

from fedtct.cli.screen import Screen
from fedtct.errors import FedtctError
from fedtct.runs.places import check_begun, check_place, next_free

Runs = Annotated[list[Path], typer.Argument(help="folders of runs or comparisons", metavar="RUN...")]
Out = Annotated[Path | None, typer.Option(help="the file to write [RUN/report.html]", metavar="FILE")]


def report(
    runs: Runs,
    out: Out = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="also write RUN/tensorboard")] = False,
    mlflow: Annotated[bool, typer.Option("--mlflow", help="also log to MLflow ($MLFLOW_TRACKING_URI)")] = False,
) -> None:
    """Write one HTML page about one run, or comparing several.

    It shows accuracy, silos, classes and stage 2, and needs no network.

    \b
    fedtct report runs/a
    fedtct report runs/a runs/b runs/c --out abc.html
    fedtct report runs/demo --tensorboard
    """
    with Screen() as screen:
        screen.wait("reading")
        if out is None or not out.exists():  # what is wrong with it is said first, below
            for path in runs:
                check_begun(path)
        from fedtct.report.page import write_report
        from fedtct.report.page.write import REPORT, is_report
        from fedtct.report.trackers import TRACKERS, need
        from fedtct.runs.reading import read_runs

        asked = [name for name, wanted in {"tensorboard": tensorboard, "mlflow": mlflow}.items() if wanted]
        for name in asked:
            need(name)
        if out is not None and out.is_dir():
            raise FedtctError(f"{out} is a folder: give --out the name of a file, {out / REPORT} for example")
        if out is not None and out.exists() and not is_report(out):
            raise FedtctError(f"{out} exists and is not a report: choose another file with --out")
        if out is not None:
            check_place(out)
        found = read_runs(*runs)
        screen.wait("writing the report")
        written = [str(write_report(found, out or default_file(runs)))]
        for name in asked:
            for run in screen.track(found, f"writing for {name}"):
                written.append(TRACKERS[name](run))
    print("\n".join(written))


def default_file(runs: list[Path]) -> Path:
    """Where a page goes if nobody says: to the run it is about, or here if it is about several."""
    from fedtct.report.page.write import REPORT

    return runs[0] / REPORT if len(runs) == 1 else next_free(Path("report"), ".html")
