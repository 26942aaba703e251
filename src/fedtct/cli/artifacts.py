"""What commands leave in run folders for people to look at: findings, pictures and the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fedtct.cli.screen import Screen
from fedtct.cli.stopping import reason_of

if TYPE_CHECKING:
    from fedtct.classifier import Fit
    from fedtct.runs.config import RunConfig
    from fedtct.runs.folder import RunFolder
    from fedtct.runs.jobs import Job

PLOTS = "plots"


def look_at_run(folder: RunFolder, job: Job, fit: Fit) -> None:
    """Find out what there is to show, and draw accuracies and who holds which classes."""
    from fedtct.history import rated_on
    from fedtct.report.plots import write_plots
    from fedtct.report.split_plot import write_split_plot
    from fedtct.runs.findings import class_counts, find_all

    find_all(folder, job, fit)
    config, plots = folder.config, folder.path / PLOTS
    folder.watcher.count("drawing", 0, 2)
    if rated_on(folder.history):  # private silos rate no model
        write_plots({config.method_name: folder.history}, plots, title=_title(config))
    folder.watcher.count("drawing", 1, 2)
    if job.class_names:
        names = [silo.name for silo in job.silos] if config.data else []
        write_split_plot(class_counts(job, fit.model.spec).numpy(), plots, job.class_names, names)
    folder.watcher.count("drawing", 2, 2)


def _title(config: RunConfig) -> str:
    """What the data is called, and how it was dealt if it was."""
    return config.dataset if config.data else f"{config.dataset}, {config.split}"


def draw_comparison(runs: Mapping[str, RunFolder], folder: Path) -> None:
    """All methods in one picture, for each split."""
    from fedtct.history import rated_on
    from fedtct.report.plots import write_plots
    from fedtct.report.style import FOR_PAPERS
    from fedtct.runs.combinations import slug
    from fedtct.runs.tables import by_method_and_split

    groups = by_method_and_split(runs)
    rated = {where: group for where, group in groups.items() if all(rated_on(run.history) for run in group)}
    for split in dict.fromkeys(split for split, _ in rated):
        here = [group for (own, _), group in rated.items() if own == split]
        curves = {group[0].config.method_name: [run.history for run in group] for group in here}
        title = _title(next(run.config for run in runs.values() if run.config.split == split))
        write_plots(curves, folder / PLOTS / slug(split), title=title, kinds=FOR_PAPERS)


def report_on(runs: Sequence[RunFolder], folder: Path) -> None:
    """Write the report of these runs into a folder."""
    from fedtct.report.page import write_report
    from fedtct.report.page.write import REPORT

    write_report(runs, folder / REPORT)


@contextmanager
def optional_if(were_over: bool, screen: Screen) -> Iterator[None]:
    """Around the writing of a report: of runs that were over before there is one, so that a failure is only told."""
    try:
        yield
    except OSError as error:
        if not were_over or not (reason := reason_of(error)):
            raise
        screen.say(f"the report was not written again: {reason}")


def to_look_at(folder: Path, instead: str) -> Path:
    """The report in a folder; where there is none, the numbers that it would show."""
    from fedtct.report.page.write import REPORT

    return next((folder / name for name in (REPORT, instead) if (folder / name).is_file()), folder)
