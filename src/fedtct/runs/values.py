"""Settings as their types say, from TOML values or from text of the command line."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from fedtct.errors import FedtctError, plain


def parse_value(name: str, kind: Any, value: Any) -> Any:
    """A value of the type ``kind``; an error calls it by its name."""
    parse, wanted = KINDS[kind]
    try:
        return parse(plain(value))
    except (ValueError, TypeError, OverflowError) as error:
        raise FedtctError(f"{name} must be {wanted}, it is {value!r}") from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool | float):
        raise TypeError
    return int(value)


def _number(value: Any) -> float:
    number = float(value)
    if isinstance(value, bool) or not math.isfinite(number):
        raise ValueError
    return number


def _number_or_word(value: Any) -> float | str:
    try:
        return _number(value)
    except (ValueError, OverflowError):
        return _text(value)


def _whole_or_word(value: Any) -> int | str:
    try:
        return _whole(value)
    except ValueError:
        return _text(value)


def _name(value: Any) -> str:
    if not _text(value).strip():
        raise ValueError
    return str(value).strip()


def _several(one: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    """From a list, or from words with commas between them."""

    def parse(value: Any) -> tuple[Any, ...]:
        parts = value.split(",") if value and isinstance(value, str) else () if value == "" else value
        return tuple(map(one, parts if isinstance(parts, Sequence) else [parts]))

    return parse


KINDS: dict[Any, tuple[Callable[[Any], Any], str]] = {
    str: (_text, "text"),
    bool: (_truth, "true or false"),
    int: (_whole, "a whole number"),
    float: (_number, "a number"),
    int | str: (_whole_or_word, "a whole number or a word"),
    float | str: (_number_or_word, "a number or a word"),
    tuple[int, ...]: (_several(_whole), "whole numbers"),
    tuple[str, ...]: (_several(_name), "names"),
}
