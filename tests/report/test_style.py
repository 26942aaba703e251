"""Pictures in files: nothing is cut off, and nothing is drawn more often than there are files."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from fedtct.report.style import FOR_PAPERS, MARGIN, WHOLE, new_figure, save


def draw(figure: Figure) -> None:
    """Axes with a title above them and a legend beside them."""
    axes = figure.add_axes(WHOLE, title="higher than all of it", xlabel="rounds", ylabel="accuracy")
    axes.plot([1, 2, 30_000], label="a curve with a long name")
    axes.legend(loc="upper left", bbox_to_anchor=(1.04, 1))


def test_pictures_are_as_large_as_matplotlib_would_make_them(tmp_path: Path) -> None:
    with new_figure(3, 2) as figure:
        draw(figure)
        (picture,) = save(figure, tmp_path, "ours", ["png"])
        figure.savefig(tmp_path / "theirs.png", bbox_inches="tight", pad_inches=MARGIN)
    assert picture.read_bytes() == (tmp_path / "theirs.png").read_bytes()


def test_a_figure_is_drawn_once_for_each_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, own = [], Figure.draw
    monkeypatch.setattr(Figure, "draw", lambda figure, renderer: (drawn.append(renderer), own(figure, renderer)))
    with new_figure(3, 2) as figure:
        draw(figure)
        save(figure, tmp_path, "picture", FOR_PAPERS)
    assert len(drawn) == len(FOR_PAPERS)
