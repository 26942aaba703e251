"""Histories as curves: a measure by rounds and megabytes, the seeds of a method merged into one curve."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple

import numpy as np

from fedtct.errors import FedtctError
from fedtct.history import RATED_ON, Row, rated_on

LOWEST_R2 = -1.0  # lower ones are not shown: they would squeeze all others
SAME = 1e-3  # a relative difference that is hardly seen
WIDEST = 1.5  # at most so many times what one curve makes another wider, so that small differences are still seen
COVERED = 0.25  # a curve with a smaller share of its points under another one is seen anyway
MEASURES = {"accuracy": "accuracy", "r2": "R²"}
Histories = Mapping[str, Sequence[Row] | Sequence[Sequence[Row]]]


class Point(NamedTuple):
    """A model's rating, from the worst to the best run, and what it took since the first stage began."""

    stage: str
    round: int  # of the stage
    rounds: float
    megabytes: float
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Curve:
    """A method's ratings by round."""

    label: str
    points: Sequence[Point]
    runs: int
    silent: bool  # whether it was trained without sending anything

    @property
    def last(self) -> Point:
        """The last point."""
        return self.points[-1]

    @property
    def stages(self) -> list[Sequence[Point]]:
        """The points of each stage, with the last point of the stage before as its first."""
        starts = [i for i, point in enumerate(self.points) if i == 0 or point.stage != self.points[i - 1].stage]
        ends = [*starts[1:], len(self.points)]
        return [self.points[max(start - 1, 0) : end] for start, end in zip(starts, ends, strict=True)]


def read_curves(histories: Histories) -> tuple[list[Curve], str]:
    """A curve for each label, and what they show: accuracy or R² on test data, or if there is none, on other data."""
    runs = {label: _as_runs(entry) for label, entry in histories.items()}
    rows = [row for many in runs.values() for rows in many for row in rows]
    what = "r2" if any(row.regression for row in rows) else "accuracy"
    of = rated_on(rows) or "train"
    name = f"{RATED_ON[of]} {MEASURES[what]}"
    curves = []
    for label, many in runs.items():
        traces = [list(_trace(rows, f"{of}_{what}")) for rows in many]
        if not traces or not all(traces):
            raise FedtctError(f"there is nothing to plot for {label!r}: a history of it has no {name}")
        curves.append(_curve(label, traces))
    if not curves:
        raise FedtctError("there is nothing to plot: no histories were given")
    return curves, name


def read_stage(runs: Mapping[str, Sequence[Sequence[Row]]], field: str, stage: str) -> list[Curve]:
    """Curves of a measure that only makes sense within a stage; methods without that stage have none."""
    curves = []
    for label, many in runs.items():
        traces = [[point for point in _trace(rows, field) if point.stage == stage] for rows in many]
        if traces and all(traces):
            curves.append(_curve(label, traces))
    return curves


def level(curve: Curve, farthest: float) -> Curve:
    """A level line at the curve's end: by megabyte, a method that sends nothing has no other place."""
    ends = [curve.last._replace(megabytes=megabytes) for megabytes in (0.0, farthest)]
    return replace(curve, points=ends)


def beneath(curves: Sequence[Curve], measure: Callable[[Point], float], wider: float) -> list[float]:
    """How much wider to draw each curve so that it is seen on both sides of curves that are drawn on it later."""
    counts = [sum(_covers(other, curve, measure) for other in curves[at + 1 :]) for at, curve in enumerate(curves)]
    return [count * wider * min(1, WIDEST / max(counts)) if count else 0 for count in counts]


def _covers(upper: Curve, lower: Curve, measure: Callable[[Point], float]) -> bool:
    """Whether much of a curve is under another one."""
    xs, ys = [measure(point) for point in upper.points], [point.value for point in upper.points]
    places = [(measure(point), point.value) for point in lower.points]
    shared = [(y, float(np.interp(x, xs, ys))) for x, y in places if xs[0] <= x <= xs[-1]]
    return sum(math.isclose(a, b, rel_tol=SAME) for a, b in shared) > max(1, COVERED * len(places))


def _curve(label: str, traces: Sequence[Sequence[Point]]) -> Curve:
    points = list(_merge(traces))
    return Curve(label, points, len(traces), silent=points[-1].rounds > 0 and points[-1].megabytes == 0)


def _as_runs(entry: Sequence[Row] | Sequence[Sequence[Row]]) -> list[Sequence[Row]]:
    """The histories of a label, which may be one or several."""
    rows = [item for item in entry if isinstance(item, Row)]
    return [rows] if rows else [item for item in entry if not isinstance(item, Row)]


def _trace(rows: Sequence[Row], field: str) -> Iterator[Point]:
    """The rated points of one run.

    A later stage's round 0 is left out: its model is still all zeros, and nobody would use it in place of the
    one before.
    """
    for row, rounds, megabytes in so_far(rows):
        value: float | None = getattr(row, field)
        if value is not None and (row.round > 0 or rounds == 0):
            yield Point(row.stage, row.round, rounds, megabytes, value, value, value)


def so_far(rows: Iterable[Row]) -> Iterator[tuple[Row, int, float]]:
    """Each row with the rounds and a silo's megabytes, over all stages, that its model took."""
    rounds, megabytes, earlier, stage = 0, 0.0, 0, None
    for row in rows:
        if row.stage != stage:
            earlier, stage = rounds, row.stage
        rounds = earlier + row.round
        megabytes += (row.bytes_up + row.bytes_down) / 1e6
        yield row, rounds, megabytes


def _merge(traces: Sequence[Sequence[Point]]) -> Iterator[Point]:
    """The mean of several runs, round by round; one whose stage ended early stays there while the others go on."""
    stages = list(dict.fromkeys(point.stage for trace in traces for point in trace))
    for stage in stages:
        parts = [[point for point in trace if point.stage == stage] for trace in traces]
        for number in sorted({point.round for part in parts for point in part}):
            reached = [[point for point in part if point.round <= number] for part in parts]
            now = [part[-1] for part in reached if part]
            yield Point(
                stage,
                number,
                rounds=fmean(point.rounds for point in now),
                megabytes=fmean(point.megabytes for point in now),
                value=fmean(point.value for point in now),
                low=min(point.low for point in now),
                high=max(point.high for point in now),
            )
