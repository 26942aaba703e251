"""The style of pictures in files: quiet axes, and the same bytes for the same content."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import matplotlib.style
from matplotlib.figure import Figure

from fedtct.report.looks import QUIET

WHOLE = (0.0, 0.0, 1.0, 1.0)  # axes that fill the figure; labels and legends lie around it
DPI = 144  # of PNG files
MARGIN = 0.15  # inches around a picture
PICTURES = ("png", "svg")
FOR_PAPERS = (*PICTURES, "pdf")  # PDF takes longest to write

_STYLE = {
    "font.size": 11,
    "axes.labelcolor": "#333333",
    "axes.edgecolor": QUIET,
    "axes.titlelocation": "left",
    "axes.titlesize": 13,
    "axes.titlepad": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "lines.linewidth": 1.8,
    "lines.markersize": 6,
    "lines.markeredgecolor": "white",
    "lines.markeredgewidth": 0.5,
    "legend.frameon": False,
    "legend.borderaxespad": 0.0,
    "text.parse_math": False,  # a label may have a dollar sign
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "fedtct",
    "pdf.fonttype": 42,  # TrueType, as publishers want it
}
_METADATA: dict[str, dict[str, None]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


@contextmanager
def new_figure(width: float, height: float) -> Iterator[Figure]:
    """A figure of so many inches, in our style whatever the user's own is; draw and save it inside."""
    with matplotlib.style.context(["default", _STYLE]):
        yield Figure((width, height), dpi=DPI)


def save(figure: Figure, folder: Path, name: str, kinds: Sequence[str] = PICTURES) -> list[Path]:
    """Write the picture in files of these kinds, large enough for everything on and around the axes."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{kind}" for kind in kinds]
    box = figure.get_tightbbox().padded(MARGIN)  # asked for a tight box, savefig draws everything twice, for each kind
    for path, kind in zip(paths, kinds, strict=True):
        figure.savefig(path, bbox_inches=box, metadata=_METADATA[kind])
    return paths
