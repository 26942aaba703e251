"""A comparison's table as files: JSON, CSV, and LaTeX for a paper."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedtct.files import replacing, write_json, write_text
from fedtct.runs.compare import Line
from fedtct.runs.folder import RunFolder
from fedtct.runs.settings import METHODS
from fedtct.runs.summary import Summary

TABLE = "summary.csv"
SPECIAL = {**{c: f"\\{c}" for c in "&%$#_{}"}, "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\^{}"}
WORDS = {"test": "test data", "holdout": "what silos hold out", "train": "training data"}


def write_comparison(lines: Sequence[Line], runs: Mapping[str, RunFolder], folder: Path) -> None:
    """summary.json, summary.csv and summary.tex of a comparison's table and runs."""
    everything = {name: Summary.of(run).as_dict() for name, run in runs.items()}
    write_json(folder / "summary.json", {"table": [line.as_dict() for line in lines], "runs": everything})
    _write_csv(folder / TABLE, lines)
    write_text(folder / "summary.tex", as_latex(lines))


def _write_csv(path: Path, lines: Sequence[Line]) -> None:
    rows = [line.as_dict() for line in lines]
    with replacing(path) as half, half.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, dict.fromkeys(name for row in rows for name in row))
        writer.writeheader()
        writer.writerows(rows)


def as_latex(lines: Sequence[Line]) -> str:
    """A row a method, a column a split, the mean over seeds ± its standard deviation, and the best mean in bold.

    It needs the package booktabs.
    """
    splits = list(dict.fromkeys(line.split for line in lines))
    methods = list(dict.fromkeys(line.method for line in lines))
    cells = {(line.method, line.split): _cell(line, _best(lines, line.split)) for line in lines}
    head = ["method", *map(_escaped, splits)]
    rows = [[_escaped(_called(method)), *(cells.get((method, split), "--") for split in splits)] for method in methods]
    first, *others = (" & ".join(row) + r" \\" for row in [head, *rows])
    columns = "l" + "r" * len(splits)
    text = [f"% {_what(lines)}", rf"\begin{{tabular}}{{{columns}}}", r"\toprule", first, r"\midrule", *others]
    return "\n".join([*text, r"\bottomrule", r"\end{tabular}", ""])


def _called(method: str) -> str:
    return METHODS[method].called if method in METHODS else method


def _what(lines: Sequence[Line]) -> str:
    """What the numbers are."""
    measure = "R2" if lines[0].regression else "accuracy in percent"
    where = " or ".join(dict.fromkeys(WORDS[line.rated_on] for line in lines))
    seeds = sorted({line.seeds for line in lines})
    over = f", mean and standard deviation over {' or '.join(map(str, seeds))} seeds" if seeds != [1] else ""
    return f"{measure} on {where}{over}, as fedtct compare found"


def _best(lines: Sequence[Line], split: str) -> float | None:
    return max((line.rating for line in lines if line.split == split and line.rating is not None), default=None)


def _cell(line: Line, best: float | None) -> str:
    if line.rating is None:
        return "--"
    scale, digits = (1, 3) if line.regression else (100, 1)
    value = f"{scale * line.rating:.{digits}f}"
    value = rf"\mathbf{{{value}}}" if line.rating == best else value
    spread = "" if line.spread is None else rf" \pm {scale * line.spread:.{digits}f}"
    return f"${value}{spread}$"


def _escaped(text: str) -> str:
    return "".join(SPECIAL.get(character, character) for character in text)
