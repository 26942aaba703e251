"""Whether a reply is what was asked for: silos are other people's machines, and one must not end the run of all."""

import math
from collections.abc import Sequence
from numbers import Real

from torch import Tensor

from fedtct.agreement import LABELS, NAMES, NUMBERS
from fedtct.federation.descriptions import misdescribed
from fedtct.silo import Message
from fedtct.tasks import Score

SCORES = ("n", "samples", "correct", "loss")
HELD = "held_"  # before the names of scores on held-out samples
HOLDS = {  # what algorithms read of a reply
    "describe": ("n", "held", "shape", "kind", "answers"),
    "train": ("n", "steps", "parameters", "buffers"),
    "evaluate": SCORES,
    "moments": ("n", "mean", "m2"),
    "normalise": ("n", "largest_eigenvalue"),
    "regress": ("n", "w"),
    "rate": SCORES,
    "assess": (*SCORES, *(HELD + name for name in SCORES[1:])),
    "sums": ("n", "s", "t", "yy"),
    "calibrate": ("n", "losses"),
}
MAY_DIVERGE = ("loss",)  # a model's that diverged is no number, which is not the silo's fault
FINITE = ("moments", "sums")  # what is summed up once; training and steps may diverge, which is seen after the round
DESCRIBES = {  # what a description holds besides, by its kind of samples and of answers
    "table": ("columns",),
    "pixels": ("pixels", "sum", "square_sum"),
    LABELS: (LABELS,),
    NAMES: (NAMES,),
    NUMBERS: ("answer_mean", "answer_m2"),
}


def flaw(question: str, asked: Message, reply: Message, outputs: int, features: int) -> str:
    """Why a reply cannot be used; empty if it can. ``outputs`` are the network's, ``features`` those of its map."""
    if lacking := _first_lacking(question, asked, reply):
        return f"its reply lacks '{lacking}'"
    if not isinstance(reply.get("n", 0), int) or reply.get("n", 0) < 0:
        return f"it says that it has {reply['n']!r} samples"
    if question == "train" and not (isinstance(reply["steps"], int) and reply["steps"] > 0):
        return f"it says that it took {reply['steps']!r} steps"
    for name in _numbers(question, reply):
        may_diverge = name.removeprefix(HELD) in MAY_DIVERGE
        if not isinstance(reply[name], Real) or not (may_diverge or math.isfinite(reply[name])):
            return f"its '{name}' is {reply[name]!r}, no number"
    for name, shape in _shapes(question, asked, reply, outputs, features).items():
        found = reply[name]
        if not isinstance(found, Tensor) or not (found.is_floating_point() or question == "assess"):  # which counts
            return f"its '{name}' is no array of real numbers"
        if tuple(found.shape) != shape:
            return f"its '{name}' has shape {tuple(found.shape)}, not {shape}"
        if question in FINITE and not bool(found.isfinite().all()):
            return f"its '{name}' is not finite"
    return misdescribed(reply) if question == "describe" else ""


def _first_lacking(question: str, asked: Message, reply: Message) -> str:
    names = HOLDS.get(question, ())
    if question == "describe" and not asked.get("private"):
        names += DESCRIBES.get(str(reply.get("kind")), ()) + DESCRIBES.get(str(reply.get("answers")), ())
    return next((name for name in names if name not in reply), "")


def _numbers(question: str, reply: Message) -> Sequence[str]:
    """Names of the plain numbers in a reply; several models at once are assessed by arrays."""
    match question:
        case "train" | "evaluate" | "regress" | "rate":  # training may tell scores, too
            return [name for name in reply if name.removeprefix(HELD) in Score._fields]
        case "normalise":
            return ["largest_eigenvalue"]
        case "sums":
            return ["yy"]
    return []


def _shapes(question: str, asked: Message, reply: Message, outputs: int, features: int) -> dict[str, tuple[int, ...]]:
    """Of the arrays that a reply must hold, as they follow from the question and the network."""
    match question:
        case "train":
            return {name: tuple(asked[name].shape) for name in ("parameters", "buffers")}
        case "regress":
            return {"w": tuple(asked["w"].shape)}
        case "calibrate":
            return {"losses": tuple(asked["temperatures"].shape)}
        case "moments":
            return dict.fromkeys(("mean", "m2"), (features,))
        case "sums":
            rows = features + 1
            return {"s": (rows * (rows + 1) // 2,), "t": (rows, outputs)}
        case "assess":
            scores = [name for name in reply if name.removeprefix(HELD) in Score._fields]
            return dict.fromkeys(scores, (len(asked["w"]),))
    return {}
