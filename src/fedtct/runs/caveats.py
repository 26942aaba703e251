"""What ratings do not tell: of silos that hold nothing out, or little, of targets all alike, and after a choice."""

from collections.abc import Iterable, Sequence
from operator import itemgetter

from fedtct.errors import listing
from fedtct.history import rated_on
from fedtct.runs.choose import read_choice
from fedtct.runs.folder import RunFolder
from fedtct.runs.forms import SILOS
from fedtct.runs.summary import SiloRatings, Summary, final_row

FEW = 50  # held-out samples: with fewer, each is worth more than 2 points of a silo's accuracy


def caveats(runs: Sequence[RunFolder]) -> list[str]:
    """Sentences to read beside the ratings of runs, without their full stops; most runs need none."""
    of_each = [tell(run) for tell in (_rough, _chosen_by_the_same) for run in runs]
    found = [_not_rated(runs), _no_r2(runs), *of_each]
    return [text for text in dict.fromkeys(found) if text]


def hold_nothing_out(run: RunFolder) -> list[str]:
    """The silos that hold nothing out where others do: what is rated on held-out samples says nothing about them."""
    held = _held_out(run)
    return [name for name, count in held.items() if not count] if any(held.values()) else []


def _held_out(run: RunFolder) -> dict[str, int]:
    """How many samples each silo holds out, once they have told."""
    held: dict[str, int] = (run.agreement() or {}).get("held", {})
    return held


def _not_rated(runs: Iterable[RunFolder]) -> str:
    names = list(dict.fromkeys(name for run in runs for name in hold_nothing_out(run)))
    if not names:
        return ""
    holds, whom = ("holds", "it") if len(names) == 1 else ("hold", "them")
    return f"{listing(names)} {holds} nothing out: what is rated on held-out samples says nothing about {whom}"


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
    worst = "; the worst silo is another" if others else ""
    return f"{listing(names)}: no R² on held-out targets that are all alike, or one alone{worst}"


def _diverged(run: RunFolder) -> bool:
    return bool(run.failure) or final_row(run.history, run.config).diverged


def _chosen_by_the_same(run: RunFolder) -> str:
    choice = read_choice(run.path.parent)
    if not choice or choice.best != run.path.name or rated_on([Summary.of(run)]) != "holdout":
        return ""
    return f"the same held-out samples have chosen {run.path.name}, of {len(choice.ratings)} candidates, and rate it"


def _rough(run: RunFolder) -> str:
    """A sentence about a worst silo that may be it by chance."""
    ratings, held_out = SiloRatings.of(run), _held_out(run)
    last = final_row(run.history, run.config)
    if ratings.on != "holdout" or len(held_out) != len(ratings.values) or ratings.worst is None or _diverged(run):
        return ""
    rated = zip(held_out.items(), ratings.values, strict=True)
    name, count = max((own for own, value in rated if value == ratings.worst), key=itemgetter(1), default=("", FEW))
    if not 0 < count < FEW:
        return ""
    if count == 1:
        return f"worst silo {name}: rated on a single held-out sample"
    worth = "" if last.regression else f", each worth {100 / count:.3g} points"
    return f"worst silo {name}: rated on {count} held-out samples{worth}"
