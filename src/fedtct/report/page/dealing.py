"""How the data is dealt: silos × classes, a circle's area is a number of samples."""

from fedtct.history import Finding
from fedtct.report.page.blocks import Chart, Choice, Note, Section, Table, TableRow, downwards, ticks
from fedtct.report.page.problems import Problem
from fedtct.runs.finding_types import SPLIT


def section(problem: Problem) -> Section:
    """A chart for each seed that deals the data anew."""
    of_seed = {run.config.seed: found for _, run, found in problem.findings(SPLIT)}
    if not of_seed:
        return _as_agreed(problem)
    if (
        len({str(found) for found in of_seed.values()}) == 1
    ):  # silos' own data is not dealt, nor is it with a split_seed
        of_seed = dict([*of_seed.items()][:1])
    charts = {f"seed {seed}": _chart(problem, found) for seed, found in of_seed.items()}
    (chart, *more) = charts.values()
    block = Choice(charts, wide=True) if more else chart
    largest = max(count for found in of_seed.values() for silo in found["silos"] for count in silo["counts"])
    what = "samples" if problem.regression else "samples of a class"
    intro = f"A circle’s area is a silo’s number of {what}; the largest has {largest:,}."
    return Section("Who holds what", [block], intro=intro)


def _as_agreed(problem: Problem) -> Section:
    """How many samples silos train on, as they said when the run began, if no more is known."""
    runs = {run.config.seed: run for method in problem.methods for run in method.runs}
    of_seed = {seed: sizes for seed, run in runs.items() if (sizes := (run.agreement() or {}).get("silos"))}
    why = "the run is not over yet, or its silos are on other machines"
    if not of_seed:
        return Section("Who holds what", [Note(f"Not known: {why} and did not say.")])
    if len({str(sizes) for sizes in of_seed.values()}) == 1:
        of_seed = dict([*of_seed.items()][:1])
    later = [name for run in runs.values() for row in run.history for name in row.silos]
    names = dict.fromkeys([name for sizes in of_seed.values() for name in sizes] + later)
    rows = [TableRow([name, *(_count(sizes.get(name)) for sizes in of_seed.values())]) for name in names]
    columns = [f"samples, seed {seed}" for seed in of_seed] if len(of_seed) > 1 else ["samples"]
    intro = "What silos train on, as they said when the run began; what they hold out is not counted."
    notes = [] if problem.regression else [Note(f"How many of each class these are is not known: {why}.")]
    return Section("Who holds what", [Table(["silo", *columns], rows), *notes], intro=intro)


def _count(samples: int | None) -> str:
    return "came later: not known" if samples is None else f"{samples:,}"


def _chart(problem: Problem, found: Finding) -> Chart:
    names, silos = found["class_names"], found["silos"]
    held = [
        (k, c, count, silo["name"], names[c])
        for k, silo in enumerate(silos)
        for c, count in enumerate(silo["counts"])
        if count
    ]
    largest = max(count for _, _, count, _, _ in held)
    circles = {
        "type": "scatter",
        "mode": "markers",
        "x": [k for k, *_ in held],
        "y": [c for _, c, *_ in held],
        "marker": {
            "color": "@0",
            "size": [count for _, _, count, *_ in held],
            "sizemode": "area",
            "opacity": 1,
            "line": {"width": 0},
        },
        "customdata": [[silo, name, count] for _, _, count, silo, name in held],
        "hovertemplate": "%{customdata[0]}"
        + ("" if problem.regression else "<br>class %{customdata[1]}")
        + ": %{customdata[2]:,} samples<extra></extra>",
        "meta": {"largest": largest},
    }
    layout = {
        "xaxis": ticks(problem.silo_names(len(silos))) | {"title": {"text": "silo"}},
        "yaxis": downwards(ticks(names)) | {"title": {"text": "class" if len(names) > 1 else ""}, "automargin": True},
    }
    return Chart("", [circles], layout, height=90 + max(160, min(26 * len(names), 900)), wide=True, fit="circles")
