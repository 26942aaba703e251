"""Texts as they come in, in one form: an ö may be one letter, or an o and two dots, as Macs write file names."""

import unicodedata
from collections.abc import Iterable


def composed(text: str) -> str:
    """The text in Unicode's composed form (NFC), so that what looks the same is the same."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def all_composed(texts: Iterable[str]) -> list[str]:
    """Texts, many of them the same, in their composed form: each different one is looked at once."""
    texts = list(texts)
    if all(map(str.isascii, texts)):
        return texts
    forms = {text: composed(text) for text in set(texts)}
    return [forms[text] for text in texts]
