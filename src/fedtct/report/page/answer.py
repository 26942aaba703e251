"""The answer, on top: how good each method is in the end, how far from centralized, and what it took."""

from collections.abc import Sequence

from fedtct.history import rated_on
from fedtct.report.page.blocks import Block, Note, Rating, Section, Table, TableRow, rating_of
from fedtct.report.page.tasks import Method, Task, differences, listed
from fedtct.runs.compare import Line
from fedtct.runs.config import ELSEWHERE
from fedtct.runs.folder import RunFolder
from fedtct.runs.summary import SILO_SAMPLES, SiloRatings, Summary, final_row

COLUMNS = ("method", "seeds", "{}", "to centralized", "worst silo", "rounds", "MB a silo", "seconds")
CENTRALIZED = "centralized"  # the bound: data in one place
Result = tuple[Method, Line]


def section(task: Task) -> Section:
    """A sentence, and a table with the best method first and those that are not finished last."""
    results = [(method, Line.of(method.counted)) for method in task.methods]
    results.sort(key=_place)
    bound = next((line.rating for method, line in results if line.method == CENTRALIZED and method.over), None)
    rating = rating_of(task)
    several = any(line.seeds > 1 for _, line in results)
    columns = [column.format(rating.name) for column in COLUMNS if several or column != "seeds"]
    rows = []
    for method, line in results:
        seeds = [str(line.seeds)] if several else []
        rows.append(TableRow([method.label, *seeds, *_cells(method, line, bound, rating)], method))
    notes = [_reading(task, rating), _caveats(task)]
    blocks: list[Block] = [Table(columns, rows), *(Note(text) for text in notes if text)]
    return Section(task.title, blocks, intro=_headline(results, bound, rating))


def _place(result: Result) -> tuple[bool, bool, float]:
    """Where a method comes in the table: R² may be negative, so what has no rating is behind, not at zero."""
    method, line = result
    return not method.over, line.rating is None, -(line.rating or 0.0)


def _cells(method: Method, line: Line, bound: float | None, rating: Rating) -> list[str]:
    spent = [line.rounds, f"{line.megabytes:,.1f}", f"{line.seconds:,.1f}"]
    if not method.over:  # the model that there is so far, at worst the zeros that stage 2 begins with, is no result
        return ["not finished", "–", "–", *spent]
    spread = f" ± {rating.plain(line.spread)}" if line.spread is not None else ""
    gap = None if line.method == CENTRALIZED or bound is None or line.rating is None else line.rating - bound
    return [rating.text(line.rating) + spread, rating.difference(gap), rating.text(line.worst_silo), *spent]


def _headline(results: Sequence[Result], bound: float | None, rating: Rating) -> str:
    federated = [(method, line) for method, line in results if line.method != CENTRALIZED]
    rated = [(method, line) for method, line in federated if method.over and line.rating is not None]
    if not rated:
        return ""
    method, best = rated[0]
    assert best.rating is not None
    text = f"{method.label} reaches {_of(rating, best.rating)}"
    if best.rated_on == "train":
        text += " on the data that silos train on, not on new samples"
    if len(rated) > 1:
        finished = "" if all(method.over for method, _ in federated) else " that are finished"
        differing = differences([method for method, _ in rated])
        though = f", though they differ in {listed([*differing])}" if differing else ""
        text += f", the best of the federated methods here{finished}{though}"
    if bound is not None:
        gap = best.rating - bound
        size = rating.plain(abs(gap)) + (" points" if rating.sign else "")
        where = "on a par with" if float(rating.plain(abs(gap))) == 0 else f"{size} {'above' if gap > 0 else 'below'}"
        text += f"; that is {where} training on all data in one place"
    text += f". It took {best.rounds} rounds and {best.megabytes:,.1f} MB for each silo"
    if best.worst_silo is not None:
        text += f"; on what its worst silo has, it reaches {_of(rating, best.worst_silo)}"
    return f"{text}."


def _of(rating: Rating, value: float) -> str:
    return rating.text(value) if rating.sign else f"an {rating.name} of {rating.text(value)}"


def _reading(task: Task, rating: Rating) -> str:
    """How to read the table, and what it does not tell."""
    runs = [run for method in task.methods for run in method.counted]
    rated = [run for method in task.methods if method.over for run in method.counted] or runs
    whose = " or ".join(dict.fromkeys(SILO_SAMPLES[SiloRatings.of(run).on] for run in rated))
    places = {"test": "the test set", "holdout": "what silos hold out", "train": "the data that silos train on"}
    where = places.get(rated_on([row for run in runs for row in run.history]) or "", "nothing")
    over = ", mean ± standard deviation over seeds" if any(len(method.counted) > 1 for method in task.methods) else ""
    parts = [f"{rating.name[0].upper()}{rating.name[1:]} is on {where}{over}. A silo’s is on {whose}."]
    if task.regression:
        parts.append("R² is 1 where every prediction is right, and 0 for always saying the mean.")
    stages = max(Summary.of(run).rounds.count("+") for run in runs)
    if stages:
        shared = ", of sharing the features’ statistics," if stages > 1 else ""
        parts.append(f"Rounds are those of stage 1{shared} and of stage 2.")
    promises = dict.fromkeys(promise for method in task.methods if (promise := method.config.promise()))
    parts += [f"{promise[0].upper()}{promise[1:]}." for promise in promises]
    methods = dict.fromkeys(method.config.method for method in task.methods)
    elsewhere = any(run.config.data == ELSEWHERE for run in runs)  # nobody can pool that
    if CENTRALIZED not in methods and not elsewhere:
        comparison = f"fedtct compare --methods {','.join([CENTRALIZED, *methods])} with the same settings"
        parts.append(f"How far this is from centralized training, {comparison} would tell.")
    return " ".join(parts)


def _caveats(task: Task) -> str:
    """Why rows are not quite comparable; empty if they are."""
    settings = [
        f"{name}: " + ", ".join(f"{value} for {listed(labels)}" for value, labels in values.items())
        for name, values in differences(task.methods).items()
    ]
    parts = [f"The methods also differ in {'; in '.join(settings)}."] if settings else []
    runs = [run for method in task.methods for run in method.runs]
    return " ".join(parts + [f"{run.path.name} {what}" for run in runs if (what := _unusual(run))])


def _unusual(run: RunFolder) -> str:
    """What keeps a run from counting as others do; empty for most."""
    if run.failure:
        return f"has no model: {run.failure}"
    if final_row(run.history, run.config).diverged:
        return "diverged: its scores are no numbers. Give it a smaller lr."
    return "" if run.finished else f"is not finished, and does not count yet: {run.go_on} goes on with it."
