"""Silo by silo: who gains and who loses against the model that the silo could train alone."""

from collections.abc import Mapping, Sequence
from html import escape
from statistics import fmean

from fedtct.errors import listing
from fedtct.history import Finding, Row, rated_on
from fedtct.report.curves import LOWEST_R2
from fedtct.report.page.blocks import (
    LANES,
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
    beside_names,
    colour,
    downwards,
    rating_of,
    rows_height,
    symbol,
    ticks,
    trace_of,
)
from fedtct.report.page.problems import Method, Problem, by_value, called, listed, text_of
from fedtct.runs.finding_types import ALONE, SILOS
from fedtct.runs.summary import SILO_SAMPLES, final_row

COLUMNS = (
    "method",
    "silos that gain",
    "that lose",
    "that stay as they were",
    "mean gain",
    "largest loss",
    "gain on everybody’s",
    "mean gain there",
)
SAME = 0.0005  # a difference that rounds to nothing
Judged = tuple[Method, Finding, Finding]  # the run's model, and the silos' own


def section(problem: Problem) -> Section:
    """Tables of gains over all seeds, and for each seed every silo's accuracies."""
    alone = {run.path: found for _, run, found in problem.findings(ALONE)}
    judged = [(method, run, found) for method, run, found in problem.findings(SILOS) if run.path in alone]
    if not judged:
        return _without_models_of_their_own(problem)
    # What diverged has no accuracy: that it is as good as a silo's own, which diverged likewise, says nothing.
    judged = [entry for entry in judged if not final_row(entry[1].history, entry[1].config).diverged] or judged
    seeds: dict[int, list[Judged]] = {}
    for method, run, found in judged:
        seeds.setdefault(run.config.seed, []).append((method, found, alone[run.path]))
    everything = [entry for entries in seeds.values() for entry in entries]
    tested = rated_on(judged[0][1].history) == "test"
    blocks: list[Block] = [
        _gains(problem, everything),
        *_charts(problem, seeds),
    ]
    # With one seed's split every silo may hold samples out, with another's not.
    kinds = dict.fromkeys("holdout" if found["held_out"] else "test" for _, _, found in judged)
    own = " or ".join(SILO_SAMPLES[kind] for kind in kinds)
    everybody = "the whole test set" if tested else "what all silos hold out"
    if fewer := {alone["samples"] for _, _, alone in everything if "samples" in alone}:
        everybody += f" (for silos’ own models {max(fewer):,} samples of it, drawn at random)"
    intro = f"{_training(everything)} “Such as its own” is {own}; “everybody’s” is {everybody}."
    more = [problem.caveats if "holdout" in kinds else "", _away(problem)]
    intro = " ".join([intro, *filter(None, more)])
    return Section("Who gains, who loses", blocks, intro=intro)


def _training(judged: Sequence[Judged]) -> str:
    """How silos trained alone: as in the run that they are compared with, which need not be the same in all runs."""
    settings = [(method, alone["settings"]) for method, _, alone in judged]
    names = [name for name in dict.fromkeys(name for _, of_run in settings for name in of_run) if name != "seed"]
    known = {name: {text_of(of_run[name]) for _, of_run in settings if name in of_run} for name in names}
    differing = [name for name, values in known.items() if len(values) > 1]
    ways = by_value((_way(of_run, differing), method) for method, of_run in settings)
    if len(ways) == 1:
        return f"Each silo also trained the same network alone, for {next(iter(ways))} on its own samples."
    told = "; ".join(f"for {way} beside {listed(labels)}" for way, labels in ways.items())
    return f"Each silo also trained alone, on its own samples and with each run’s settings, which differ: {told}."


def _way(settings: Finding, names: Sequence[str]) -> str:
    """The epochs, and other settings by their names."""
    epochs = f"{settings['epochs']} epoch{'s' if settings['epochs'] > 1 else ''}"
    more = [f"{name} {text_of(settings[name])}" for name in names if name != "epochs" and name in settings]
    return f"{epochs} with {listed(more)}" if more else epochs


def _gains(problem: Problem, judged: Sequence[Judged]) -> Table:
    """In percentage points, over all seeds: on samples such as a silo's own, then on everybody's."""
    rows, rating = [], rating_of(problem)
    for method in problem.methods:
        mine = [(found, alone) for own, found, alone in judged if own is method]
        gains, there = ([g for pair in mine for g in _differences(*pair, where)] for where in ("own", "everybody"))
        if gains and there:
            lost = rating.difference(min(gains)) if min(gains) < -SAME else "none"
            others = [str(sum(g < -SAME for g in gains)), str(sum(abs(g) <= SAME for g in gains))]
            cells = [_share(gains), *others, rating.difference(fmean(gains)), lost]
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


def _charts(problem: Problem, seeds: dict[int, list[Judged]]) -> list[Block]:
    blocks: list[Block] = []
    for where, title in {"own": "On samples such as its own", "everybody": "On everybody’s samples"}.items():
        charts = {f"seed {seed}": _chart(problem, entries, where, title) for seed, entries in seeds.items()}
        (chart, *more) = charts.values()
        blocks.append(Choice(charts) if more else chart)
    return blocks


def _chart(problem: Problem, judged: Sequence[Judged], where: str, title: str) -> Chart:
    """One bar a silo if its own model is the same beside all methods, else one beside each method's symbol."""
    first, rating = judged[0][2], rating_of(problem)
    names = problem.silo_names(len(first["own"]))
    shared = all(alone[part] == first[part] for _, _, alone in judged for part in ("own", "everybody"))
    traces: list[Trace] = []
    if shared and len(judged) > 1:
        traces.append(_bars(first[where], names, problem))
    else:
        for method, found, alone in judged:
            traces.append(_ways(method, problem, found, alone[where], where))
            traces.append(_bars(alone[where], names, problem, method))
    for method, found, alone in judged:
        values = dict(zip(names, _values(found, where, len(alone["own"])), strict=True))
        traces.append(_dots(values, names, method, problem))
    layout = _layout(traces, names, rating, f"{rating.name}; the grey bar is the silo alone")
    return Chart(title, traces, layout, height=rows_height(len(names), len(problem.methods)))


def _layout(traces: Sequence[Trace], names: Sequence[str], rating: Rating, title: str) -> Trace:
    """A row for each silo."""
    values = [x for trace in traces for x in trace["x"] if x is not None]
    hidden = f"; below {LOWEST_R2:g} is outside" if min(values, default=0.0) < LOWEST_R2 else ""
    return {
        "xaxis": beside_names(rating.axis_for(values)) | {"title": {"text": title + hidden}},
        "yaxis": downwards(ticks(names)) | {"title": {"text": "silo"}},
        "hovermode": "closest",
    }


def _ways(method: Method, problem: Problem, found: Finding, alone: Sequence[float | None], where: str) -> Trace:
    """From the silo's own model to the federated one."""
    x: list[float | None] = []
    y: list[float | None] = []
    lanes = beside(range(len(alone)), method, problem.methods)
    for lane, a, b in zip(lanes, alone, _values(found, where, len(alone)), strict=True):
        x += [a, b, None]
        y += [lane, lane, None]
    return trace_of(method, x=x, y=y, mode="lines", line={"color": colour(method), "width": 1}, hoverinfo="skip")


def _dots(values: Mapping[str, float | None], names: Sequence[str], method: Method, problem: Problem) -> Trace:
    """A dot for each silo, in the row that has its name."""
    shown = f"%{{x:{rating_of(problem).template}}}"
    return trace_of(
        method,
        x=list(values.values()),
        y=beside(map(names.index, values), method, problem.methods),
        mode="markers",
        marker={"color": colour(method), "symbol": symbol(method), "size": 8},
        customdata=list(values),
        hovertemplate=f"silo %{{customdata}}, {escape(method.label)}: {shown}<extra></extra>",
    )


def _bars(alone: Sequence[float | None], names: Sequence[str], problem: Problem, method: Method | None = None) -> Trace:
    """A short vertical line a silo: as high as its row if it is for all methods, else in the row's lane of one."""
    lanes = beside(range(len(names)), method, problem.methods) if method else range(len(names))
    half = 0.5 * LANES / len(problem.methods) if method else 0.38
    x: list[float | None] = []
    y: list[float | None] = []
    for lane, value in zip(lanes, alone, strict=True):
        x += [value, value, None]
        y += [lane - half, lane + half, None]
    beside_whom = f", beside {escape(method.label)}" if method and len(problem.methods) > 1 else ""
    shown = f"%{{x:{rating_of(problem).template}}}"
    trace: Trace = {
        **{"x": x, "y": y, "mode": "lines", "line": {"color": QUIET, "width": 3}},
        "customdata": [name for name in names for _ in range(3)],
        "hovertemplate": f"silo %{{customdata}} alone{beside_whom}: {shown}<extra></extra>",
    }
    return trace_of(method, **trace) if method else {"type": "scatter"} | trace


def _without_models_of_their_own(problem: Problem) -> Section:
    """What silos say themselves about the final model."""
    federated = [method for method in problem.methods if method.config.method != "centralized" and method.over]
    ratings = {method.label: _ratings(final_row(method.counted[0].history, method.config)) for method in federated}
    names = list(dict.fromkeys(name for values in ratings.values() for name in values))
    traces = [_dots(ratings[method.label], names, method, problem) for method in federated if ratings[method.label]]
    rating = rating_of(problem)
    note = Note("What each silo would reach alone is not known: it was not computed, or silos are on other machines.")
    if not traces:
        return Section("Silo by silo", [note], intro=_away(problem))
    layout = _layout(traces, names, rating, f"{rating.name} on the silo’s own samples")
    height = rows_height(len(names), len(problem.methods))
    chart = Chart("As the silos rate the final model", traces, layout, height)
    return Section("Silo by silo", [chart, note], intro=_away(problem))


def _away(problem: Problem) -> str:
    """Who did not answer in some rounds, a sentence a run; empty if all silos always did."""
    runs = [(method, run) for method in problem.methods for run in method.runs]
    told = []
    for method, run in runs:
        if drawn := run.config.per_round:  # those that were not drawn were not away
            told.append(f"In each round of training {drawn} of the silos take part, drawn at random.")
        asked_all = [row for row in run.history if not (drawn and row.stage == "stage1")]
        answered = [row.silos for row in asked_all if row.silo_bytes_down]
        names = dict.fromkeys([*(run.agreement() or {}).get("silos", ()), *(name for row in answered for name in row)])
        missed = {name: sum(name not in row for row in answered) for name in names}
        away = [f"{name} for {rounds}" for name, rounds in missed.items() if rounds]
        if answered and away:
            which = "" if len(runs) == 1 else f" ({method.label}, seed {run.config.seed})"
            told.append(f"Not every silo answered in all of the {len(answered)} rounds{which}. Away: {listing(away)}.")
    return " ".join(dict.fromkeys(told))


def _ratings(row: Row) -> dict[str, float | None]:
    """What each silo says about the model, by its name."""
    return dict(zip(called(row.rated_by, len(row.silo_ratings)), row.silo_ratings, strict=True))
