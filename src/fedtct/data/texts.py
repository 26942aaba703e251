"""Texts as they come in, in one form: an ö may be one letter, or an o and two dots, as Macs write file names."""

import re
import unicodedata
from collections.abc import Iterable

ZEROS_IN_FRONT = re.compile(r"\A([+-]?)0+(\d+)\Z")  # of a whole number


def composed(text: str) -> str:
    """The text without blanks around it and in Unicode's composed form (NFC): what looks the same is the same."""
    text = text.strip()
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def all_composed(texts: Iterable[str]) -> list[str]:
    """Texts, many of them the same, in their composed form: each different one is looked at once."""
    texts = list(texts)
    forms = {text: composed(text) for text in set(texts)}
    return [forms[text] for text in texts]


def spelt_alike(texts: Iterable[str]) -> str:
    """Those among different texts that differ in capitals or in zeros in front alone, or as True and 1 do."""
    alike: dict[str, list[str]] = {}
    for text in texts:
        word = {"true": "1", "false": "0"}.get(text.casefold(), text.casefold())
        alike.setdefault(ZEROS_IN_FRONT.sub(r"\1\2", word), []).append(text)
    groups = [group for group in alike.values() if len(group) > 1]
    return ", ".join(" and ".join(f"'{text}'" for text in group) for group in groups)
