"""Class by class: how often each is recognised, and what it is taken for."""

from html import escape
from statistics import fmean

from fedtct.report.page.blocks import (
    PERCENT,
    SCALE,
    Chart,
    Choice,
    Note,
    Section,
    Trace,
    beside,
    beside_names,
    colour,
    downwards,
    rows_height,
    symbol,
    ticks,
    trace_of,
)
from fedtct.report.page.problems import Method, Problem
from fedtct.runs.common_class import class_names
from fedtct.runs.finding_types import CLASSES

Confusion = list[list[int]]
NO_ANSWER = "no answer"  # the name of a last column, where a sample's highest score is not finite


def section(problem: Problem) -> Section | None:
    """Of the test set, over all seeds together; none where numbers are learnt."""
    if problem.regression:
        return None
    of_method: dict[str, tuple[Method, list[Confusion]]] = {}
    tested, names = True, list[str]()
    for method, run, found in problem.findings(CLASSES):
        names = names or class_names(run, len(found["confusion"]))
        tested = found["tested"]
        of_method.setdefault(method.label, (method, []))[1].append(found["confusion"])
    if not of_method:
        over = any(method.over for method in problem.methods)
        why = "there is no test set, or it was not used" if over else "the run is not over yet"
        return Section("Class by class", [Note(f"Not known: {why}.")])
    classes = len(next(iter(of_method.values()))[1][0])
    recognised = Chart(
        "How often each class is recognised",
        [_recalls(method, problem, tables, names) for method, tables in of_method.values()],
        {
            "xaxis": beside_names(PERCENT) | {"title": {"text": "accuracy on the class"}},
            "yaxis": downwards(ticks(names)) | {"automargin": True},
            "hovermode": "closest",
        },
        height=rows_height(classes, len(problem.methods)),
    )
    where = "the test set" if tested else "what silos hold out"
    total = {label: _total(tables) for label, (_, tables) in of_method.items()}
    right = {label: sum(table[c][c] for c in range(classes)) for label, table in total.items()}
    best_first = sorted(total, key=lambda label: -right[label] / len(of_method[label][1]))  # some have more seeds
    taken = {label: _heatmap(total[label], names) for label in best_first}
    (chart, *more) = taken.values()
    seeds = max(len(tables) for _, tables in of_method.values())
    summed = " The first chart shows means over seeds, the second the samples of all seeds together."
    intro = f"On {where}.{summed if seeds > 1 else ''}"
    return Section("Class by class", [recognised, Choice(taken) if more else chart], intro=intro)


def _recalls(method: Method, problem: Problem, tables: list[Confusion], names: list[str]) -> Trace:
    shares = [
        [table[c][c] / sum(table[c]) for table in tables if sum(table[c])] for c in range(len(names))
    ]  # a class that no test sample has is not shown
    shown = [c for c, values in enumerate(shares) if values]
    return trace_of(
        method,
        mode="markers",
        x=[fmean(shares[c]) for c in shown],
        y=beside(shown, method, problem.methods),
        marker={"color": colour(method), "symbol": symbol(method), "size": 8},
        customdata=[names[c] for c in shown],
        hovertemplate=f"class %{{customdata}}, {escape(method.label)}: %{{x:$.1%}}<extra></extra>",
    )


def _total(tables: list[Confusion]) -> Confusion:
    return [[sum(counts) for counts in zip(*rows, strict=True)] for rows in zip(*tables, strict=True)]


def _heatmap(table: Confusion, names: list[str]) -> Chart:
    answers = [*names, NO_ANSWER] if any(row[-1] for row in table) else names
    shown = [row[: len(answers)] for row in table]
    trace: Trace = {
        "type": "heatmap",
        "z": [[count / sum(row) if sum(row) else None for count in row] for row in shown],
        "customdata": [[[names[i], answers[j], n] for j, n in enumerate(row)] for i, row in enumerate(shown)],
        "colorscale": SCALE,
        "zmin": 0,
        "zmax": 1,
        "xgap": 1 if len(names) <= 30 else 0,
        "ygap": 1 if len(names) <= 30 else 0,
        "colorbar": {"tickformat": "$.0%", "thickness": 10, "outlinewidth": 0, "len": 0.9},
        "hovertemplate": "%{customdata[0]} taken for %{customdata[1]}:<br>"
        "%{customdata[2]:,} samples, %{z:$.1%} of the class<extra></extra>",
    }
    if len(names) <= 12:
        trace |= {"text": [[str(n) if n else "" for n in row] for row in shown], "texttemplate": "%{text}"}
    layout = {
        "xaxis": ticks(answers) | {"title": {"text": "taken for"}, "automargin": True, "showgrid": False},
        "yaxis": downwards(ticks(names)) | {"title": {"text": "class"}, "automargin": True, "showgrid": False},
    }
    return Chart("What each class is taken for", [trace], layout, height=430, fit="square")
