"""The results in sentences: who is best, by how much, what it took, and whether accuracy says anything."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from fedtct.report.page.blocks import Rating
from fedtct.report.page.chosen import choice_in
from fedtct.report.page.problems import Method, Problem, by_value, differences, listed
from fedtct.runs.common_class import CommonClass
from fedtct.runs.finding_types import CLASSES
from fedtct.runs.summary import in_megabytes
from fedtct.runs.tables import CENTRALIZED, Line

Result = tuple[Method, Line]


def introduction(
    problem: Problem, results: Sequence[Result], bound: float | None, common: Mapping[str, CommonClass], rating: Rating
) -> str:
    """The text above the table of ``results``, of which the best comes first."""
    choice = choice_in(problem)
    if choice:  # the other candidates lost, whatever they reach on test data
        results = [(method, line) for method, line in results if method is choice.best]
    told = choice.told(rating) if choice else ""
    parts = [_not_shown(results, common), _headline(results, bound, rating), told]
    return " ".join(part for part in [*parts, _little_said(results, common, rating)] if part)


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
        here = f"the federated methods here{finished}"
        text += f": by this, {here} are equally good" if len(tied) == len(rated) else f", the best of {here}"
        differing = differences([method for method, _ in rated])
        text += f", though they differ in {listed([*differing])}" if differing else ""
    if bound is not None:
        text += f"; that is {_apart(best.rating - bound, rating)} training on all data in one place"
    if doubtful := [method.label for method, line in rated[len(tied) :] if _may_be_chance(line, rated[0])]:
        whose = "its" if len(tied) == 1 else "their"
        text += f"; {whose}" if bound is None else f". {whose.capitalize()}"
        text += f" lead over {listed(doubtful)} may be chance"
    return f"{text}." if len(tied) > 1 else f"{text}. {_took(best, rating)}."


def _may_be_chance(line: Line, first: Result) -> bool:
    """Whether a rating's distance to the first one may be due to the seeds, or to few samples."""
    method, best = first
    assert best.rating is not None
    assert line.rating is not None
    chance = [_by_seeds(best.by_seed, line.by_seed)]
    samples = [sum(map(sum, found["confusion"])) for run in method.counted if (found := run.finding(CLASSES))]
    if not best.regression and all(samples):
        chance += [2 * standard_error(best.rating * count, count) for count in samples]
    return best.rating - line.rating <= max(chance)


def _by_seeds(one: Mapping[int, float], two: Mapping[int, float]) -> float:
    """How far the means of equally good methods may lie apart: farther in one of twenty cases (Student's t-test).

    With the same seeds, which deal the same data, it is the differences seed by seed that count.
    """
    from scipy.special import stdtrit  # slow to import

    if one.keys() == two.keys():
        freedom = len(one) - 1
        error = stdev(one[seed] - two[seed] for seed in one) / math.sqrt(len(one)) if freedom > 0 else 0.0
    else:
        groups = [list(ratings.values()) for ratings in (one, two) if ratings]
        freedom = sum(map(len, groups)) - len(groups)
        squares = sum((value - fmean(values)) ** 2 for values in groups for value in values)
        error = math.sqrt(squares / freedom * sum(1 / len(values) for values in groups)) if freedom else 0.0
    return float(stdtrit(freedom, 0.975)) * error if error else 0.0


def standard_error(right: float, samples: int) -> float:
    """The standard error of an accuracy; with one right and one wrong sample added, so that it is never zero."""
    share = (right + 1) / (samples + 2)
    return math.sqrt(share * (1 - share) / samples)


def _apart(gap: float, rating: Rating) -> str:
    size = rating.plain(abs(gap))
    if float(size) == 0:
        return "on a par with"
    return f"{size}{' points' if rating.sign else ''} {'above' if gap > 0 else 'below'}"


def _where_accuracy_says_little(rated: Sequence[Result], rating: Rating) -> str:
    """The methods' accuracies, without saying which is good, or as good as which."""
    if len(rated) == 1:
        method, line = rated[0]
        return f"{method.label} reaches {rating.text(line.rating)}. {_took(line, rating)}."
    values = by_value((rating.text(line.rating), method) for method, line in rated)
    return f"Accuracy is {listed([f'{value} for {listed(labels)}' for value, labels in values.items()])}."


def _not_shown(results: Sequence[Result], common: Mapping[str, CommonClass]) -> str:
    """The methods that may find no class but the common one; empty if accuracy says enough."""
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
    text = f"It took {best.rounds} rounds and {in_megabytes(1e6 * best.megabytes)} MB for each silo"
    if best.worst_silo is None:
        return text
    return f"{text}; its {rating.name} on the worst silo’s data is {rating.text(best.worst_silo)}"


def _little_said(results: Sequence[Result], common: Mapping[str, CommonClass], rating: Rating) -> str:
    """What to look at if one class is so common that accuracy says little; empty if none is."""
    shown = [method for method, line in results if method.label in common and line.method != CENTRALIZED]
    if not shown:
        return ""
    named = common[shown[0].label]
    if named.balanced is None:
        return f"All rated samples are “{named.name}”: the score says nothing about other classes."
    values = by_value((rating.text(common[method.label].balanced), method) for method in shown)
    balanced = listed([f"{value} for {listed(labels)}" for value, labels in values.items()])
    always = f"Always predicting “{named.name}” would give {rating.text(named.share)}: accuracy says little here."
    return f"{always} Balanced accuracy, the mean over classes, is {balanced}."


def _of(rating: Rating, value: float) -> str:
    return rating.text(value) if rating.sign else f"an {rating.name} of {rating.text(value)}"
