"""Which of several candidates, such as learning rates, was chosen, and by what."""

from collections.abc import Sequence
from typing import NamedTuple

from fedtct.report.page.blocks import Rating
from fedtct.report.page.tasks import Method, Task, by_value, listed
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

    def whole(self, task: Task) -> bool:
        """Whether the task has no other methods."""
        return len(task.methods) == 1 + len(self.others)


def choices_in(task: Task) -> list[Chosen]:
    """The choices that all candidates of are shown."""
    methods = {run.path: method for method in task.methods for run in method.runs}
    found = []
    for folder in dict.fromkeys(path.parent for path in methods):
        choice = read_choice(folder)
        if choice and all(folder / name in methods for name in choice.ratings):
            rated = {name: (value, methods[folder / name]) for name, value in choice.ratings.items()}
            value, best = rated.pop(choice.best)
            rounds = len(judged_rows(best.runs[0].history, best.config))
            found.append(Chosen(best, value, [*rated.values()], choice.by_loss(), rounds))
    return found
