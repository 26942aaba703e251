"""How the data is dealt: silos × classes, a circle's area is a number of samples."""

from fedtct.history import Finding
from fedtct.report.page.blocks import Chart, Choice, Note, Section, downwards, ticks
from fedtct.report.page.tasks import Task
from fedtct.runs.forms import SPLIT


def section(task: Task) -> Section:
    """One chart a seed: each deals anew."""
    of_seed = {run.config.seed: found for _, run, found in task.findings(SPLIT)}
    if not of_seed:
        why = "Not known: the run is not over yet, or its silos are elsewhere and do not tell how many samples of what."
        return Section("Who holds what", [Note(why)])
    if len({str(found) for found in of_seed.values()}) == 1:  # silos' own data is not dealt
        of_seed = dict([*of_seed.items()][:1])
    charts = {f"seed {seed}": _chart(task, found) for seed, found in of_seed.items()}
    (chart, *more) = charts.values()
    block = Choice(charts, wide=True) if more else chart
    largest = max(count for found in of_seed.values() for silo in found["silos"] for count in silo["counts"])
    what = "samples" if task.regression else "samples of a class"
    intro = f"A circle’s area is a silo’s number of {what}; the largest has {largest:,}."
    return Section("Who holds what", [block], intro=intro)


def _chart(task: Task, found: Finding) -> Chart:
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
        "hovertemplate": "%{customdata[0]}<br>class %{customdata[1]}: %{customdata[2]:,} samples<extra></extra>",
        "meta": {"largest": largest},
    }
    layout = {
        "xaxis": ticks(task.silo_names(len(silos))) | {"title": {"text": "silo"}},
        "yaxis": downwards(ticks(names)) | {"title": {"text": "class" if len(names) > 1 else ""}, "automargin": True},
    }
    return Chart("", [circles], layout, height=90 + max(160, min(26 * len(names), 900)), wide=True, fit="circles")
