"""Checks of replies: silos are other people's machines, and one bad reply must not end everybody's run."""

import math
from collections.abc import Mapping
from numbers import Real

import torch
from torch import Tensor

from fedtct.answers import LABELS, NAMES, NUMBERS
from fedtct.errors import listing
from fedtct.federation.flower.descriptions import misdescribed
from fedtct.questions import ANY_RATING, HELD, RATING, SCORES, Message, about
from fedtct.tangent import Normaliser

MAY_DIVERGE = ("loss",)  # not finite if the model diverged, which is not the silo's fault
NOT_NEGATIVE = ("m2", "yy", "losses", *SCORES)  # counts, sums of squares and of log-losses
REAL = (torch.float32, torch.float64)
COUNTS = (*REAL, torch.int64)  # ratings of several models are arrays
ROUNDING = 0.01  # far more than the error of eigenvalues of features in half precision
DESCRIBES = {  # what else a description must hold, by its kind of samples and of answers
    "table": ("columns",),
    "pixels": ("pixels", "sum", "square_sum"),
    LABELS: (LABELS,),
    NAMES: (NAMES,),
    NUMBERS: ("answer_mean", "answer_m2"),
}


def flaw(
    question: str,
    asked: Message,
    reply: Message,
    outputs: int,
    features: int,
    *,
    samples: int | None = None,
    held_out: int | None = None,
) -> str:
    """Why a reply cannot be used; empty if it can. ``outputs`` are the network's, ``features`` those of its map.

    ``samples`` and ``held_out`` are how many the silo said that it trains on and holds out, if that is known: it must
    not claim more in a reply, where they are its weight in averages and choices.
    """
    return (
        _lacking(question, asked, reply)
        or (misdescribed(reply) if question == "describe" else _miscounted(question, reply, samples, held_out))
        or _wrong_numbers(question, reply)
        or _wrong_arrays(question, asked, reply, outputs, features)
        or _impossible(question, asked, reply, held_out)
    )


def _lacking(question: str, asked: Message, reply: Message) -> str:
    names = about(question).reply
    if question == "describe" and not asked.get("private"):
        names += DESCRIBES.get(str(reply.get("kind")), ()) + DESCRIBES.get(str(reply.get("answers")), ())
    if about(question).rates and (asked.get("evaluate") or "samples" in reply):
        names += RATING
    return next((f"its reply lacks '{name}'" for name in names if name not in reply), "")


def _miscounted(question: str, reply: Message, samples: int | None, held_out: int | None) -> str:
    n, steps = reply.get("n", samples or 1), reply.get("steps", 1)
    judged = about(question).of_held_out  # there may be no such samples
    if type(n) is not int or n < (0 if judged else 1):
        return f"it says that it has {n!r} samples"
    if judged and held_out is not None and n > held_out:
        return f"it says that it judged by {n!r} samples, but it said that it holds out {held_out}"
    if not judged and samples not in (None, n):
        return f"it says that it has {n!r} samples, but it said {samples} before: it must stay the same during a run"
    if "steps" in about(question).reply and (type(steps) is not int or steps < 1):
        return f"it says that it took {steps!r} steps"
    return ""


def _wrong_numbers(question: str, reply: Message) -> str:
    for name in (name for name in about(question).numbers if name in reply):
        value, kind = reply[name], name.removeprefix(HELD)
        if not isinstance(value, Real) or not (kind in MAY_DIVERGE or math.isfinite(value)):
            return f"its '{name}' is {value!r}, not a number"
        if kind in NOT_NEGATIVE and value < 0:
            return f"its '{name}' is negative"
    return ""


def _wrong_arrays(question: str, asked: Message, reply: Message, outputs: int, features: int) -> str:
    shapes_of = about(question).arrays
    shapes = shapes_of(asked, outputs, features) if shapes_of else {}
    for name in (name for name in shapes if name in reply):
        found, shape, like = reply[name], shapes[name], asked.get(name)
        kinds = (like.dtype,) if isinstance(like, Tensor) else COUNTS if name in ANY_RATING else REAL
        if not isinstance(found, Tensor) or found.dtype not in kinds:
            return f"its '{name}' is not an array of {listing(str(kind).removeprefix('torch.') for kind in kinds)}"
        if tuple(found.shape) != shape:
            return f"its '{name}' has shape {tuple(found.shape)}, not {shape}"
        if about(question).finite and not bool(found.isfinite().all()):
            return f"its '{name}' is not finite"
        if name.removeprefix(HELD) in NOT_NEGATIVE and bool((found < 0).any()):
            return f"its '{name}' is negative"
    return ""


def _impossible(question: str, asked: Message, reply: Message, held_out: int | None) -> str:
    """Values of the right form that cannot be true, or not together."""
    if question == "normalise":
        # With the column of ones λmax is at least 1. It is at most the mean square of a row, all of whose other
        # features are cut off at the limit: those of a silo that came after the normaliser was made, too.
        normaliser = Normaliser.among(asked)
        most = 1 + len(normaliser.mean) * float(normaliser.limit) ** 2
        if not 1 - ROUNDING <= (found := reply["largest_eigenvalue"]) <= (1 + ROUNDING) * most:
            return f"its 'largest_eigenvalue' is {found!r}, but it must be from 1 to {most:.3g}"
    if question == "sums" and reply["s"][0] != reply["n"]:  # noise leaves it as it is
        return "its 's' does not match its number of samples"
    if about(question).rates and "samples" in reply:
        trained_on = reply["n"] if asked.get("train", True) else 0
        return _misrated(reply, {"": trained_on, HELD: held_out})
    return ""


def _misrated(reply: Message, samples: Mapping[str, int | None]) -> str:
    """Whether ratings are of more samples than there are; plain numbers for one model, arrays for several."""
    for which in ("", HELD):
        rated, correct = (torch.as_tensor(reply[which + name]) for name in ("samples", "correct"))
        if (expected := samples[which]) is not None and bool((rated != expected).any()):
            return f"its '{which}samples' does not match its number of samples"
        if bool((correct > rated).any()):
            return f"its '{which}correct' is more than its '{which}samples'"
    return ""
