"""What crosses the wire: megabytes by round and by silo, as they were counted when messages were packed."""

from collections.abc import Sequence
from statistics import fmean

from fedtct.history import Row
from fedtct.report.page.blocks import Block, Chart, Section, Table, TableRow, Trace, colour, of, rounds_axis
from fedtct.report.page.progress import STAGES
from fedtct.report.page.tasks import Method, Task

WAYS = {"down": "received", "up": "sent"}
MOST_SILOS = 60  # in a table
COLUMNS = ("silo", "rounds it answered", "MB received", "MB sent")


def section(task: Task) -> Section | None:
    """A chart each way; if there is one method, a table of its silos too."""
    talking = [method for method in task.methods if any(row.bytes_up for row in method.runs[0].history)]
    if not talking:
        return None
    blocks: list[Block] = [_chart(way, talking) for way in WAYS]
    if len(talking) == 1:
        blocks += _table(talking[0].runs[0].history)
    intro = "Of a silo, in each round. The line is the mean over silos; hover for the least and the most."
    if any(len(method.runs) > 1 for method in talking):
        intro += " Of several seeds, the first is shown."
    return Section("What crosses the wire", blocks, intro=intro)


def _chart(way: str, methods: Sequence[Method]) -> Chart:
    traces = [_line(way, method) for method in methods]
    axis = rounds_axis("rounds, those of the statistics included", max(len(trace["x"]) for trace in traces))
    layout = {"xaxis": axis, "yaxis": {"title": {"text": f"MB {WAYS[way]}"}, "rangemode": "tozero"}}
    return Chart(f"Megabytes {WAYS[way]} by round", traces, layout)


def _line(way: str, method: Method) -> Trace:
    rows = [row for row in method.runs[0].history if row.bytes_up or row.bytes_down]
    amounts = [_megabytes(row, way) for row in rows]
    told = [
        [fmean(values), f"{STAGES.get(row.stage, row.stage)} round {row.round}", _spread(values)]
        for row, values in zip(rows, amounts, strict=True)
    ]
    return of(
        method,
        x=list(range(1, len(rows) + 1)),
        y=[fmean(values) for values in amounts],
        mode="lines",
        line={"color": colour(method), "width": 2, "shape": "hvh"},
        customdata=told,
        hovertemplate="%{customdata[0]:.3g} MB%{customdata[2]}, %{customdata[1]}",
    )


def _megabytes(row: Row, way: str) -> list[float]:
    """A silo's each, where that is known; else their mean."""
    each = row.silo_bytes_down if way == "down" else row.silo_bytes_up
    mean = row.bytes_down if way == "down" else row.bytes_up
    return [size / 1e6 for size in (each or (mean,))]


def _spread(values: Sequence[float]) -> str:
    return "" if min(values) == max(values) else f" ({min(values):.3g} to {max(values):.3g})"


def _table(history: Sequence[Row]) -> list[Block]:
    known = [row for row in history if row.silos and row.silo_bytes_down]
    sums: dict[str, list[float]] = {}
    for row in known:
        for name, down, up in zip(row.silos, row.silo_bytes_down, row.silo_bytes_up, strict=True):
            sums[name] = [a + b for a, b in zip(sums.get(name, [0, 0, 0]), (1, down / 1e6, up / 1e6), strict=True)]
    if not 0 < len(sums) <= MOST_SILOS:
        return []
    rows = [TableRow([name, f"{n:.0f}", f"{down:,.2f}", f"{up:,.2f}"]) for name, (n, down, up) in sums.items()]
    return [Table(COLUMNS, rows)]
