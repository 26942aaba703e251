"""Which of several candidates, such as learning rates, was chosen, and by what."""

from collections.abc import Sequence
from typing import NamedTuple

from fedtct.report.page.blocks import Rating
from fedtct.report.page.problems import Method, Problem, by_value, listed
from fedtct.runs.choose import read_choice
from fedtct.runs.summary import judged_rows


class Chosen(NamedTuple):
    """The candidate that won and the others, each with what it reached on held-out samples."""

    best: Method
    value: float | None
    others: Sequence[tuple[float | None, Method]]
    by_loss: bool  # which decided between equals
    rounds: int  # whose mean that is

    def told(self, rating: Rating) -> str:
        """A sentence about it."""
        tie = any(value == self.value for value, _ in self.others)
        first = ", of equals the one with the smallest loss" if self.by_loss else ", the first of equals" if tie else ""
        values = by_value((rating.text(value), method) for value, method in self.others)
        against = listed([f"{value} for {listed(labels)}" for value, labels in values.items()])
        mean = f", mean of the last {self.rounds} rounds" if self.rounds > 1 else ""
        by = f"by {rating.name} on what silos hold out{mean}: {rating.text(self.value)}, against {against}"
        return f"{self.best.label} was chosen{first}, {by}."


def choice_in(problem: Problem) -> Chosen | None:
    """The choice whose candidates are shown, all of them; most problems show none, or only what was chosen."""
    methods = {run.path: method for method in problem.methods for run in method.runs}
    folder = next(iter(methods)).parent
    choice = read_choice(folder)
    if not choice or choice.none or methods.keys() != {folder / name for name in choice.ratings}:
        return None
    rated = {name: (value, methods[folder / name]) for name, value in choice.ratings.items()}
    value, best = rated.pop(choice.best)
    rounds = len(judged_rows(best.runs[0].history, best.config))
    return Chosen(best, value, [*rated.values()], choice.by_loss(), rounds)


def chosen_from(problem: Problem, rating: Rating) -> list[str]:
    """A sentence about each setting that was chosen for runs whose rivals are not shown."""
    told = []
    for name in chosen_names(problem):
        values = by_value((str(method.value(name)), method) for method in problem.methods if name in method.chosen)
        every = len(values) == 1 and all(name in method.chosen for method in problem.methods)
        how = listed([value if every else f"{value} for {listed(labels)}" for value, labels in values.items()])
        told.append(
            f"Each run’s {name} was {how}, by {rating.name} on what silos hold out; the other candidates are not shown."
        )
    return told


def chosen_names(problem: Problem) -> list[str]:
    """The settings that were chosen for runs whose rivals are not shown."""
    return [*dict.fromkeys(name for method in problem.methods for name in method.chosen)]
