"""Sentences to read beside a table of ratings.

They tell of silos that hold nothing out, or little; of silos whose targets are all alike; of models that were better in
earlier rounds, or in stage 1; of held-out samples that chose a model and rate it, too; and of learning rates that were
chosen, but are the largest or the smallest that were given.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from statistics import fmean, stdev

from fedtct.errors import listing
from fedtct.history import rated_on
from fedtct.runs.choose import chosen_settings, read_choice
from fedtct.runs.finding_types import SILOS
from fedtct.runs.folder import RunFolder
from fedtct.runs.summary import JUDGED_ROUNDS, SiloRatings, Summary, final_row

FEW = 50  # held-out samples: if there are fewer, each counts for more than 2 points of a silo's accuracy
FALLEN = 0.01  # a fall in accuracy or R² that is worth a sentence


def caveats(runs: Sequence[RunFolder]) -> list[str]:
    """Sentences to read beside the ratings of runs; most runs need none.

    They have no full stops. Their first letters may be made capitals: none begins with the name of a silo.
    """
    found = [*map(absent, runs), _not_rated(runs), _no_r2(runs), _rough(runs), _fallen(runs), _behind(runs)]
    found += [_chosen_by_the_same(runs), *map(_ridge_by_the_same, runs)]
    found += [_at_an_end(runs, max, "largest", "larger"), _at_an_end(runs, min, "smallest", "smaller")]
    return [text for text in dict.fromkeys(found) if text]


def absent(run: RunFolder) -> str:
    """Which silos the model went without: those that took no part at all, or none in the stage that made it."""
    agreed, rows = run.agreement(), [row for row in run.history if row.silos]
    if not run.finished or not agreed or not rows or run.config.per_round:
        return ""
    stage = rows[-1].stage
    there = {name for row in rows if row.stage == stage for name in row.silos}
    known = dict.fromkeys([*agreed["silos"], *(name for row in rows for name in row.silos)])  # some may have come later
    gone = [name for name in known if name not in there]
    never = run.config.silos - len(known)
    part = "stage 2, which made the model," if stage == "stage2" else "training"
    told = [f"{part} ran without {listing(gone)}"] if gone else []
    told += [f"{never} of {run.config.silos} silos took no part"] if never > 0 else []
    return "; ".join(told)


def hold_nothing_out(run: RunFolder) -> list[str]:
    """The silos that hold nothing out where others do: what is rated on held-out samples says nothing about them."""
    held = _held_out(run)
    return [name for name, count in held.items() if not count] if any(held.values()) else []


def _held_out(run: RunFolder) -> dict[str, int]:
    """How many samples each silo holds out; empty if that is not known yet."""
    held: dict[str, int] = (run.agreement() or {}).get("held", {})
    return held


def _not_rated(runs: Iterable[RunFolder]) -> str:
    rating = [run for run in runs if not run.config.epsilon]  # silos of a private run rate nothing
    names = list(dict.fromkeys(name for run in rating for name in hold_nothing_out(run)))
    if not names:
        return ""
    whom = "it" if len(names) == 1 else "them"
    return f"nothing is held out by {listing(names)}: held-out ratings say nothing about {whom}"


def _no_r2(runs: Iterable[RunFolder]) -> str:
    names: dict[str, None] = {}
    others = False
    for run in runs:
        agreed, found = run.agreement(), run.finding(SILOS)
        if agreed and found and Summary.of(run).regression and not _diverged(run):
            rated = dict(zip(agreed["silos"], found["own"], strict=False))
            without = [name for name, r2 in rated.items() if r2 is None]
            names |= dict.fromkeys(name for name in without if name not in hold_nothing_out(run))
            others |= len(without) < len(rated)
    if not names:
        return ""
    worst = "; the worst silo is one of the others" if others else ""
    return f"no R² for {listing(names)}: all held-out targets are equal, or there is only one{worst}"


def _diverged(run: RunFolder) -> bool:
    return bool(run.failure) or final_row(run.history, run.config).diverged


def _chosen_by_the_same(runs: Sequence[RunFolder]) -> str:
    chosen = {run.path: count for run in runs if (count := _candidates(run))}
    if not chosen:
        return ""
    many = _range(sorted(chosen.values()))
    if len(chosen) == 1:
        (path,) = chosen
        return f"the held-out samples that rate {path.name} also chose it from {many} candidates"
    which = "these runs" if len(chosen) == len(runs) else f"{len(chosen)} of these {len(runs)} runs"
    return f"the held-out samples that rate {which} also chose their learning rates, each from {many} candidates"


def _candidates(run: RunFolder) -> int:
    """From how many a run was chosen by the held-out samples that rate it; 0 if it was not."""
    choice = read_choice(run.path.parent)
    if not choice or choice.best != run.path.name or rated_on([Summary.of(run)]) != "holdout":
        return 0
    return len(choice.ratings)


def _ridge_by_the_same(run: RunFolder) -> str:
    if not run.config.holdout_chooses_ridge or rated_on([Summary.of(run)]) != "holdout":
        return ""
    return "the held-out samples that rate the model also chose the strength of stage 2's ridge"


def _at_an_end(runs: Sequence[RunFolder], end: Callable[[Iterable[float]], float], which: str, further: str) -> str:
    """A sentence about methods for which, with every seed, the rate at one end of those that were given was chosen."""
    ends: dict[str, dict[str, bool]] = {}
    for run in runs:
        if (rates := chosen_settings(run).get("lr")) and not _diverged(run):
            by_split = ends.setdefault(run.config.full_method, {})
            by_split[run.config.split] = by_split.get(run.config.split, True) and run.config.lr == end(rates)
    names = []
    for method, by_split in ends.items():
        there = [split for split, at_end in by_split.items() if at_end]
        where = f" on {' and '.join(there)}" if len(there) < len(by_split) else ""
        names += [method + where] if there else []
    if not names:
        return ""
    return f"for {listing(names)} the {which} lr that was given was best: try {further} ones, too"


def _rough(runs: Sequence[RunFolder]) -> str:
    """A sentence about silos that may be the worst by chance."""
    found = list(dict.fromkeys(few for run in runs if (few := _worst_by_few(run))))
    if not found:
        return ""
    counts = sorted({count for _, count in found})
    worth = [100 / count for count in reversed(counts)]
    points = "" if Summary.of(runs[0]).regression else f", each worth {_range(worth)} points"
    if len(found) > 1:
        return f"worst silos are rated on {_range(counts)} held-out samples{points}"
    ((name, count),) = found
    return f"the worst silo, {name}, is rated on " + (
        "a single held-out sample" if count == 1 else f"{count} held-out samples{points}"
    )


def _worst_by_few(run: RunFolder) -> tuple[str, int] | None:
    """The worst silo, and the number of its samples if it is small; else none."""
    ratings, held_out = SiloRatings.of(run), _held_out(run)
    if ratings.on != "holdout" or len(held_out) != len(ratings.values) or ratings.worst is None or _diverged(run):
        return None
    rated = zip(held_out.items(), ratings.values, strict=True)
    worst = max((own for own, value in rated if value == ratings.worst), key=itemgetter(1), default=("", FEW))
    return worst if 0 < worst[1] < FEW else None


def _fallen(runs: Sequence[RunFolder]) -> str:
    """A sentence about methods that became worse on held-out samples, in the mean over seeds."""
    if not (told := _lost(runs, _fall)):
        return ""
    return (
        f"held-out ratings were better in {JUDGED_ROUNDS} earlier rounds than in the last {JUDGED_ROUNDS}, "
        f"{told}: a patience of 3 would keep the model of the best round"
    )


def _behind(runs: Sequence[RunFolder]) -> str:
    """A sentence about models that are worse on held-out samples than the networks that they were made from."""
    if not (told := _lost(runs, _lag)):
        return ""
    return (
        f"on held-out samples stage 1's network was better than the model, {told}: to keep that network, run stage 1's "
        "method alone"
    )


def _lost(runs: Sequence[RunFolder], measure: Callable[[RunFolder], float]) -> str:
    """How much each method lost by a measure, in the mean over seeds; empty if none lost what is worth a word."""
    losses: dict[str, list[float]] = {}
    for run in runs:
        losses.setdefault(run.config.full_method, []).append(measure(run))
    of_r2 = any(row.regression for run in runs for row in run.history)
    return listing(
        f"{method} by {loss:.2f}" if of_r2 else f"{method} by {100 * loss:.1f} points"
        for method, found in losses.items()
        if (loss := fmean(found)) >= FALLEN
    )


def _fall(run: RunFolder) -> float:
    """By how much the last rounds are worse than the stage's best, on held-out samples; zero if it may be noise."""
    last = final_row(run.history, run.config)
    rated = [row for row in run.history if row.stage == last.stage and row.rated_by == last.rated_by]
    ratings = [rating for row in rated if (rating := row.rating("holdout")) is not None]
    if run.config.patience or _diverged(run) or len(ratings) < 2 * JUDGED_ROUNDS:
        return 0.0
    means = [fmean(ratings[start : start + JUDGED_ROUNDS]) for start in range(len(ratings) - JUDGED_ROUNDS + 1)]
    fall = max(means) - means[-1]
    return fall if fall > stdev(ratings[-JUDGED_ROUNDS:]) else 0.0


def _lag(run: RunFolder) -> float:
    """From the network that stage 2 began with to the model, on held-out samples; zero if it may be noise."""
    last = final_row(run.history, run.config)
    before = [row for row in run.history if row.stage == "stage1" and row.rated_by == last.rated_by]
    ratings = [rating for row in before if (rating := row.rating("holdout")) is not None]
    after = last.rating("holdout")
    if not run.finished or last.stage != "stage2" or after is None or not ratings or _diverged(run):
        return 0.0
    lag = (max(ratings) if run.config.patience else ratings[-1]) - after  # patience has kept the best
    samples = sum(_held_out(run).values())
    spread = 4 * after * (1 - after) ** 2 if last.regression else after * (1 - after)  # of R², and of an accuracy
    return lag if lag > 2 * math.sqrt(2 * max(spread, 0.0) / max(samples, 1)) else 0.0


def _range(values: Sequence[float]) -> str:
    """The least and the largest of sorted numbers."""
    least, most = f"{values[0]:.3g}", f"{values[-1]:.3g}"
    return least if least == most else f"{least} to {most}"
