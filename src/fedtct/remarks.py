"""What is said of several silos alike is said once: in a hundred silos hardly anything is odd in one alone."""

import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from fedtct.errors import listing

_QUOTES_AND_NUMBERS = re.compile(r"'[^']*'|\d[\d.,]*")


@contextmanager
def joined_warnings(silos: Iterable[str]) -> Iterator[None]:
    """Warnings that name silos: those alike but for the silo, and for how much, are shown as one, at the end."""
    a_silo = _naming(silos)
    heard: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True, action="always") as heard:
            yield
    finally:
        alike: dict[str, dict[str, warnings.WarningMessage]] = {}  # by what they say, by silo
        for warning in heard:
            text = str(warning.message)
            silo = found[0] if (found := a_silo.search(text)) else ""
            of = alike.setdefault(_form(a_silo.sub("0", text)) if silo else text, {})
            (alike.setdefault(text, {}) if silo in of else of)[silo] = warning
        for of in alike.values():
            (_, first), *others = of.items()
            likewise = f" (likewise in {listing(silo for silo, _ in others)})" if others else ""
            warnings.warn_explicit(f"{first.message}{likewise}", first.category, first.filename, first.lineno)


def _naming(silos: Iterable[str]) -> re.Pattern[str]:
    """What finds silos' names in a remark: a number is one only where the remark begins."""
    names = sorted(silos, key=len, reverse=True)
    places = [("^" if name.isdigit() else r"(?<!\w)") + re.escape(name) for name in names]
    return re.compile(rf"(?:{'|'.join(places)})(?!\w)")


def _form(text: str) -> str:
    """A remark without how much, but with the columns and classes that it quotes."""
    return _QUOTES_AND_NUMBERS.sub(lambda found: found[0] if found[0][0] == "'" else "0", text)
