"""The results, on top: how good each method is in the end, how far from centralized, and what it took."""

from collections.abc import Sequence

from fedtct.report.page.blocks import Block, Note, Rating, Section, Table, TableRow, number, rating_of
from fedtct.report.page.chosen import chosen_names
from fedtct.report.page.footnotes import how_to_read, not_comparable
from fedtct.report.page.headline import Result, introduction
from fedtct.report.page.problems import Method, Problem
from fedtct.runs.common_class import CommonClass
from fedtct.runs.summary import in_megabytes
from fedtct.runs.tables import CENTRALIZED, Line

COLUMNS = (
    "method",
    "seeds",
    "{rating}",
    "{beside}",
    "to centralized",
    "worst silo",
    "rounds",
    "MB per silo",
    "seconds",
)


def section(problem: Problem) -> Section:
    """A sentence, and a table with the best method first and those that are not finished last."""
    results = [(method, Line.of(method.counted)) for method in problem.methods]
    results.sort(key=_place)
    bound = next((line.rating for method, line in results if line.method == CENTRALIZED and method.over), None)
    rating, common = rating_of(problem), _common_classes(results)
    several = any(line.seeds > 1 for _, line in results)
    beside = "RMSE" if problem.regression else "balanced accuracy" if common else ""
    absent = {name for name, there in {"seeds": several, "{beside}": beside}.items() if not there}
    columns = [column.format(rating=rating.name, beside=beside) for column in COLUMNS if column not in absent]
    chosen, place = chosen_names(problem), 1 + several  # behind the method, and how many seeds it has
    columns[place:place] = [f"chosen {name}" for name in chosen]
    rows = []
    for method, line in results:
        seeds = [str(line.seeds)] if several else []
        seeds += [line.choice(name) if name in method.chosen else "–" for name in chosen]
        reached, *rest = _cells(method, line, bound, rating)
        more = [_beside(method, line, common.get(method.label), rating)] if beside else []
        rows.append(TableRow([method.label, *seeds, reached, *more, *rest], method))
    notes = [how_to_read(problem, rating), not_comparable(problem)]
    blocks: list[Block] = [Table(columns, rows), *(Note(text) for text in notes if text)]
    return Section(problem.title, blocks, intro=introduction(problem, results, bound, common, rating))


def _common_classes(results: Sequence[Result]) -> dict[str, CommonClass]:
    """By method, the class that is so common that its accuracy says little; most data has none."""
    return {method.label: line.common for method, line in results if method.over and line.common}


def _place(result: Result) -> tuple[bool, bool, float]:
    """Where a method comes in the table: R² may be negative, so what has no rating is behind, not at zero."""
    method, line = result
    return not method.over, line.rating is None, -(line.rating or 0.0)


def _cells(method: Method, line: Line, bound: float | None, rating: Rating) -> list[str]:
    spent = [line.rounds, in_megabytes(1e6 * line.megabytes), f"{line.seconds:,.1f}"]
    if not method.over:  # the model that there is so far, at worst the zeros that stage 2 begins with, is no result
        return ["not finished", "–", "–", *spent]
    spread = f" ± {rating.plain(line.spread)}" if line.spread is not None else ""
    gap = None if line.method == CENTRALIZED or bound is None or line.rating is None else line.rating - bound
    return [rating.text(line.rating) + spread, rating.difference(gap), rating.text(line.worst_silo), *spent]


def _beside(method: Method, line: Line, common: CommonClass | None, rating: Rating) -> str:
    """What stands beside the rating: a regression's error, or the accuracy if classes were equally common."""
    if line.regression:
        return number(line.rmse, digits=4) if method.over and line.rmse is not None else "–"
    return rating.text(common.balanced if common else None)
