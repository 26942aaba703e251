"""Accuracy and loss by round and by megabyte: a curve a method, a band over its seeds, stages told apart."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from fedtct.history import Row, rated_on
from fedtct.report.curves import Curve, Point, beneath, level, read_curves, read_stage
from fedtct.report.page.blocks import (
    NARROW,
    Chart,
    Note,
    Rating,
    Section,
    Trace,
    colour,
    logarithmic,
    rating_of,
    rounds_axis,
    symbol,
    trace_of,
)
from fedtct.report.page.problems import Method, Problem

STAGES = {"stage1": "stage 1", "convexify": "statistics", "stage2": "stage 2"}  # whose rounds these are
WHOSE = {"test_loss": "Test", "holdout_loss": "Held-out", "train_loss": "Training"}  # the first that is known
LOSSES = {"stage1": "cross-entropy in stage 1", "stage2": "squared error in stage 2"}
LOSS = Rating("loss", {}, ".3g", 1, 3, "")
THICK = 2  # pixels, of a line
WIDER = 3  # pixels, of a line for each one that lies on it
MEASURES: dict[str, Callable[[Point], float]] = {
    "round": lambda point: point.rounds,
    "megabyte": lambda point: point.megabytes,
}


def section(problem: Problem) -> Section:
    """A row of charts for accuracy, and for the loss of each stage: the stages minimise different ones."""
    histories = {method.label: [run.history for run in method.runs] for method in problem.methods if _rated(method)}
    if not histories:
        return Section("How it went", [Note("Not known: there is no test set, and silos did not rate the model.")])
    whole, accuracy = read_curves(histories)
    rating = rating_of(problem)
    curves = whole if problem.regression else _trained(whole)
    start = "" if curves is whole else " Round 0 is lower, and left out of the charts of accuracy."
    axis = rating.axis_for(point.low for curve in curves for point in curve.points)
    charts = _charts(accuracy[0].upper() + accuracy[1:], problem, curves, rating, {"yaxis": axis})
    rows = [row for many in histories.values() for rows in many for row in rows]
    field = next((field for field in WHOSE if any(getattr(row, field) is not None for row in rows)), "train_loss")
    for stage, loss in (LOSSES | ({"stage1": "squared error in stage 1"} if problem.regression else {})).items():
        curves = read_stage(histories, field, stage)
        if any(len(curve.points) > 1 for curve in curves):
            values = [value for curve in curves for point in curve.points for value in (point.low, point.high)]
            charts += _charts(f"{WHOSE[field]} {loss}", problem, curves, LOSS, {"yaxis": logarithmic(values)})
    return Section("How it went", charts, intro=(_reading(problem, whole, charts) + start).strip())


def _trained(curves: list[Curve]) -> list[Curve]:
    """Curves without round 0 if all that comes after is very high: the untrained model would make it one line."""
    later = [replace(curve, points=[point for point in curve.points if point.rounds]) for curve in curves]
    lowest = min((point.low for curve in later for point in curve.points), default=0.0)
    untrained = any(point.low <= NARROW for curve in curves for point in curve.points)
    return later if lowest > NARROW and untrained and all(curve.points for curve in later) else curves


def _rated(method: Method) -> bool:
    """Whether the model of every run was rated at all; with differential privacy silos keep that to themselves."""
    return all(rated_on(run.history) for run in method.runs)


def _reading(problem: Problem, curves: Sequence[Curve], charts: Sequence[Chart]) -> str:
    parts = ["Switch methods on and off above."] if len(problem.methods) > 1 else []
    tct = {method.label for method in problem.methods if method.config.method == "tct"}
    if drawn := [curve for curve in curves if curve.label in tct]:
        ring = "; stage 2 begins at the ring" if any(len(curve.stages) > 1 for curve in drawn) else ""
        parts.append(f"Stage 1 of TCT is dashed{ring}.")
    if any(trace.get("line", {}).get("width", 0) > THICK for chart in charts for trace in chart.data):
        parts.append("A line is wider where others lie on it.")
    if any(len(method.runs) > 1 for method in problem.methods):
        parts.append("A line is the mean over seeds, its band goes from the worst to the best.")
    return " ".join(parts)


def _charts(what: str, problem: Problem, curves: Sequence[Curve], shown: Rating, layout: Trace) -> list[Chart]:
    methods = {method.label: method for method in problem.methods}
    farthest = max(curve.last.megabytes for curve in curves) or 1.0
    charts = []
    for unit, measure in MEASURES.items():
        drawn = [level(curve, farthest) if curve.silent and unit == "megabyte" else curve for curve in curves]
        traces: list[Trace] = []
        for curve, wider in zip(drawn, beneath(drawn, measure, WIDER), strict=True):
            method = methods[curve.label]
            if curve.silent and unit == "megabyte":
                traces.append(_level(method, curve, shown, wider))
            else:
                traces += _draw(method, curve, shown, measure, wider)
        charts.append(Chart(f"{what} by {unit}", traces, {"xaxis": _across(unit, curves)} | layout))
    return charts


def _across(unit: str, curves: Sequence[Curve]) -> Trace:
    """From zero, but for stage 2 alone: more than half would be empty."""
    begun = {"rangemode": "normal"} if all(curve.points[0].stage == "stage2" for curve in curves) else {}
    if unit == "round":
        return rounds_axis("rounds", max(curve.last.rounds for curve in curves)) | begun
    axis = {"title": {"text": "MB a silo sends and receives"}, "rangemode": "tozero"}
    return axis | {"unifiedhovertitle": {"text": "%{x:.3g} MB"}} | begun


def _draw(method: Method, curve: Curve, shown: Rating, measure: Callable[[Point], float], wider: float) -> list[Trace]:
    """Lines of the stages, a band, rings where a stage begins, and the points that show values."""
    quiet = {"hoverinfo": "skip"}
    traces = []
    if curve.runs > 1:
        x, low, high = ([f(p) for p in curve.points] for f in (measure, lambda p: p.low, lambda p: p.high))
        band = {"mode": "lines", "line": {"width": 0}, "fill": "toself", "fillcolor": f"{colour(method)}/0.16"}
        traces.append(trace_of(method, x=[*x, *x[::-1]], y=[*low, *high[::-1]], **band, **quiet))
    *earlier, final = curve.stages
    for stage in (*earlier, final):
        places = {"x": [*map(measure, stage)], "y": [p.value for p in stage]}
        line: Trace = {"color": colour(method), "width": THICK + wider}
        if method.config.method == "tct" and stage[-1].stage == "stage1":
            ground = line | {"color": "@page"}  # on which dashes are seen where another line is below
            traces.append(trace_of(method, **places, mode="lines", line=ground, **quiet))
            line["dash"] = _dashes(wider)
        traces.append(trace_of(method, **places, mode="lines", line=line, **quiet))
    for stage in earlier:
        ring = {"color": "@page", "size": 11 + wider, "line": {"color": colour(method), "width": 2}}
        end = stage[-1]
        traces.append(trace_of(method, x=[measure(end)], y=[end.value], mode="markers", marker=ring, **quiet))
    marker = {"color": colour(method), "symbol": symbol(method), "size": 7 + wider, "maxdisplayed": 9}
    traces.append(
        trace_of(
            method,
            x=[*map(measure, curve.points)],
            y=[p.value for p in curve.points],
            mode="markers",
            marker=marker,
            customdata=[[_range(p, curve, shown), place(method, p, measure)] for p in curve.points],
            hovertemplate=f"%{{y:{shown.template}}}%{{customdata[0]}}%{{customdata[1]}}",
        )
    )
    return traces


def _dashes(wider: float) -> str:
    """So much longer than the line is wide that they do not look like bars."""
    return f"{4 + 2 * wider:g}px,{3 + wider:g}px"


def _level(method: Method, curve: Curve, shown: Rating, wider: float) -> Trace:
    """What sends nothing, at where it ends."""
    line = {"color": colour(method), "width": THICK + wider, "dash": "dot"}
    ends = {"x": [point.megabytes for point in curve.points], "y": [point.value for point in curve.points]}
    template = f"%{{y:{shown.template}}}, sends nothing"
    return trace_of(method, **ends, mode="lines", line=line, hovertemplate=template)


def place(method: Method, point: Point, measure: Callable[[Point], float]) -> str:
    """What the axis does not tell of the round."""
    known = measure is MEASURES["round"] and method.config.method != "tct"
    return "" if known else f", {round_of(method, point)}"


def round_of(method: Method, point: Point | Row) -> str:
    """The round, of a stage: other methods than TCT have none."""
    stage = f"{STAGES.get(point.stage, point.stage)} " if method.config.method == "tct" else ""
    return f"{stage}round {point.round}"


def _range(point: Point, curve: Curve, shown: Rating) -> str:
    if curve.runs == 1:
        return ""
    return f" ({shown.plain(point.low)} to {shown.plain(point.high)})"
