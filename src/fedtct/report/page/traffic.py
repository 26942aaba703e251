"""Messages in megabytes, by silo and round, as they were counted when messages were packed."""

from collections.abc import Sequence
from statistics import fmean

from fedtct.history import Row
from fedtct.report.curves import Curve, Point, beneath
from fedtct.report.page.blocks import (
    FIELDS,
    Block,
    Chart,
    Section,
    Table,
    TableRow,
    Trace,
    colour,
    downwards,
    rounds_axis,
    rows_height,
    ticks,
    trace_of,
)
from fedtct.report.page.problems import Method, Problem
from fedtct.report.page.progress import MEASURES, THICK, WIDER, place, round_of
from fedtct.runs.summary import in_megabytes

WAYS = {"down": "received", "up": "sent"}
MOST_SILOS = 60  # for a table or a chart with a row for each
COLUMNS = ("silo", "rounds it answered", "MB received", "MB sent")


def section(problem: Problem) -> Section | None:
    """A chart for each direction: every silo and round of a single method, with a table; the means of several."""
    talking = [method for method in problem.methods if any(row.bytes_up for row in method.runs[0].history)]
    if not talking:
        return None
    (first, *_) = talking
    history = first.runs[0].history
    names = list(dict.fromkeys(name for row in history if row.silo_bytes_down for name in row.silos))
    if len(talking) == 1 and 0 < len(names) <= MOST_SILOS:
        blocks: list[Block] = [_every_silo(way, first, names) for way in WAYS]
        blocks.append(_table(history))
        intro = "Of every silo, in each round. Where there is no field, the silo did not answer."
    else:
        blocks = [_chart(way, talking) for way in WAYS]
        intro = (
            "Of a silo, in each round. The line is the mean over those that answered; hover for the least and the most."
        )
    if any(len(method.runs) > 1 for method in talking):
        intro += " Of several seeds, the first is shown."
    return Section("What crosses the wire", blocks, intro=intro)


def _chart(way: str, methods: Sequence[Method]) -> Chart:
    curves = [_curve(way, method) for method in methods]
    wider = beneath(curves, MEASURES["round"], WIDER)
    traces = [_line(*each) for each in zip(methods, curves, wider, strict=True)]
    axis = rounds_axis("rounds, those of the statistics included", max(len(trace["x"]) for trace in traces))
    layout = {"xaxis": axis, "yaxis": {"title": {"text": f"MB {WAYS[way]}"}, "rangemode": "tozero"}}
    return Chart(f"Megabytes {WAYS[way]} by round", traces, layout)


def _every_silo(way: str, method: Method, names: list[str]) -> Chart:
    """A row a silo, a column a round."""
    rows = [row for row in method.runs[0].history if row.silo_bytes_down]
    sizes = [dict(zip(row.silos, _megabytes(row, way), strict=True)) for row in rows]
    rounds = [round_of(method, row) for row in rows]
    trace: Trace = {
        "type": "heatmap",
        "x": list(range(1, len(rows) + 1)),
        "z": [[size.get(name) for size in sizes] for name in names],
        "customdata": [[[name, when] for when in rounds] for name in names],
        "colorscale": FIELDS,
        "zmin": 0,  # counts only with zmax
        "zmax": max(value for size in sizes for value in size.values()),
        "ygap": 1,
        "hoverongaps": False,
        "colorbar": {"title": {"text": "MB"}, "thickness": 10, "outlinewidth": 0, "len": 0.9},
        "hovertemplate": "%{customdata[0]}: %{z:.3g} MB, %{customdata[1]}<extra></extra>",
    }
    rounds_only = {"showgrid": False, "rangemode": "normal"}  # a round 0 without fields would look like no answers
    layout = {
        "xaxis": rounds_axis("rounds, those of the statistics included", len(rows)) | rounds_only,
        "yaxis": downwards(ticks(names)) | {"automargin": True, "showgrid": False},
    }
    return Chart(f"Megabytes {WAYS[way]} by silo and round", [trace], layout, height=rows_height(len(names)))


def _curve(way: str, method: Method) -> Curve:
    rows = [row for row in method.runs[0].history if row.bytes_up or row.bytes_down]
    points = []
    for number, row in enumerate(rows, 1):
        each = _megabytes(row, way)
        points.append(Point(row.stage, row.round, number, sum(each), fmean(each), min(each), max(each)))
    return Curve(method.label, points, runs=1, silent=False)


def _line(method: Method, curve: Curve, wider: float) -> Trace:
    return trace_of(
        method,
        x=[point.rounds for point in curve.points],
        y=[point.value for point in curve.points],
        mode="lines",
        line={"color": colour(method), "width": THICK + wider, "shape": "hvh"},
        cliponaxis=False,
        customdata=[[_spread(point), place(method, point, MEASURES["round"])] for point in curve.points],
        hovertemplate="%{y:.3g} MB%{customdata[0]}%{customdata[1]}",
    )


def _megabytes(row: Row, way: str) -> list[float]:
    """A silo's each, where that is known; else their mean."""
    each = row.silo_bytes_down if way == "down" else row.silo_bytes_up
    mean = row.bytes_down if way == "down" else row.bytes_up
    return [size / 1e6 for size in (each or (mean,))]


def _spread(point: Point) -> str:
    return "" if point.low == point.high else f" ({point.low:.3g} to {point.high:.3g})"


def _table(history: Sequence[Row]) -> Table:
    sums: dict[str, list[float]] = {}
    for row in (row for row in history if row.silo_bytes_down):
        for name, down, up in zip(row.silos, row.silo_bytes_down, row.silo_bytes_up, strict=True):
            sums[name] = [a + b for a, b in zip(sums.get(name, [0, 0, 0]), (1, down, up), strict=True)]
    rows = [TableRow([name, f"{n:.0f}", in_megabytes(down), in_megabytes(up)]) for name, (n, down, up) in sums.items()]
    return Table(COLUMNS, rows)
