"""The one error a user is meant to read, and what most often leads to it: a number that cannot be."""

import difflib
import math
from collections.abc import Callable, Collection, Iterable
from numbers import Integral, Real
from typing import Any

LARGEST_WHOLE = 2**63 - 1  # of int64: what torch and messages hold
LARGEST_NUMBER = 3.4e38  # about that of float32, which networks compute in
ALIKE = 0.65  # words that may be meant for one another: epochs for local_epochs, but not colour for holdout


class FedtctError(ValueError):
    """Bad input: says what was wrong and what to do about it.

    The command line prints the message and exits with code 2; nothing has been written by then. ``cause`` is the
    exception of a library or of the user's own code that led to it, ``data`` quotes samples: the message has both.
    ``shareable`` is what a silo may tell a server: without ``data``, and of the cause its kind alone, since its text
    might quote samples, too.
    """

    def __init__(self, text: str, cause: BaseException | None = None, data: str = "") -> None:
        kind = "" if cause is None else f": {type(cause).__name__}"
        super().__init__(text + data + (kind and f"{kind}: {cause}".rstrip()))
        self.shareable = text + (kind and f"{kind}; the silo's log says more")


class Diverged(FedtctError):
    """Training led to no model: a smaller learning rate may. Of several runs the others go on without this one."""


def listing(names: Iterable[object], most: int | None = 12) -> str:
    """Names one after another, kept apart by semicolons where commas are in them; the first of many, or all."""
    texts = [str(name) for name in names]
    between = "; " if any("," in text for text in texts) else ", "
    rest = len(texts[most:]) if most else 0
    return between.join(texts[:most]) + (f" and {rest} more" if rest else "")


def one_line(text: str, most: int | None = None) -> str:
    """Another's text as a line to show: it must not write lines of its own, nor move a terminal's cursor."""
    return "".join(letter if letter.isprintable() else " " for letter in " ".join(text[:most].splitlines()))


def first_line(error: BaseException) -> str:
    """What an error of somebody else's says at first, or at least what it is: compilers write pages."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def quoted(names: Iterable[object]) -> str:
    """Names one after another, each in quotes."""
    return listing(f"'{name}'" for name in names)


def plain(value: Any) -> Any:
    """A number of numpy's as the Python number it is: JSON has no others, and torch takes none as a seed."""
    import numpy as np  # a help screen comes without it

    return value.item() if isinstance(value, np.generic) else value


def make_plain(settings: Any) -> None:
    """All settings of an object that is being made as plain values; it may be frozen."""
    vars(settings).update({name: plain(value) for name, value in vars(settings).items()})


def check_whole(least: int, **settings: Any) -> None:
    """Refuse settings that are no whole numbers (1e5 and True are none), too small or too large."""
    for name, value in settings.items():
        if not isinstance(value, Integral) or isinstance(value, bool):
            raise FedtctError(f"{name} must be a whole number, it is {value!r}")
        if value < least:
            raise FedtctError(f"{name} must {f'be at least {least}' if least else 'not be negative'}, it is {value}")
        if int(value) > LARGEST_WHOLE:
            raise FedtctError(f"{name} must be below 2**63, which is about 9.2e18")


def check_positive(**settings: Any) -> None:
    """Refuse settings that are no numbers above zero that float32 has."""
    for name, value in settings.items():
        if _finite(name, value) <= 0:
            raise FedtctError(f"{name} must be positive, it is {value}")


def check_not_negative(**settings: Any) -> None:
    """Refuse settings that are no numbers from zero on that float32 has."""
    for name, value in settings.items():
        if _finite(name, value) < 0:
            raise FedtctError(f"{name} must not be negative, it is {value}")


def check_one_of(known: Collection[str], **settings: str) -> None:
    """Refuse words that are none of these."""
    for name, value in settings.items():
        if value not in known:
            raise FedtctError(f"unknown {name} '{value}'. Known: {', '.join(known)}")


def check_known(name: str, known: Iterable[str], where: str) -> None:
    """Refuse a setting that does not exist, and say which one was probably meant."""
    known = list(known)
    if name not in known:
        hint = probably(name, known) or f"known are {', '.join(known)}"
        raise FedtctError(f"{where} has an unknown setting '{name}': {hint}")


def probably(name: str, known: Iterable[str]) -> str:
    """Which of those that there are was probably meant, as a question; empty if none is alike."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=ALIKE)
    return f"did you mean '{close[0]}'?" if close else ""


def _finite(name: str, value: Any) -> float:
    no_number = not isinstance(value, Real) or isinstance(value, bool)
    if no_number or not abs(value) < math.inf:
        raise FedtctError(f"{name} must be a finite number, it is {value!r}")
    if abs(value) > LARGEST_NUMBER:
        raise FedtctError(f"{name} must be at most {LARGEST_NUMBER:g}")
    return float(value)


def each_once(say: Callable[[str], None]) -> Callable[..., None]:
    """What shows warnings, each once: Python forgets what it has shown whenever a library touches its filters."""
    shown: set[str] = set()

    def show(message: Warning | str, *where: Any, **more: Any) -> None:
        if (text := str(message)) not in shown:
            shown.add(text)
            say(f"warning: {text}")

    return show
