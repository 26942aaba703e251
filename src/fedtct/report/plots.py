"""Accuracy by round and by megabyte, a curve a method."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, StrMethodFormatter

from fedtct.report.curves import LOWEST_R2, Curve, Histories, Point, beneath, level, read_curves
from fedtct.report.looks import COLOURS, MARKERS, QUIET, looks
from fedtct.report.style import PICTURES, WHOLE, new_figure, save

WIDER = 3.0  # points, of a line for each one that lies on it
MARKS = 8  # about so many markers along a curve
DASHES = (3.5, 2.5)  # of stages before the last, in widths of the line

Measure = Callable[[Point], float]


def write_plots(histories: Histories, folder: Path, *, title: str = "", kinds: Sequence[str] = PICTURES) -> list[Path]:
    """Write ``accuracy-by-round`` and ``accuracy-by-megabyte``; the files written.

    ``histories`` has for each label a history, or several (one a seed), which are drawn as their mean in a band from
    the worst to the best. By megabyte, what sends nothing is a level line.
    """
    curves, accuracy = read_curves(histories)
    farthest = max(curve.last.megabytes for curve in curves) or 1.0
    levelled = [_sends_nothing(level(curve, farthest)) if curve.silent else curve for curve in curves]
    paths = []
    for drawn, name, unit, measure in [
        (curves, "accuracy-by-round", "rounds", lambda point: point.rounds),
        (levelled, "accuracy-by-megabyte", "megabytes sent and received by a silo", lambda point: point.megabytes),
    ]:
        with new_figure(6.6, 4.2) as figure:
            axes = figure.add_axes(WHOLE, title=title, xlabel=unit, ylabel=accuracy)
            shares = not accuracy.endswith("R²")
            widths = beneath(drawn, measure, WIDER)
            each = zip(drawn, looks([curve.label for curve in curves]).values(), widths, strict=True)
            entries = [_draw(axes, curve, look, measure, shares, wider) for curve, look, wider in each]
            _scale(axes, whole=unit == "rounds", shares=shares)
            _add_legend(axes, drawn, entries)
            paths += save(figure, folder, name, kinds)
    return paths


def _sends_nothing(curve: Curve) -> Curve:
    return replace(curve, label=f"{curve.label} (sends nothing)")


def _draw(axes: Axes, curve: Curve, index: int, measure: Measure, shares: bool, wider: float) -> Artist:
    """Draw one method. Returns its entry for the legend. Accuracies are never below the axes, an R² may be."""
    colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
    style: Literal[":", "-"] = ":" if curve.silent else "-"
    *earlier, last = [([measure(p) for p in stage], [p.value for p in stage]) for stage in curve.stages]
    for xs, ys in earlier:
        axes.plot(xs, ys, color="white", lw=1.4 + wider, clip_on=not shares)  # dashes are seen on a line below
        axes.plot(xs, ys, "--", color=colour, dashes=DASHES, lw=1.4 + wider, clip_on=not shares)
        axes.plot(xs[-1], ys[-1], "o", ms=9 + wider, mfc="white", mec=colour, mew=1.5, zorder=3)
    axes.plot(*last, style, color=colour, lw=1.8 + wider, clip_on=not shares)

    xs, ys = [measure(p) for p in curve.points], [p.value for p in curve.points]
    step = -(-len(xs) // MARKS)
    some = [*range(index % step, len(xs) - 1, step), len(xs) - 1]  # not all methods at the same rounds
    marked = [i for i in some if curve.points[i] not in [stage[-1] for stage in curve.stages[:-1]]]
    axes.plot(xs, ys, marker, color=colour, ms=6 + wider, markevery=marked, zorder=4, clip_on=not shares)
    if curve.runs > 1:
        low, high = [p.low for p in curve.points], [p.high for p in curve.points]
        axes.fill_between(xs, low, high, color=colour, alpha=0.13, linewidth=0)
    end = f"{100 * ys[-1]:.1f} %" if shares else f"{ys[-1]:.3f}"
    return Line2D([], [], ls=style, marker=marker, color=colour, label=f"{end}  {curve.label}")


def _scale(axes: Axes, whole: bool, shares: bool) -> None:
    """Both axes from zero, or lower for R², and no higher than values can be, with round numbers at the ticks."""
    axes.set_xlim(left=0, right=None if axes.dataLim.xmax > 0 else 1)
    low = max(axes.dataLim.ymin, LOWEST_R2)
    axes.set_ylim(bottom=low - 0.05 if low < 0 else 0, top=min(max(1.03 * axes.dataLim.ymax, 0.02), 1.01))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=9, steps=[1, 2, 5, 10], integer=whole))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    if shares:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
    axes.grid(axis="y")


def _add_legend(axes: Axes, curves: Sequence[Curve], entries: Sequence[Artist]) -> None:
    """The legend beside the axes: the methods, best first, then how to read stages and bands if there are any."""
    best_first = sorted(range(len(curves)), key=lambda index: -curves[index].last.value)
    key: list[Artist] = []
    if any(len(curve.stages) > 1 for curve in curves):
        key.append(Line2D([], [], ls=(0, DASHES), lw=1.4, color=QUIET, label="stage 1"))
        key.append(Line2D([], [], ls="none", marker="o", ms=9, mfc="white", mec=QUIET, mew=1.5, label="stage 2 begins"))
    seeds = any(curve.runs > 1 for curve in curves)
    if seeds:
        key.append(Patch(color=QUIET, alpha=0.2, linewidth=0, label="worst to best seed"))
    gap = [Line2D([], [], ls="none", label=" ")] if key else []
    title = f"{'mean ' if seeds else ''}{axes.get_ylabel()} at the end"
    handles = [*(entries[index] for index in best_first), *gap, *key]
    axes.legend(handles=handles, title=title, loc="upper left", bbox_to_anchor=(1.04, 1)).set_alignment("left")
