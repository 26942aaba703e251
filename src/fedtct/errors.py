"""The one error that users are meant to read, and checks of settings that raise it."""

import difflib
import math
from collections.abc import Collection, Iterable
from numbers import Integral, Real
from typing import Any

LARGEST_WHOLE = 2**63 - 1  # an int64, as torch and messages have
LARGEST_NUMBER = 3.4e38  # about that of float32, which networks compute in
ALIKE = 0.65  # how alike words are that may be meant for one another: epochs and local_epochs, not colour and holdout


class FedtctError(ValueError):
    """Bad input: the message says what was wrong and what to do about it.

    The command line prints the message and exits with code 2, before it has written anything. ``cause`` is the
    exception of a library or of your own code behind it; ``data`` quotes samples. The message includes both.
    ``shareable`` is what a silo may tell a server: it leaves out ``data``, and names only the kind of ``cause``, whose
    text might quote samples, too.
    """

    def __init__(self, text: str, cause: BaseException | None = None, data: str = "") -> None:
        kind = "" if cause is None else f": {type(cause).__name__}"
        super().__init__(text + data + (kind and f"{kind}: {cause}".rstrip()))
        self.shareable = text + (kind and f"{kind}; the silo's log says more")


class Diverged(FedtctError):
    """Training led to no model; a smaller learning rate may help. Other runs of a plan go on."""


def listing(names: Iterable[object], most: int | None = 12) -> str:
    """Names in a row, separated by semicolons if some have commas; the first of many, or all if ``most`` is none."""
    texts = [str(name) for name in names]
    between = "; " if any("," in text for text in texts) else ", "
    rest = len(texts[most:]) if most else 0
    return between.join(texts[:most]) + (f" and {rest} more" if rest else "")


def one_line(text: str, most: int | None = None) -> str:
    """Somebody else's text in one line, without letters that could move a terminal's cursor."""
    return "".join(letter if letter.isprintable() else " " for letter in " ".join(text[:most].splitlines()))


def first_line(error: BaseException) -> str:
    """The first line of another library's error, or its type: compilers write pages."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def quoted(names: Iterable[object]) -> str:
    """Names in a row, each in quotes."""
    return listing(f"'{name}'" for name in names)


def plain(value: Any) -> Any:
    """A number of numpy's as a Python number, as JSON and torch's seeds need it; other values as they are."""
    import numpy as np  # not at the top: help screens should not wait for it

    return value.item() if isinstance(value, np.generic) else value


def make_plain(settings: Any) -> None:
    """Make all settings of an object plain values, in its ``__post_init__``; it may be frozen."""
    vars(settings).update({name: plain(value) for name, value in vars(settings).items()})


def check_whole(least: int, **settings: Any) -> None:
    """Refuse settings that are not whole numbers (1e5 and True are not), too small or too large."""
    for name, value in settings.items():
        if not isinstance(value, Integral) or isinstance(value, bool):
            raise FedtctError(f"{name} must be a whole number, it is {value!r}")
        if value < least:
            raise FedtctError(f"{name} must {f'be at least {least}' if least else 'not be negative'}, it is {value}")
        if int(value) > LARGEST_WHOLE:
            raise FedtctError(f"{name} must be below 2**63, which is about 9.2e18")


def check_positive(**settings: Any) -> None:
    """Refuse settings that are not positive float32 numbers."""
    for name, value in settings.items():
        if _finite(name, value) <= 0:
            raise FedtctError(f"{name} must be positive, it is {value}")


def check_not_negative(**settings: Any) -> None:
    """Refuse settings that are not float32 numbers from zero on."""
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
    """Which of the known names was probably meant, as a question; empty if none is alike."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=ALIKE)
    return f"did you mean '{close[0]}'?" if close else ""


def _finite(name: str, value: Any) -> float:
    no_number = not isinstance(value, Real) or isinstance(value, bool)
    if no_number or not abs(value) < math.inf:
        raise FedtctError(f"{name} must be a finite number, it is {value!r}")
    if abs(value) > LARGEST_NUMBER:
        raise FedtctError(f"{name} must be at most {LARGEST_NUMBER:g}")
    return float(value)
