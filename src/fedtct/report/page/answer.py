"""The answer, on top: how good each method is in the end, how far from centralized, and what it took."""

from collections.abc import Mapping, Sequence

from fedtct.history import rated_on
from fedtct.report.page.blocks import Block, Note, Rating, Section, Table, TableRow, number, rating_of
from fedtct.report.page.chosen import choices_in
from fedtct.report.page.tasks import Method, Task, by_value, differences, listed
from fedtct.runs.compare import Line
from fedtct.runs.config import ELSEWHERE
from fedtct.runs.folder import RunFolder
from fedtct.runs.summary import SILO_SAMPLES, CommonClass, SiloRatings, Summary, final_row, silos_told

COLUMNS = ("method", "seeds", "{rating}", "{beside}", "to centralized", "worst silo", "rounds", "MB a silo", "seconds")
CENTRALIZED = "centralized"  # the bound: data in one place
Result = tuple[Method, Line]


def section(task: Task) -> Section:
    """A sentence, and a table with the best method first and those that are not finished last."""
    results = [(method, Line.of(method.counted)) for method in task.methods]
    results.sort(key=_place)
    bound = next((line.rating for method, line in results if line.method == CENTRALIZED and method.over), None)
    rating, common = rating_of(task), _common_classes(results)
    several = any(line.seeds > 1 for _, line in results)
    beside = "RMSE" if task.regression else "balanced accuracy" if common else ""
    absent = {name for name, there in {"seeds": several, "{beside}": beside}.items() if not there}
    columns = [column.format(rating=rating.name, beside=beside) for column in COLUMNS if column not in absent]
    rows = []
    for method, line in results:
        seeds = [str(line.seeds)] if several else []
        reached, *rest = _cells(method, line, bound, rating)
        more = [_beside(method, line, common.get(method.label), rating)] if beside else []
        rows.append(TableRow([method.label, *seeds, reached, *more, *rest], method))
    notes = [_reading(task, rating), _caveats(task)]
    blocks: list[Block] = [Table(columns, rows), *(Note(text) for text in notes if text)]
    choices = choices_in(task)
    if len(choices) == 1 and choices[0].whole(task):  # the others lost, whatever they reach on test data
        results = [(method, line) for method, line in results if method is choices[0].best]
    told = "".join(f" {choice.told(rating)}" for choice in choices)
    intro = _headline(results, bound, rating) + told + _little_said(results, common, rating)
    intro = f"{_not_shown(results, common)} {intro}".strip()
    return Section(task.title, blocks, intro=intro)


def _common_classes(results: Sequence[Result]) -> dict[str, CommonClass]:
    """By method, the class that is so common that its accuracy says little; most data has none."""
    return {method.label: line.common for method, line in results if method.over and line.common}


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


def _beside(method: Method, line: Line, common: CommonClass | None, rating: Rating) -> str:
    """What stands beside the rating: a regression's error, or the accuracy if classes were equally common."""
    if line.regression:
        return number(line.rmse, digits=4) if method.over and line.rmse is not None else "–"
    return rating.text(common.balanced if common else None)


def _headline(results: Sequence[Result], bound: float | None, rating: Rating) -> str:
    federated = [(method, line) for method, line in results if line.method != CENTRALIZED]
    rated = [(method, line) for method, line in federated if method.over and line.rating is not None]
    if not rated:
        return ""
    best = rated[0][1]
    assert best.rating is not None
    if any(line.common for _, line in rated):
        return _where_accuracy_says_little(rated, rating)
    tied = [method.label for method, line in rated if rating.text(line.rating) == rating.text(best.rating)]
    reach = {1: "reaches", 2: "both reach"}.get(len(tied), "all reach")
    text = f"{listed(tied)} {reach} {_of(rating, best.rating)}"
    if best.rated_on == "train":
        text += " on the data that silos train on, not on new samples"
    if len(rated) > 1:
        finished = "" if all(method.over for method, _ in federated) else " that are finished"
        differing = differences([method for method, _ in rated])
        though = f", though they differ in {listed([*differing])}" if differing else ""
        here = f"the federated methods here{finished}"
        alike = len(tied) == len(rated)
        text += (f": by this, {here} are equally good" if alike else f", the best of {here}") + though
    if bound is not None:
        gap = best.rating - bound
        size = rating.plain(abs(gap)) + (" points" if rating.sign else "")
        where = "on a par with" if float(rating.plain(abs(gap))) == 0 else f"{size} {'above' if gap > 0 else 'below'}"
        text += f"; that is {where} training on all data in one place"
    return f"{text}." if len(tied) > 1 else f"{text}. {_took(best, rating)}."


def _where_accuracy_says_little(rated: Sequence[Result], rating: Rating) -> str:
    """Accuracies of the methods, and nothing about who is good, or as good as whom."""
    if len(rated) == 1:
        method, line = rated[0]
        return f"{method.label} reaches {rating.text(line.rating)}. {_took(line, rating)}."
    values = by_value((rating.text(line.rating), method) for method, line in rated)
    return f"Accuracy is {listed([f'{value} for {listed(labels)}' for value, labels in values.items()])}."


def _not_shown(results: Sequence[Result], common: Mapping[str, CommonClass]) -> str:
    """Who has not been shown to find any class but the common one; empty where accuracy says enough."""
    shown = [method.label for method, line in results if method.label in common and line.method != CENTRALIZED]
    blind = [label for label in shown if not common[label].others_found]
    if not blind:
        return ""
    name = common[blind[0]].name
    if len(blind) == len(shown) > 1:
        return f"None of the federated methods here has been shown to find any class but “{name}”."
    have = "has" if len(blind) == 1 else "have"
    return f"{listed(blind)} {have} not been shown to find any class but “{name}”."


def _took(best: Line, rating: Rating) -> str:
    text = f"It took {best.rounds} rounds and {best.megabytes:,.1f} MB for each silo"
    if best.worst_silo is None:
        return text
    return f"{text}; on what its worst silo has, it reaches {_of(rating, best.worst_silo)}"


def _little_said(results: Sequence[Result], common: Mapping[str, CommonClass], rating: Rating) -> str:
    """What to look at where one class is so common that accuracy says little; empty where none is."""
    shown = [method for method, line in results if method.label in common and line.method != CENTRALIZED]
    if not shown:
        return ""
    named = common[shown[0].label]
    if named.balanced is None:
        return f" All samples that this is rated on are “{named.name}”: it says nothing about other classes."
    values = by_value((rating.text(common[method.label].balanced), method) for method in shown)
    balanced = listed([f"{value} for {listed(labels)}" for value, labels in values.items()])
    always = f" Always “{named.name}” would have {rating.text(named.share)}: accuracy says little here."
    return f"{always} Balanced accuracy, the mean over classes, is {balanced}."


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
    parts += [task.not_rated] if task.not_rated else []
    if any(run.config.patience for run in runs):
        parts.append("Where patience ended a run, its model is the best round’s on held-out samples, and curves go on.")
    if task.regression:
        units = task.methods[0].config.target or "what is learnt"
        parts.append("R² is 1 where every prediction is right, and 0 for always saying the mean.")
        parts.append(f"RMSE is the root of the mean squared error, in the units of {units}.")
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
    parts += [f"{run.path.name} had {told}." for run in runs if (told := silos_told(run)) not in task.title]
    return " ".join(parts + [f"{run.path.name} {what}" for run in runs if (what := _unusual(run))])


def _unusual(run: RunFolder) -> str:
    """What keeps a run from counting as others do; empty for most."""
    if run.failure:
        return f"has no model: {run.failure}"
    if final_row(run.history, run.config).diverged:
        return "diverged: its scores are no numbers. Give it a smaller lr."
    return "" if run.finished else f"is not finished, and does not count yet: {run.go_on} goes on with it."
