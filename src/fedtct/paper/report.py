"""The paper's tables and figures with our results in them, as one page and its pictures."""

import re
from collections import Counter
from pathlib import Path
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from fedtct.errors import FedtctError
from fedtct.paper.figures import Curve, Figure, Panel, figures
from fedtct.paper.protocol import Tangent, network_of
from fedtct.paper.results import LAST, Found, Result, Results
from fedtct.paper.tables import TITLES, Cell, cells
from fedtct.report.looks import COLOURS, QUIET, looks
from fedtct.report.style import WHOLE, new_figure, save

PAGE, PICTURES, FINDINGS = "results.md", "images/paper", "findings.md"
WIDTH, HEIGHT = 2.6, 2.5  # of a panel's axes in inches: two stand beside each other, and one is read on a phone
CLOSE = 2  # points of accuracy
LONG = 20  # rows that one reads as one table
BOTH = "test accuracy (dotted: training)"

INTRODUCTION = """# The paper, reproduced

Our numbers beside the published ones, for every table and figure of the paper; [Reproduce the paper](reproduce.md) says
how to run them again. Numbers are top-1 test accuracy in per cent.
"""
READING = """## How to read the tables

`fedtct paper report` makes this page from the files in `results/paper`. There is one for each run, with configuration,
seed, commit, hardware and curve by round.

- **Ours** is the accuracy after the last round. Where it swings from round to round, the mean of the last ten rounds
  says more; it stands beside it, with the smallest and the largest of them.
- **Scale** `full` is the paper's protocol: 10 silos, batch size 64, 5 local epochs, weight decay 1e-5, 200 rounds for
  baselines and 100 + 100 for TCT. Scale `half` has half as many rounds; FedAvg's are the 100 rounds that TCT starts
  from, where TCT was run.
- **Centralized** and table 1's retraining have 40 rounds of 5 epochs, Fashion-MNIST's Centralized 200. The paper does
  not say how long it trains on pooled data.
- **Learning rates** are chosen from the paper's grid after a fifth of the rounds, by the accuracy on a tenth of the
  samples that every silo holds out, averaged over the last five of these rounds. Where a rate is "given", there was no
  choice, and all samples are trained on, as in the paper. It may have been given after test accuracies were seen; the
  findings say where.
- **Images** of CIFAR are cropped and flipped, those of Fashion-MNIST are not.
- **Precision:** on the GPU, networks are trained and rated in bf16. Tangent features and stage 2 use float32.
- **In figures,** TCT's stage 1 is a thin line, grey where several runs continue from it.
"""


def write_report(results: Results, docs: Path, findings: str = "") -> list[Path]:
    """Write the page and the pictures of figures that have results."""
    text = page(results, findings)
    pictures = [path for figure in figures().values() for path in _draw(results, figure, docs / PICTURES)]
    docs.mkdir(parents=True, exist_ok=True)
    (docs / PAGE).write_text(text, encoding="utf-8")
    return [docs / PAGE, *pictures]


def page(results: Results, findings: str = "") -> str:
    """Every table and figure; each finding stands below what it is about."""
    found = _by_place(findings)
    text = [INTRODUCTION, _progress(results), _glance(results)]
    if "Findings" in found:
        text.append(f"## Findings\n\n{found.pop('Findings')}")
    text.append(READING)
    for table, title in TITLES.items():
        text += [f"## {_called(table)}: {title}\n\n{_table(results, cells(table))}", found.pop(_called(table), "")]
    for figure in figures().values():
        place = _called(figure.name)
        run = [(name, f"{figure.title}: {panel.title}, {_accuracy(panel)}") for name, panel in _panels(results, figure)]
        picture = "".join(f"![{alt}]({PICTURES}/{name}.svg)\n" for name, alt in run) or "Not run yet.\n"
        text += [f"## {place}: {figure.title}\n\n{_coverage(results, figure)}\n\n{picture}", found.pop(place, "")]
    if found:
        raise FedtctError(f"{FINDINGS} is about '{next(iter(found))}', which is not a table or figure of the paper")
    return "\n".join(filter(None, text))


def _by_place(findings: str) -> dict[str, str]:
    """Headings of the second degree, and what stands below each."""
    _, *parts = re.split(r"^## (.+)$", findings, flags=re.MULTILINE)
    return {place: f"{text.strip()}\n" for place, text in zip(parts[::2], parts[1::2], strict=True)}


def _called(name: str) -> str:
    """A table or figure as a heading has it: Table 2 for table2."""
    return re.sub(r"(\D+)", r"\1 ", name).capitalize()


def _progress(results: Results) -> str:
    every = cells()
    scales = Counter(results.of(cell.run)[0].scale for cell in every if results.has_cell(cell))
    smaller = "".join(f", {count} of them at scale `{scale}`" for scale, count in scales.items() if scale != "full")
    return f"{scales.total()} of {len(every)} numbers in the paper's tables have been run so far{smaller}.\n"


def _glance(results: Results) -> str:
    """How far from the published numbers each table is."""
    lines = [
        f"| | numbers | run | within {CLOSE} points | further above | further below |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for table, title in TITLES.items():
        wanted = cells(table)
        found = [(results.of_cell(cell), cell) for cell in wanted if results.has_cell(cell)]
        differences = [ours.accuracy - cell.published for ours, cell in found if ours]
        above, below = (sum(sign * d > CLOSE for d in differences) for sign in (1, -1))
        counts = (len(wanted), len(found), len(found) - above - below, above, below)
        lines.append(f"| {_called(table)}: {title} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines) + "\n"


def _table(results: Results, wanted: tuple[Cell, ...]) -> str:
    """A row for each cell; a long table is one for each dataset."""
    datasets = dict.fromkeys(cell.dataset for cell in wanted)
    if len(wanted) <= LONG or len(datasets) == 1:
        return _rows(results, wanted)
    parts = {name: tuple(cell for cell in wanted if cell.dataset == name) for name in datasets}
    return "\n".join(f"**{name}**\n\n{_rows(results, part)}" for name, part in parts.items())


def _rows(results: Results, wanted: tuple[Cell, ...]) -> str:
    """A row for each cell; a dataset or split that all have in common is above them."""
    heads = ("dataset", "split", "method", "ours", f"last {LAST} rounds", "published", "difference", "scale")
    rows = [_row(cell, results.of_cell(cell)) for cell in wanted]
    kept = [k for k, head in enumerate(heads) if head not in ("dataset", "split") or len({row[k] for row in rows}) > 1]
    rules = ["---" if heads[k] in ("dataset", "split", "method", "scale") else "---:" for k in kept]
    lines = [[heads[k] for k in kept], *([row[k] for k in kept] for row in rows)]
    head, *body = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([head, f"|{'|'.join(rules)}|", *body]) + "\n"


def _row(cell: Cell, found: Found | None) -> list[str]:
    ours, settled, difference, scale = "", "", "", ""
    if found:
        ours, last = f"{found.accuracy:.2f}", found.last_rounds
        settled = f"{fmean(last):.1f} ({min(last):.1f} to {max(last):.1f})" if last else ""
        difference = f"{found.accuracy - cell.published:+.2f}" if found.comparable else ""
        scale = found.label + _seeds(found.accuracies)
    name = cell.key.split("/", 2)[2].replace("/", ", ")
    return [cell.dataset, cell.split, name, ours, settled, f"{cell.published:.2f}", difference, scale]


def _seeds(accuracies: list[float]) -> str:
    """What each seed gave, where there are several."""
    listed = ", ".join(f"{value:.2f}" for value in accuracies)
    return f"; {len(accuracies)} seeds: {listed}" if len(accuracies) > 1 else ""


def _coverage(results: Results, figure: Figure) -> str:
    curves = [curve for panel in figure.panels for curve in panel.curves]
    done = [results.of(curve.run)[0] for curve in curves if results.has_curve(curve.run)]
    diverged = sum(result.diverged for result in done)
    not_drawn = f", {diverged} of them diverged and are not drawn" if diverged else ""
    return f"{len(done)} of {len(curves)} curves have been run{not_drawn}."


def _panels(results: Results, figure: Figure) -> list[tuple[str, Panel]]:
    """Those that have results, and what their pictures are called."""
    named = [(f"{figure.name}-{number}", panel) for number, panel in enumerate(figure.panels, 1)]
    return [(name, panel) for name, panel in named if any(results.of(c.run) for c in panel.curves)]


def _draw(results: Results, figure: Figure, folder: Path) -> list[Path]:
    """A picture of each panel that has results."""
    paths = []
    for name, panel in _panels(results, figure):
        with new_figure(WIDTH, HEIGHT) as picture:
            axes = picture.add_axes(WHOLE, xlabel="rounds", ylabel=_accuracy(panel), ylim=(0, 1.01))
            axes.set_title(panel.title, fontsize=11)
            axes.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
            axes.grid(axis="y")
            draw_panel(results, panel, axes)
            axes.legend(loc="upper left", bbox_to_anchor=(-0.1, -0.2), fontsize=10)
            paths += save(picture, folder, name)
    return paths


def _accuracy(panel: Panel) -> str:
    metrics = {curve.metric for curve in panel.curves}
    return {"train": "training accuracy", "test": "test accuracy"}[metrics.pop()] if len(metrics) == 1 else BOTH


def draw_panel(results: Results, panel: Panel, axes: Axes) -> None:
    """Every run in a colour of its own, but for a stage 1 that several of them share."""
    known = {curve.run: next(iter(results.of(curve.run)), None) for curve in panel.curves}
    # A run that is still to come has its colour already, so that a split's colour is the same in all panels.
    lasting = [run for run, result in known.items() if result is None or not result.diverged]
    number = looks([*dict.fromkeys(curve.label for curve in panel.curves if curve.run in lasting)])
    going_on = [run.network for run in lasting if isinstance(run, Tangent)]
    for curve in panel.curves:
        if (result := known[curve.run]) and curve.run in lasting:
            before, points = result.curves(curve.metric)
            style, colour, label = "-", COLOURS[number[curve.label]], _label(curve, result)
            if curve.metric == "train" and _accuracy(panel) == BOTH:
                style, label = ":", ""
            axes.plot(*zip(*points, strict=True), style, color=colour, label=label, lw=1.4)
            if before:
                thin = colour if going_on.count(network_of(curve.run)) == 1 else QUIET
                axes.plot(*zip(*before, points[0], strict=True), style, color=thin, lw=0.8, zorder=1)


def _label(curve: Curve, result: Result) -> str:
    return curve.label if result.scale == "full" else f"{curve.label} ({result.size})"
