"""Stage 2: spectra, step sizes and how far they are from diverging, and the distance to the pooled optimum."""

from collections.abc import Sequence
from html import escape
from math import sqrt

from fedtct.history import Finding
from fedtct.importing import is_function_name
from fedtct.report.page.blocks import (
    PERCENT,
    QUIET,
    Block,
    Chart,
    Choice,
    Note,
    Section,
    Trace,
    colour,
    downwards,
    logarithmic,
    number,
    rounds_axis,
    symbol,
    ticks,
    trace_of,
)
from fedtct.report.page.problems import Method, Problem, called
from fedtct.runs.finding_types import STAGE2
from fedtct.runs.folder import RunFolder

NOISE = 1e-8  # eigenvalues below this share of the largest are rounding errors
Inspected = tuple[Method, RunFolder, Finding]


def section(problem: Problem) -> Section | None:
    """The section about the linear problem; none if no method has one."""
    if all(method.config.method != "tct" for method in problem.methods):
        return None
    inspected = list(problem.findings(STAGE2))
    if not inspected:
        return Section("Stage 2", [Note("Not known: the runs did not reach stage 2, or did not save this.")])
    first = {method.label: (method, run, found) for method, run, found in reversed(inspected)}  # the first seed's
    known = {label: entry for label, entry in first.items() if {"spectra", "pooled_spectrum"} & entry[2].keys()}
    blocks: list[Block] = []
    if known:
        charts = {label: _spectrum(problem, method, found) for label, (method, _, found) in known.items()}
        blocks.append(_one_or_choice(charts))
    else:
        blocks.append(Note("Of each silo’s spectrum only the largest eigenvalue is known: it limits the step size."))
    stepping = {label: entry for label, entry in first.items() if "step_size" in entry[2]}
    if stepping:
        local = {label: entry for label, entry in stepping.items() if _by_itself(entry[0])}
        bars = {label: _steps(method, found) for label, (method, _, found) in local.items()}
        blocks += [_one_or_choice(bars)] if bars else []
        blocks += _distances([entry for entry in inspected if "step_size" in entry[2]])
    if len(stepping) < len(first):
        blocks.append(Note("Ridge solves the pooled problem exactly, in one round: it takes no steps."))
    seeds = {run.config.seed for _, run, _ in inspected}
    which = f" Charts of single runs are of seed {inspected[0][1].config.seed}." if len(seeds) > 1 else ""
    return Section("Stage 2: the linear problem", blocks, intro=f"{_reading(stepping)}{which}")


def _by_itself(method: Method) -> bool:
    """Whether steps are on each silo's own loss, and can diverge there; others are on everybody's."""
    return method.config.stage2 in ("scaffold", "fedavg")


def _reading(stepping: dict[str, Inspected]) -> str:
    return " ".join(f"{label} takes {_steps_taken(method, found)}." for label, (method, _, found) in stepping.items())


def _steps_taken(method: Method, found: Finding) -> str:
    if method.config.stage2 == "conjugate-gradient":
        return "the best step for everybody’s loss, in one direction after another"
    size, limit = found["step_size"], found["diverges_from"]
    if is_function_name(method.config.stage2):  # what its steps are on, and where they diverge, is not known
        return f"steps of {number(size)}"
    if _by_itself(method):
        share = f"{100 * size / limit:.0f} %"
        return f"steps of {number(size)}, {share} of the {number(limit)} at which they would diverge"
    surely = f"they would surely diverge from {number(limit)} on, and perhaps below that"
    return f"steps of {number(size)} on everybody’s loss: {surely}"


def _one_or_choice(charts: dict[str, Chart]) -> Chart | Choice:
    (chart, *more) = charts.values()
    return Choice(charts) if more else chart


def _spectrum(problem: Problem, method: Method, found: Finding) -> Chart:
    """Eigenvalues by rank, with a line where a silo's steps would diverge, or for the ridge that was added."""
    if "pooled_spectrum" in found:
        curves, limit, meaning = [found["pooled_spectrum"]], found["ridge"], "ridge"
        title, names = "Spectrum of the pooled features", ["all silos"]
    else:
        curves, limit, meaning = found["spectra"], 2 / found["step_size"], "steps diverge above"
        title = "Spectrum of each silo’s Gram matrix"
        names = [f"silo {name}" for name in problem.silo_names(len(curves))]
    traces = [_eigenvalues(method, curve, name) for curve, name in zip(curves, names, strict=True)]
    longest = max(max(curve["ranks"]) for curve in curves)
    lines = [limit] if "pooled_spectrum" in found or _by_itself(method) else []
    traces += [_line([1, longest], [value, value], f"{meaning} {number(value)}") for value in lines]
    largest = max(max(curve["eigenvalues"]) for curve in curves)
    values = [v for curve in curves for v in curve["eigenvalues"] if v > NOISE * largest]
    layout = {
        "xaxis": logarithmic([1, longest], "rank"),
        "yaxis": logarithmic([*values, *lines, 2 * largest], "eigenvalue"),
        "hovermode": "closest",
    }
    return Chart(title, traces, layout)


def _eigenvalues(method: Method, curve: dict[str, list[float]], name: str) -> Trace:
    return trace_of(
        method,
        name=name,
        x=curve["ranks"],
        y=[v if v > 0 else None for v in curve["eigenvalues"]],
        mode="lines" if len(curve["ranks"]) > 1 else "markers",
        line={"color": colour(method), "width": 1.5},
        hovertemplate=f"{escape(name)}, rank %{{x}}: %{{y:.3g}}<extra></extra>",
    )


def _line(x: list[float], y: list[float], text: str) -> Trace:
    return {
        "type": "scatter",
        "x": x,
        "y": y,
        "mode": "lines+text",
        "text": [text, ""],
        "textposition": "top right",
        "line": {"color": QUIET, "dash": "dash", "width": 1.5},
        "textfont": {"color": QUIET},
        "hoverinfo": "skip",
    }


def _steps(method: Method, found: Finding) -> Chart:
    """Each silo's step as a share of the one at which its own steps would diverge."""
    shares = [found["step_size"] * value / 2 for value in found["largest_eigenvalues"]]
    names = called(found["silos"], len(shares))
    bars = trace_of(
        method,
        type="bar",
        orientation="h",
        x=shares,
        y=list(range(len(shares))),
        marker={"color": colour(method)},
        customdata=[[number(2 / value), name] for value, name in zip(found["largest_eigenvalues"], names, strict=True)],
        hovertemplate="silo %{customdata[1]}: %{x:$.0%} of %{customdata[0]}<extra></extra>",
    )
    layout = {
        "xaxis": PERCENT | {"range": [0, 1.1], "title": {"text": "share of the step size that diverges"}},
        "yaxis": downwards(ticks(names)) | {"title": {"text": "silo"}},
        "bargap": 0.35,
        "hovermode": "closest",
    }
    return Chart("How far steps are from diverging", [bars, _wall(len(shares))], layout)


def _wall(silos: int) -> Trace:
    return {
        "type": "scatter",
        "x": [1, 1],
        "y": [-0.6, silos - 0.4],
        "mode": "lines",
        "line": {"color": QUIET, "dash": "dash", "width": 1.5},
        "hoverinfo": "skip",
    }


def _distances(inspected: Sequence[Inspected]) -> list[Block]:
    """A chart of how far each run is from the pooled optimum, round by round."""
    curves = [(method, run, _distance_by_round(run, found)) for method, run, found in inspected]
    traces = [_distance(method, run, curve) for method, run, curve in curves if curve]
    if not traces:
        return []
    layout = {
        "xaxis": rounds_axis("rounds of stage 2", max(max(trace["x"]) for trace in traces)),
        "yaxis": logarithmic((value for trace in traces for value in trace["y"]), "distance, 1 at the start"),
    }
    text = (
        "The distance is between predictions on all training samples: the model’s, and those of the best linear model "
        "for all data in one place. It starts at 1, where all weights are zero."
    )
    if any(found.get("optimal_share") is None for _, _, found in inspected):
        text += " Where that model is not known, the distance is to a perfect fit: the true one is smaller."
    return [Chart("Distance to the pooled optimum", traces, layout), Note(text, wide=False)]


def _distance_by_round(run: RunFolder, found: Finding) -> dict[int, float | None]:
    """|Z(W − W*)| over |ZW*|, which follows from losses: L(W) − L* = |Z(W − W*)|²/n, and rounds begin at W = 0.

    L* is known as a share of the loss at the beginning; if it is not, it is taken as zero. Empty if nothing is known.
    """
    optimum = found.get("optimal_share") or 0.0
    losses = {row.round: row.train_loss for row in run.history if row.stage == "stage2" and row.train_loss}
    start = losses.get(0)
    if start is None or optimum >= 1:
        return {}
    return {number: sqrt(max(loss / start - optimum, 0.0) / (1 - optimum)) or None for number, loss in losses.items()}


def _distance(method: Method, run: RunFolder, curve: dict[int, float | None]) -> Trace:
    seed = f", seed {run.config.seed}" if len(method.runs) > 1 else ""
    return trace_of(
        method,
        name=f"{method.label}{seed}",
        x=list(curve),
        y=list(curve.values()),
        mode="lines+markers",
        line={"color": colour(method), "width": 2},
        marker={"symbol": symbol(method), "size": 7, "maxdisplayed": 9},
        hovertemplate="%{y:.3g}",
    )
