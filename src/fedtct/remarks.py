"""What would be said many times is said once: a warning that comes again, or what is true of several silos."""

import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedtct.errors import listing

BySilo = dict[str, warnings.WarningMessage]

_QUOTES_AND_NUMBERS = re.compile(r"'[^']*'|\d[\d.,]*")


def each_once(say: Callable[[str], None]) -> Callable[..., None]:
    """A function that shows each warning once: Python itself forgets them when a library changes its filters."""
    shown: set[str] = set()

    def show(message: Warning | str, *where: Any, **more: Any) -> None:
        if (text := str(message)) not in shown:
            shown.add(text)
            say(f"warning: {text}")

    return show


@contextmanager
def joined_warnings(silos: Iterable[str]) -> Iterator[None]:
    """Warnings that name silos: those alike but for the silo, and for how much, are shown as one, at the end."""
    heard: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True, action="always") as heard:
            yield
    finally:
        for alike in _grouped(heard, _naming(silos)):
            (_, first), *others = alike.items()
            likewise = f" (likewise in {listing(silo for silo, _ in others)})" if others else ""
            warnings.warn_explicit(f"{first.message}{likewise}", first.category, first.filename, first.lineno)


def _grouped(heard: Iterable[warnings.WarningMessage], a_silo: re.Pattern[str]) -> list[BySilo]:
    """Warnings that are alike but for the silo, by silo; what one silo has to say twice is not joined with others'."""
    groups: dict[str, BySilo] = {}
    for warning in heard:
        text = str(warning.message)
        silo = found[0] if (found := a_silo.search(text)) else ""
        group = groups.setdefault(_form(a_silo.sub("0", text)) if silo else text, {})
        if silo in group:
            group = groups.setdefault(text, {})
        group[silo] = warning
    return list(groups.values())


def _naming(silos: Iterable[str]) -> re.Pattern[str]:
    """What finds silos' names in a remark: a number is one only where the remark begins."""
    names = sorted(silos, key=len, reverse=True)
    places = [("^" if name.isdigit() else r"(?<!\w)") + re.escape(name) for name in names]
    return re.compile(rf"(?:{'|'.join(places)})(?!\w)")


def _form(text: str) -> str:
    """A remark without how much, but with the columns and classes that it quotes."""
    return _QUOTES_AND_NUMBERS.sub(lambda found: found[0] if found[0][0] == "'" else "0", text)


class Remarks(dict[str, dict[str, str]]):
    """Messages about silos, grouped by their text without the silo's name: for each text, the silos' full messages."""

    def add(self, text: str, name: str, path: Path) -> None:
        """Add a message about a silo and its file."""
        self.setdefault(text.removeprefix(str(path)).removeprefix(name), {})[name] = text

    def lines(self) -> list[str]:
        """Each message once, with the names of the other silos that it is about."""
        lines = []
        for alike in self.values():
            (_, first), *others = alike.items()
            lines.append(first + (f" (the same in {listing(silo for silo, _ in others)})" if others else ""))
        return lines
