"""Whether a reply is what was asked for: silos are other people's machines, and one must not end the run of all."""

from typing import Any

from torch import Tensor

from fedtct.silo import Message

SCORES = ("n", "samples", "correct", "loss")
HOLDS = {  # what algorithms read of a reply
    "describe": ("n", "held", "shape", "kind", "answers"),
    "train": ("n", "steps", "parameters", "buffers"),
    "evaluate": SCORES,
    "moments": ("n", "mean", "m2"),
    "normalise": ("n", "largest_eigenvalue"),
    "regress": ("n", "w"),
    "rate": SCORES,
    "assess": SCORES,
    "sums": ("n", "s", "t", "yy"),
    "calibrate": ("n", "losses"),
}


def flaw(question: str, asked: Message, reply: Message, outputs: int) -> str:
    """Why a reply cannot be used; empty if it can. ``outputs`` are the network's."""
    for name in HOLDS.get(question, ()):
        if name not in reply:
            return f"its reply lacks '{name}'"
    if not isinstance(reply.get("n", 0), int) or reply.get("n", 0) < 0:
        return f"it says that it has {reply['n']!r} samples"
    for name, shape in _shapes(question, asked, reply, outputs).items():
        found = reply[name]
        if not isinstance(found, Tensor) or not found.is_floating_point():
            return f"its '{name}' is no array of real numbers"
        if tuple(found.shape) != shape:
            return f"its '{name}' has shape {tuple(found.shape)}, not {shape}"
    return ""


def _shapes(question: str, asked: Message, reply: Message, outputs: int) -> dict[str, tuple[int, ...]]:
    """Of the arrays that a reply must hold, as they follow from the question or from one another."""
    match question:
        case "train":
            return {name: tuple(asked[name].shape) for name in ("parameters", "buffers")}
        case "regress":
            return {"w": tuple(asked["w"].shape)}
        case "calibrate":
            return {"losses": tuple(asked["temperatures"].shape)}
        case "moments":
            return dict.fromkeys(("mean", "m2"), (_length(reply["mean"]),))
        case "sums":
            rows = _length(reply["t"])
            return {"s": (rows * (rows + 1) // 2,), "t": (rows, outputs)}
    return {}


def _length(array: Any) -> int:
    return len(array) if isinstance(array, Tensor) and array.ndim else 0
