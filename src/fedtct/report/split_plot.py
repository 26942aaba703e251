"""How a dataset is dealt: silos × classes, a circle's area is a number of samples."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from fedtct.errors import FedtctError
from fedtct.report.looks import COLOURS
from fedtct.report.style import WHOLE, new_figure, save

POINTS = 72  # in an inch
SMALLEST = 2.0  # square points of a circle that can still be seen


def write_split_plot(
    counts: ArrayLike, folder: Path, class_names: Sequence[str], silo_names: Sequence[str] = ()
) -> list[Path]:
    """Write ``split``, the samples of each class (a column of ``counts``) in each silo (a row); the files written.

    Silos are shown by number unless they have names.
    """
    table = np.asarray(counts)
    if table.ndim != 2 or table.shape[1] != len(class_names):
        raise FedtctError(f"counts must be silos × {len(class_names)} classes, their shape is {table.shape}")
    if not table.any():
        raise FedtctError("there is nothing to plot: no silo holds a sample")
    silos, classes = table.shape
    across, down = min(0.42, 9 / silos), min(0.34, 11 / classes)  # inches for each
    with new_figure(across * silos, down * classes) as figure:
        axes = figure.add_axes(
            WHOLE, xlim=(-0.6, silos - 0.4), ylim=(classes - 0.4, -0.6), xlabel="silo", ylabel="class"
        )
        shown = range(0, silos, _every(silos, across, room=0.25))
        axes.set_xticks(shown, [silo_names[index] if silo_names else str(index) for index in shown])
        if any(len(name) > 3 for name in silo_names):
            axes.tick_params(axis="x", rotation=90)
        named = range(0, classes, _every(classes, down, room=0.11))
        axes.set_yticks(named, [class_names[index] for index in named])
        axes.tick_params(length=0, labelsize=10 if min(across, down) > 0.2 else 7)
        _draw_circles(axes, table, largest=(0.94 * min(across, down) * POINTS) ** 2)
        return save(figure, folder, "split")


def _every(number: int, cell: float, room: float) -> int:
    """Label every so many silos or classes, so that a label has room."""
    return next((step for step in (1, 2, 5, 10, 20, 50) if step * cell >= room), number)


def _draw_circles(axes: Axes, table: NDArray[np.int_], largest: float) -> None:
    """Circles of up to ``largest`` square points, none too small to see; a legend beside the axes gives their scale."""
    scale = largest / table.max()
    silo, label = np.nonzero(table)
    axes.grid()
    axes.scatter(silo, label, s=np.maximum(table[silo, label] * scale, SMALLEST), color=COLOURS[0], linewidth=0)
    for samples in _round_numbers(int(table.max())):
        axes.scatter([], [], s=max(samples * scale, SMALLEST), color=COLOURS[0], linewidth=0, label=f"{samples:,}")
    legend = axes.legend(title="samples", loc="upper left", bbox_to_anchor=(1.0, 1.0), labelspacing=0.8)
    legend.set_alignment("left")


def _round_numbers(largest: int) -> list[int]:
    """Up to three numbers of samples for the scale."""
    power = 10 ** (len(str(largest)) - 1)
    top = max(factor * power for factor in (1, 2, 5) if factor * power <= largest)
    return [samples for samples in (top, top // 4, top // 20) if samples]
