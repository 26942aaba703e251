"""Results on stdout: tables for people, one JSON object for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from fedtct.cli.screen import TITLES, percent

if TYPE_CHECKING:
    from fedtct.classifier import Classifier
    from fedtct.deploy.messages import Disclosure
    from fedtct.runs.choose import Choice
    from fedtct.runs.common_class import CommonClass
    from fedtct.runs.folder import RunFolder
    from fedtct.runs.predictions import Evaluation
    from fedtct.runs.summary import Summary
    from fedtct.runs.tables import Line


def print_all(text: str) -> None:
    """Text on stdout, all of it or an error: unbuffered (PYTHONUNBUFFERED), a full disk takes a part without a word."""
    sys.stdout.flush()
    rest = memoryview(text.encode())
    while rest:
        rest = rest[sys.stdout.buffer.write(rest) :]


def print_json(value: Any) -> None:
    """One object of strict JSON."""
    from fedtct.files import strict

    print(json.dumps(strict(value), allow_nan=False))


def print_summary(summary: Summary, as_json: bool, page: Path) -> None:
    """What a run amounts to."""
    from fedtct.history import rated_on
    from fedtct.runs.caveats import caveats
    from fedtct.runs.common_class import CommonClass
    from fedtct.runs.folder import RunFolder
    from fedtct.runs.summary import in_megabytes, kept_round

    if as_json:
        print_json(summary.as_dict())
        return
    rated = TITLES | {"worst_silo": _worst_silo(summary)}
    rated = {of: title for of, title in rated.items() if of == "train" or summary.rating(of) is not None}
    unit, show = _measure(summary.regression)
    titles = [title + (unit if place == 0 else "") for place, title in enumerate(rated.values())]
    of = rated_on([summary]) if summary.regression else None
    errors = {f"{TITLES[of]} RMSE": _error(summary.rmse(of))} if of else {}
    table = _table("method", "split", *titles, *errors, "rounds", "MB per silo", "seconds")
    table.add_row(
        summary.method,
        summary.split,
        *(show(summary.rating(of)) for of in rated),
        *errors.values(),
        summary.rounds,
        in_megabytes(summary.bytes_up + summary.bytes_down),
        f"{summary.seconds:,.1f}",
    )
    private = "" if summary.epsilon is None else f"differential privacy of every sample: ε = {summary.epsilon:.3g}\n"
    run = RunFolder.read(summary.folder)
    little = _little_said({(summary.split, summary.method): CommonClass.of([run])})
    kept = kept_round(run.history, run.config)
    told = "".join(f"{note}\n" for note in [*caveats([run]), *([kept] if kept else [])])
    _print(table, f"{little}{told}{private}everything is in {summary.folder}: look at {page}")


def print_choice(choice: Choice, as_json: bool, page: Path) -> None:
    """Which candidate won, by what, and its run."""
    from fedtct.runs.summary import Summary, judged_rows

    summary = Summary.of(choice.best)
    if as_json:
        print_json(summary.as_dict() | {"chosen": choice.best.path.name, "candidates": choice.ratings})
        return
    unit, show = _measure(summary.regression)
    rounds = len(judged_rows(choice.best.history, choice.best.config))
    table = _table("candidate", f"held-out{unit}" + (f", mean of the last {rounds} rounds" if rounds > 1 else ""))
    for name, rating in choice.ratings.items():
        table.add_row(f"{name} (chosen)" if name == choice.best.path.name else name, show(rating))
    _print(table)
    print_summary(summary, False, page)


def print_lines(lines: Sequence[Line], runs: Sequence[RunFolder], folder: Path, as_json: bool, page: Path) -> None:
    """The table of a comparison, and what it does not tell of its runs."""
    if as_json:
        print_json({"folder": str(folder), "table": [line.as_dict() for line in lines]})
        return
    from fedtct.runs.caveats import caveats
    from fedtct.runs.summary import in_megabytes

    unit, show = _measure(lines[0].regression)
    title = TITLES[lines[0].rated_on] + unit
    title += ", mean ± std" if any(line.seeds > 1 for line in lines) else ""
    chosen = list(dict.fromkeys(name for line in lines for name in line.chosen))
    held_out = [f"held-out{unit}"] if any(line.held_out is not None for line in lines) else []
    error = [f"{TITLES[lines[0].rated_on]} RMSE"] if lines[0].regression else []
    more = (*held_out, _worst_silo(lines[0]), *error)
    table = _table(
        "split", "method", *(f"chosen {name}" for name in chosen), title, *more, "rounds", "MB per silo", "seconds"
    )
    for before, line in zip([None, *lines], lines, strict=False):
        if before and before.split != line.split:
            table.add_section()
        spread = "" if line.spread is None else f" ± {show(line.spread).removesuffix(' %')}"
        table.add_row(
            line.split,
            line.method,
            *map(line.choice, chosen),
            show(line.rating) + spread,
            *(show(line.held_out) for _ in held_out),
            show(line.worst_silo),
            *(_error(line.rmse) for _ in error),
            line.rounds,
            in_megabytes(1e6 * line.megabytes),
            f"{line.seconds:,.1f}",
        )
    little = _little_said({(line.split, line.method): line.common for line in lines})
    told = "".join(f"{note}\n" for note in caveats(runs))
    _print(table, f"{little}{told}everything is in {folder}, with a folder for each run: look at {page}")


def _measure(regression: bool) -> tuple[str, Callable[[float | None], str]]:
    """What is added to a column's title, and how its numbers are written: shares of a hundred, or R²."""
    return (" R²", lambda value: "-" if value is None else f"{value:.3f}") if regression else ("", percent)


def _error(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _little_said(rated: Mapping[tuple[str, str], CommonClass | None]) -> str:
    """What to look at where one class is so common that accuracy says little: a line a split, or none."""
    several, splits = len(rated) > 1, {split for split, _ in rated}
    found: dict[str, dict[str, CommonClass]] = {}
    for (split, method), common in rated.items():
        if common:
            found.setdefault(split, {})[f"{method} " if several else ""] = common
    text = ""
    for split, by_method in found.items():
        first = next(iter(by_method.values()))
        text += f"{split}: " if len(splits) > 1 else ""
        if first.balanced is None:
            text += f"all rated samples are '{first.name}': the score says nothing about other classes\n"
            continue
        balanced = ", ".join(f"{name}{percent(common.balanced)}" for name, common in by_method.items())
        text += f"always predicting '{first.name}' would give {percent(first.share)}: accuracy says little. "
        text += f"Balanced accuracy, the mean over classes: {balanced}\n"
    return text


def _worst_silo(rated: Summary | Line) -> str:
    """A column's title; the number is the report's, unless only the silos themselves rated the model."""
    return "worst silo, own" if rated.worst_silo_on == "own" else "worst silo"


def print_evaluation(found: Evaluation, model: Classifier) -> None:
    """How right a model is: all samples together, then each class."""
    from fedtct.runs.saved import CALIBRATION

    titles = {"r2": "R²", "rmse": "RMSE", "mae": "mean absolute error", "log_loss": "log-loss"}
    table = _table("samples", *(titles.get(name, name.replace("_", " ")) for name in found.figures))
    show = {name: percent(v) if "accuracy" in name else f"{v:.4g}" for name, v in found.figures.items()}
    table.add_row(f"{found.samples:,}", *show.values())
    _print(table)
    if not found.classes:
        return
    each = _table("class", "samples", "found", "right when named", "AUC")
    for rating in found.classes:
        shares = (percent(None if share != share else share) for share in (rating.recall, rating.precision))
        each.add_row(
            rating.name, f"{rating.samples:,}", *shares, "-" if rating.auc != rating.auc else f"{rating.auc:.3f}"
        )
    _print(each, f"probabilities are {CALIBRATION[model.calibrated]}")


def print_messages(lines: Sequence[Disclosure], promise: str = "") -> None:
    """What a run sends and receives, a question after the other; arrays come last, as there may be many."""
    from fedtct.deploy.messages import rows

    for question, times, way, arrays, size in [("question", "times", "way", "arrays", "bytes"), *rows(list(lines))]:
        print(f"{question:<10} {times:>6}  {way:<4} {size:>14}  {arrays}")
    total = sum(line.times * (line.bytes_down + line.bytes_up) for line in lines)
    print(f"\nA silo sends and receives {total / 1e6:,.1f} MB in all. What its replies can reveal:")
    for line in lines:
        print(f"  {line.question:<10} {line.reveals}")
    if promise:
        print(promise)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        words = column in ("method", "split", "candidate", "class")
        table.add_column(column, justify="left" if words else "right", no_wrap=True)
    return table


def _print(table: Table, note: str = "") -> None:
    console = Console(highlight=False)
    console.width = max(console.width, 200)  # whoever has less room sees it wrapped: better than cut
    console.print(table)
    if note:
        console.print(note, markup=False, soft_wrap=True)
