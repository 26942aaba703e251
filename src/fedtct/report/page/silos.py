"""Silo by silo: who gains and who loses against the model that the silo could train alone."""

from collections.abc import Mapping, Sequence
from html import escape
from statistics import fmean

from fedtct.history import Finding, Row, rated_on
from fedtct.report.curves import LOWEST_R2
from fedtct.report.page.blocks import (
    QUIET,
    Block,
    Chart,
    Choice,
    Note,
    Rating,
    Section,
    Table,
    TableRow,
    Trace,
    beside,
    colour,
    downwards,
    of,
    rating_of,
    rows_height,
    symbol,
    ticks,
)
from fedtct.report.page.tasks import Method, Task, called
from fedtct.runs.forms import ALONE, SILOS
from fedtct.runs.summary import SILO_SAMPLES, final_row

COLUMNS = (
    "method",
    "silos that gain",
    "that lose",
    "mean gain",
    "largest loss",
    "gain on everybody’s",
    "mean gain there",
)
SAME = 0.0005  # a difference that rounds to nothing
Judged = tuple[Method, Finding, Finding]  # the run's model, and the silos' own


def section(task: Task) -> Section:
    """Tables of gains over all seeds, and for each seed every silo's accuracies."""
    alone = {run.path: found for _, run, found in task.findings(ALONE)}
    judged = [(method, run, found) for method, run, found in task.findings(SILOS) if run.path in alone]
    if not judged:
        return _without_models_of_their_own(task)
    seeds: dict[int, list[Judged]] = {}
    for method, run, found in judged:
        seeds.setdefault(run.config.seed, []).append((method, found, alone[run.path]))
    everything = [entry for entries in seeds.values() for entry in entries]
    tested = rated_on(judged[0][1].history) == "test"
    epochs = next(iter(alone.values()))["settings"]["epochs"]
    blocks: list[Block] = [
        _gains(task, everything),
        *_charts(task, seeds),
    ]
    # With one seed's split every silo may hold samples out, with another's not.
    kinds = dict.fromkeys("holdout" if found.get("held_out") else "test" for _, _, found in judged)
    own = " or ".join(SILO_SAMPLES[kind] for kind in kinds)
    everybody = "the whole test set" if tested else "what all silos hold out"
    intro = (
        f"Each silo also trained the same network alone, for {epochs} epochs on its own samples. "
        f"“Such as its own” is {own}; “everybody’s” is {everybody}."
    )
    return Section("Who gains, who loses", blocks, intro=intro)


def _gains(task: Task, judged: Sequence[Judged]) -> Table:
    """In percentage points, over all seeds: on samples such as a silo's own, then on everybody's."""
    rows, rating = [], rating_of(task)
    for method in task.methods:
        mine = [(found, alone) for own, found, alone in judged if own is method]
        gains, there = ([g for pair in mine for g in _differences(*pair, where)] for where in ("own", "everybody"))
        if gains and there:
            lost = rating.difference(min(gains)) if min(gains) < -SAME else "none"
            cells = [_share(gains), str(sum(g < -SAME for g in gains)), rating.difference(fmean(gains)), lost]
            rows.append(TableRow([method.label, *cells, _share(there), rating.difference(fmean(there))], method))
    return Table(COLUMNS, rows)


def _share(gains: Sequence[float]) -> str:
    return f"{sum(gain > SAME for gain in gains)} of {len(gains)}"


def _differences(found: Finding, alone: Finding, where: str) -> list[float]:
    ours = _values(found, where, len(alone["own"]))
    return [a - b for a, b in zip(ours, alone[where], strict=True) if a is not None and b is not None]


def _values(found: Finding, where: str, silos: int) -> list[float | None]:
    """A silo's value each; on everybody's samples a model is as good in one silo as in another."""
    value = found[where]
    return value if isinstance(value, list) else [value] * silos


def _charts(task: Task, seeds: dict[int, list[Judged]]) -> list[Block]:
    blocks: list[Block] = []
    for where, title in {"own": "On samples such as its own", "everybody": "On everybody’s samples"}.items():
        charts = {f"seed {seed}": _chart(task, entries, where, title) for seed, entries in seeds.items()}
        (chart, *more) = charts.values()
        blocks.append(Choice(charts) if more else chart)
    return blocks


def _chart(task: Task, judged: Sequence[Judged], where: str, title: str) -> Chart:
    alone, rating = judged[0][2][where], rating_of(task)
    names = task.silo_names(len(alone))
    traces = [_ways(method, found, alone, where) for method, found, _ in judged] if len(judged) == 1 else []
    traces.append(_bars(alone, names, rating))
    for method, found, _ in judged:
        values = dict(zip(names, _values(found, where, len(alone)), strict=True))
        traces.append(_dots(values, names, method, task))
    layout = _layout(traces, names, rating, f"{rating.name}; the grey bar is the silo alone")
    return Chart(title, traces, layout, height=rows_height(len(names), len(task.methods)))


def _layout(traces: Sequence[Trace], names: Sequence[str], rating: Rating, title: str) -> Trace:
    """A row for each silo."""
    values = [x for trace in traces for x in trace["x"] if x is not None]
    hidden = f"; below {LOWEST_R2:g} is outside" if min(values, default=0.0) < LOWEST_R2 else ""
    return {
        "xaxis": rating.axis_for(values) | {"title": {"text": title + hidden}},
        "yaxis": downwards(ticks(names)) | {"title": {"text": "silo"}},
        "hovermode": "closest",
    }


def _ways(method: Method, found: Finding, alone: Sequence[float | None], where: str) -> Trace:
    """From the silo's own model to the federated one."""
    x: list[float | None] = []
    y: list[int | None] = []
    for k, (a, b) in enumerate(zip(alone, _values(found, where, len(alone)), strict=True)):
        x += [a, b, None]
        y += [k, k, None]
    return of(method, x=x, y=y, mode="lines", line={"color": colour(method), "width": 1}, hoverinfo="skip")


def _dots(values: Mapping[str, float | None], names: Sequence[str], method: Method, task: Task) -> Trace:
    """A dot for each silo, in the row that has its name."""
    return of(
        method,
        x=list(values.values()),
        y=beside(map(names.index, values), method, task.methods),
        mode="markers",
        marker={"color": colour(method), "symbol": symbol(method), "size": 8},
        customdata=list(values),
        hovertemplate=f"silo %{{customdata}}, {escape(method.label)}: %{{x:{rating_of(task).template}}}<extra></extra>",
    )


def _bars(alone: Sequence[float | None], names: Sequence[str], rating: Rating) -> Trace:
    """A short vertical line a silo, as high as its row."""
    x: list[float | None] = []
    y: list[float | None] = []
    for k, value in enumerate(alone):
        x += [value, value, None]
        y += [k - 0.38, k + 0.38, None]
    line = {"color": QUIET, "width": 3}
    named = f"silo %{{customdata}} alone: %{{x:{rating.template}}}<extra></extra>"
    silos = [name for name in names for _ in range(3)]
    return {"type": "scatter", "x": x, "y": y, "mode": "lines", "line": line, "customdata": silos} | {
        "hovertemplate": named
    }


def _without_models_of_their_own(task: Task) -> Section:
    """What silos say themselves about the final model."""
    federated = [method for method in task.methods if method.config.method != "centralized"]
    ratings = {method.label: _ratings(final_row(method.runs[0].history, method.config)) for method in federated}
    names = list(dict.fromkeys(name for values in ratings.values() for name in values))
    traces = [_dots(ratings[method.label], names, method, task) for method in federated if ratings[method.label]]
    rating = rating_of(task)
    note = Note("What each silo would reach alone is not known: that was not computed, or silos are elsewhere.")
    if not traces:
        return Section("Silo by silo", [note])
    layout = _layout(traces, names, rating, f"{rating.name} on the silo’s own samples")
    height = rows_height(len(names), len(task.methods))
    chart = Chart("As the silos rate the final model", traces, layout, height)
    return Section("Silo by silo", [chart, note])


def _ratings(row: Row) -> dict[str, float | None]:
    """What each silo says about the model, by its name."""
    return dict(zip(called(row.rated_by, len(row.silo_ratings)), row.silo_ratings, strict=True))
