"""The blocks of the page's sections. Charts are Plotly figures as plain values; the page fills in the colours.

Colours are names, because light and dark themes differ: "@0", "@1" and so on are the methods', "@quiet", "@scale" and
"@fields" others. "@fields" is a scale whose lowest colour is still seen, so that only missing fields are empty. A trace
that belongs to a method says so, and is hidden when the method is switched off.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, inf, log10
from typing import Any, ClassVar

from fedtct.report.curves import LOWEST_R2
from fedtct.report.looks import COLOURS, MARKERS
from fedtct.report.page.problems import Method, Problem

Trace = dict[str, Any]

SYMBOLS = (
    *("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x"),
    *("triangle-left", "triangle-right"),
)
assert len(SYMBOLS) == len(MARKERS), "a marker of every picture has a symbol on the page"
QUIET, SCALE, FIELDS = "@quiet", "@scale", "@fields"
NARROW = 0.9  # accuracies that are all higher would look like one line on an axis from zero
PERCENT: Trace = {"tickformat": "$.0%", "range": [0, 1.02], "dtick": 0.2}
NUMBER: Trace = {"tickformat": ".1f", "range": [0, 1.02], "dtick": 0.2}


@dataclass(frozen=True)
class Chart:
    """A Plotly figure. ``fit`` tells what the page does once it knows the width: "circles" or "square"."""

    title: str
    data: Sequence[Trace]
    layout: Trace = field(default_factory=dict)
    height: int = 320
    wide: bool = False
    fit: str = ""
    kind: ClassVar[str] = "chart"


@dataclass(frozen=True)
class Choice:
    """Charts of which one is shown at a time, by the text of a button."""

    options: dict[str, Chart]
    wide: bool = False
    kind: ClassVar[str] = "choice"


@dataclass(frozen=True)
class TableRow:
    """Cells of a table; those of a method are dimmed when it is switched off."""

    cells: Sequence[str]
    method: Method | None = None


@dataclass(frozen=True)
class Table:
    """The first column is a name."""

    columns: Sequence[str]
    rows: Sequence[TableRow]
    kind: ClassVar[str] = "table"


@dataclass(frozen=True)
class Note:
    """A sentence or two."""

    text: str
    wide: bool = True
    kind: ClassVar[str] = "note"


@dataclass(frozen=True)
class Details:
    """Text as it is in a file, folded away."""

    summary: str
    command: str
    texts: dict[str, str]
    kind: ClassVar[str] = "details"


Block = Chart | Choice | Table | Note | Details


@dataclass(frozen=True)
class Section:
    """A heading and what is below it."""

    title: str
    blocks: Sequence[Block]
    intro: str = ""


def colour(method: Method) -> str:
    """A method's colour."""
    return f"@{method.index % len(COLOURS)}"


def symbol(method: Method) -> str:
    """A method's symbol."""
    return SYMBOLS[method.index % len(SYMBOLS)]


def trace_of(method: Method, **trace: Any) -> Trace:
    """A trace that is switched on and off with its method; its symbols are whole even at the edge."""
    whole = {"cliponaxis": False} if trace.get("mode") == "markers" else {}
    return {"type": "scatter", "name": method.label, "meta": {"method": method.label}} | whole | trace


def ticks(names: Sequence[str]) -> Trace:
    """An axis with a place for each name; the page writes as many as there is room for."""
    return {
        "tickvals": list(range(len(names))),
        "ticktext": list(names),
        "range": [-0.6, len(names) - 0.4],
        "zeroline": False,
    }


def downwards(axis: Trace) -> Trace:
    """The axis with its first name on top."""
    return axis | {"range": axis["range"][::-1]}


def beside_names(axis: Trace) -> Trace:
    """The axis with room below zero, so that symbols at zero do not cover the names beside it."""
    low, high = axis["range"]
    return axis | {"range": [-0.03 * high, high]} if low == 0 else axis


def logarithmic(values: Iterable[float | None], title: str = "") -> Trace:
    """A logarithmic axis for these values, with numbers as people write them at the ticks."""
    positive = [value for value in values if value is not None and 0 < value < inf] or [1.0]
    low, high = log10(min(positive)), log10(max(positive))
    margin = max(0.05 * (high - low), 0.03)
    marks = _marks(low - margin, high + margin)
    return {
        "type": "log",
        "range": [low - margin, high + margin],
        "tickvals": marks,
        "ticktext": [number(mark) for mark in marks],
        "title": {"text": title},
    }


def _marks(low: float, high: float) -> list[float]:
    """Round numbers from 10^low to 10^high: evenly spaced within a decade, else 1, 2, 5 or powers of ten."""
    if high - low < 0.8:
        wide = (10**high - 10**low) / 7
        step = next(f * 10.0 ** floor(log10(wide)) for f in (1, 2, 5, 10) if f * 10.0 ** floor(log10(wide)) >= wide)
        return [step * k for k in range(ceil(10**low / step), floor(10**high / step) + 1)]
    factors, apart = (1, 2, 5) if high - low < 2.2 else (1,), 1 + int(high - low) // 6
    powers = [power for power in range(floor(low), ceil(high) + 1) if power % apart == 0]
    return [factor * 10.0**power for power in powers for factor in factors]


def rounds_axis(title: str, last: float) -> Trace:
    """An axis of rounds, of which there are no halves."""
    hover = {"unifiedhovertitle": {"text": "round %{x}"}}
    return {"title": {"text": title}, "rangemode": "tozero"} | hover | ({"dtick": 1} if last <= 6 else {})


LANES = 0.62  # the part of a row's height for symbols, with a lane for each method


def beside(y: Iterable[int], method: Method, methods: Sequence[Method]) -> list[float]:
    """Places in rows of a chart, a little apart for each method so that none hides another."""
    labels = [other.label for other in methods]
    return [k + LANES * ((labels.index(method.label) + 0.5) / len(labels) - 0.5) for k in y]


def rows_height(rows: int, methods: int = 1) -> int:
    """The height of a chart with so many rows, each with some symbols one below the other."""
    return 90 + min(max(rows * max(22, 9 * methods + 6), 120), max(900, 9 * rows))


def number(value: float, digits: int = 3) -> str:
    """A number with so many digits, in powers of ten if it would have many zeros."""
    if value and not 1e-4 <= abs(value) < 1e6:
        exponent = floor(log10(abs(value)))
        text = f"{value / 10.0**exponent:.{digits}g}"
        raised = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return f"10{raised}" if text == "1" else f"{text}·10{raised}"
    return f"{float(f'{value:.{digits}g}'):,.10g}"


@dataclass(frozen=True)
class Rating:
    """How models of a problem are rated and how that is written: accuracy in percent, or R²."""

    name: str
    axis: Trace
    template: str  # Plotly's, for hover texts
    factor: int
    digits: int
    sign: str

    def axis_for(self, values: Iterable[float | None]) -> Trace:
        """The axis for these values: from zero, unless an R² is lower or all accuracies are very high."""
        low = min((value for value in values if value is not None and value == value), default=0.0)
        if low < 0:
            return self.axis | {"range": [max(low, LOWEST_R2) - 0.05, 1.02]}
        if self.sign and low > NARROW:
            end = floor(100 * low - 0.5) / 100
            return self.axis | {"range": [end, 1.02 - 0.02 * end], "dtick": 0.02 if end < 0.95 else 0.01}
        return self.axis

    def text(self, value: float | None) -> str:
        """A value as people read it."""
        return "–" if value is None else f"{self.plain(value)}{self.sign}"

    def plain(self, value: float) -> str:
        """A value without its sign of percent."""
        return f"{self.factor * value:.{self.digits}f}".replace("-", "−")

    def difference(self, value: float | None) -> str:
        """A difference of two values: percentage points, or R²."""
        if value is None:
            return "–"
        text = f"{self.factor * value:+.{self.digits}f}".replace("-", "−")
        return text if float(text[1:]) else text[1:]


ACCURACY = Rating("accuracy", PERCENT, "$.1%", 100, 1, " %")
R2 = Rating("R²", NUMBER, ".3f", 1, 3, "")


def rating_of(problem: Problem) -> Rating:
    """The rating of a problem."""
    return R2 if problem.regression else ACCURACY
