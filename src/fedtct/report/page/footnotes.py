"""Below the table of results: how to read it, and why its rows may not be comparable."""

from collections.abc import Sequence

from fedtct.history import rated_on
from fedtct.report.page.blocks import Rating
from fedtct.report.page.chosen import chosen_from
from fedtct.report.page.headline import standard_error
from fedtct.report.page.problems import Problem, differences, listed, sentence
from fedtct.runs.finding_types import CLASSES
from fedtct.runs.folder import RunFolder
from fedtct.runs.settings import ELSEWHERE
from fedtct.runs.summary import SILO_SAMPLES, SiloRatings, Summary, final_row, silos_told
from fedtct.runs.tables import CENTRALIZED

UNCOVERED = "What this page says about single silos and classes is known only in simulations, and ε does not cover it."


def how_to_read(problem: Problem, rating: Rating) -> str:
    """What the table's numbers are, and what it does not tell."""
    runs = [run for method in problem.methods for run in method.counted]
    rated = [run for method in problem.methods if method.over for run in method.counted] or runs
    by_chance = "" if problem.regression else _by_chance(rated, rating)
    over = _over_seeds(problem, runs)
    parts = _rated_on(rating, runs, rated, by_chance + over)
    if len(problem.methods) > 1 and (over or by_chance):
        parts.append(_may_be_chance(seeds=bool(over), samples=bool(by_chance)))
    parts += chosen_from(problem, rating)
    parts += [told] if (told := problem.caveats) else []
    if any(run.config.patience for run in runs):
        parts.append(
            "Where patience ended a run, its model is that of the best round on held-out samples; its curves continue."
        )
    if problem.regression:
        units = problem.methods[0].config.target or "what is learnt"
        parts.append("R² is 1 if every prediction is right, and 0 for always predicting the mean.")
        parts.append(f"RMSE is the root of the mean squared error, in the units of {units}.")
    stages = max(Summary.of(run).rounds.count("+") for run in runs)
    if stages:
        shared = ", of sharing the features’ statistics," if stages > 1 else ""
        parts.append(f"Rounds are those of stage 1{shared} and of stage 2.")
    promises = dict.fromkeys(promise for method in problem.methods if (promise := method.config.promise()))
    return " ".join([*parts, *map(sentence, promises), *_add_centralized(problem, runs)])


def _may_be_chance(*, seeds: bool, samples: bool) -> str:
    """By which rules the text above the table says that a lead may be chance."""
    whose = "A lead over a method with the same seeds" if seeds else "A lead"
    rules = ["the 95 % confidence interval of the mean difference, seed by seed, includes zero"] if seeds else []
    rules += ["it is at most twice the standard error of the better model"] if samples else []
    few = " With two or three seeds, this interval is wide." if seeds else ""
    return f"{whose} may be chance if {', or if '.join(rules)}.{few}"


def _over_seeds(problem: Problem, runs: Sequence[RunFolder]) -> str:
    """What a mean in the table is taken over; empty if every method has a single run."""
    if all(len(method.counted) <= 1 for method in problem.methods):
        return ""
    split_seed = runs[0].config.split_seed  # the same in all runs of a problem
    deal = "" if split_seed == "seed" else f" of training, all on the deal of split_seed {split_seed}"
    return f", mean ± standard deviation (n − 1) over seeds{deal}"


def _rated_on(rating: Rating, runs: Sequence[RunFolder], rated: Sequence[RunFolder], more: str) -> list[str]:
    """Which samples the ratings of models and of silos are on, or why there are none."""
    name = f"{rating.name[0].upper()}{rating.name[1:]}"
    on = rated_on([row for run in runs for row in run.history])
    if not on:
        private = any(run.config.epsilon for run in runs)
        unknown = f"{name} is not known{': private silos rate no models' if private else ' yet'}."
        return [unknown, UNCOVERED] if private else [unknown]
    places = {"test": "the test set", "holdout": "what silos hold out", "train": "the data that silos train on"}
    whose = " or ".join(dict.fromkeys(SILO_SAMPLES[SiloRatings.of(run).on] for run in rated))
    return [f"{name} is on {places[on]}{more}. A silo’s is on {whose}."]


def _add_centralized(problem: Problem, runs: Sequence[RunFolder]) -> list[str]:
    """How to compare with centralized training, if that is not in the table and all data can be in one place."""
    methods = dict.fromkeys(method.config.method for method in problem.methods)
    if CENTRALIZED in methods or any(run.config.data == ELSEWHERE for run in runs):
        return []
    command = f"fedtct compare --methods {','.join([CENTRALIZED, *methods])}"
    return [f"To compare with centralized training, run `{command}` with the same settings."]


def _by_chance(runs: Sequence[RunFolder], rating: Rating) -> str:
    """How many samples accuracies are on, and how far off they may be by chance; empty if that is not known."""
    errors = []
    for run in runs:
        found = run.finding(CLASSES)
        table = found["confusion"] if found else []
        if samples := sum(map(sum, table)):
            errors.append((samples, standard_error(sum(row[label] for label, row in enumerate(table)), samples)))
    if not errors:
        return ""
    fewest, largest = min(samples for samples, _ in errors), max(error for _, error in errors)
    return f", {fewest:,} samples (standard error of one model: {rating.plain(largest)} points)"


def not_comparable(problem: Problem) -> str:
    """Why rows are not quite comparable; empty if they are."""
    settings = [
        f"{name}: " + ", ".join(f"{value} for {listed(labels)}" for value, labels in values.items())
        for name, values in differences(problem.methods).items()
    ]
    parts = [f"The methods also differ in {'; in '.join(settings)}."] if settings else []
    runs = [run for method in problem.methods for run in method.runs]
    parts += [f"{run.path.name} had {told}." for run in runs if (told := silos_told(run)) not in problem.title]
    return " ".join(parts + [f"{run.path.name} {what}" for run in runs if (what := _unusual(run))])


def _unusual(run: RunFolder) -> str:
    """What keeps a run from counting as others do; empty for most."""
    if run.failure:
        return f"has no model: {run.failure}"
    if final_row(run.history, run.config).diverged:
        return "diverged: its scores are no numbers. Give it a smaller lr."
    return "" if run.finished else f"is not finished, and does not count yet: `{run.go_on}` resumes it."
