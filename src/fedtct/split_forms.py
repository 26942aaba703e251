"""The forms of splits: how a setting says in which way samples are dealt to silos."""

import math

from fedtct.errors import FedtctError

SPLIT_FORMS = ("iid", "classes:N", "dirichlet:ALPHA")
ALPHA_RANGE = (1e-9, 1e9)  # wider than any use; much further out the logarithms overflow


def parse_split(split: str, classes: int | None = None) -> tuple[str, float]:
    """The form of a split and its number, refused if nothing could be dealt by it: of so many classes, or at all."""
    match split.partition(":"):
        case "iid", "", "":
            return "iid", 0
        case "classes", ":", text:
            return "classes", _parse_classes(text, classes)
        case "dirichlet", ":", text:
            return "dirichlet", _parse_alpha(text)
    raise FedtctError(f"unknown split '{split}': use one of {', '.join(SPLIT_FORMS)}")


def _parse_classes(text: str, classes: int | None) -> int:
    number = int(text) if text.isdecimal() else 0
    if not 1 <= number <= (classes or number):
        most = f"to {classes}" if classes else "on"
        raise FedtctError(f"split 'classes:{text}': N must be a whole number from 1 {most}")
    return number


def _parse_alpha(text: str) -> float:
    try:
        alpha = float(text)
    except ValueError:
        alpha = math.nan
    low, high = ALPHA_RANGE
    if not low <= alpha <= high:
        raise FedtctError(f"split 'dirichlet:{text}': ALPHA must be a number from {low:g} to {high:g}")
    return alpha
