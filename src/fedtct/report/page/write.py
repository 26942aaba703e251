"""All sections on one page, in one file."""

import json
import re
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from fedtct import __version__
from fedtct.files import strict, write_text
from fedtct.report.looks import COLOURS
from fedtct.report.page import classes, dealing, progress, reproduce, results, silos, stage2, traffic
from fedtct.report.page.blocks import Chart, Section
from fedtct.report.page.problems import Problem, arrange
from fedtct.runs.folder import RunFolder

REPORT = "report.html"
LONGEST = 32  # letters of a word in a table
SECTIONS: tuple[Callable[[Problem], Section | None], ...] = (
    results.section,
    progress.section,
    dealing.section,
    silos.section,
    classes.section,
    stage2.section,
    traffic.section,
    reproduce.section,
)


def write_report(runs: Sequence[RunFolder], path: Path) -> Path:
    """Write the page about these runs; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, render(runs))
    return path


def is_report(path: Path) -> bool:
    """Whether a file is such a page, and may be written again."""
    with path.open("rb") as file:
        return b'name="generator" content="fedtct"' in file.read(2000)


def render(runs: Sequence[RunFolder]) -> str:
    """The page as text."""
    problems = arrange(runs)
    charts: list[dict[str, Any]] = []

    def place(chart: Chart) -> int:
        """The number by which the page's script finds a chart."""
        charts.append({"data": chart.data, "layout": chart.layout, "fit": chart.fit, "title": chart.title})
        return len(charts) - 1

    environment = Environment(
        loader=PackageLoader("fedtct.report.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"place": place, "charts": charts, "to_json": to_json, "read": read, "pieces": pieces}
    pages = [(problem, [section for make in SECTIONS if (section := make(problem))]) for problem in problems]
    methods = {method.label: method for problem in problems for method in problem.methods}
    return environment.get_template("page.html").render(
        pages=pages, methods=list(methods.values()), colours=COLOURS, version=__version__
    )


def to_json(value: Any) -> str:
    """JSON in a form that is safe within a script element."""
    return json.dumps(short(strict(value)), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def short(value: Any) -> Any:
    """Numbers with as many digits as can be seen in a chart."""
    if isinstance(value, dict):
        return {key: short(item) for key, item in value.items()}
    if isinstance(value, list):
        return [short(item) for item in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def pieces(text: str) -> list[str]:
    """A table's text in pieces, between which very long words, such as names of files, may be broken."""
    return re.sub(rf"(\S{{{LONGEST}}})(?=\S)", "\\1\0", text).split("\0")


def read(name: str) -> str:
    """The text of a file beside this one."""
    return (files("fedtct.report.page") / name).read_text(encoding="utf-8")
