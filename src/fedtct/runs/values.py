"""Settings as their types say, from TOML values or from text of the command line."""

import math
from collections.abc import Sequence
from typing import Any

from fedtct.errors import FedtctError, plain


def parse_value(name: str, kind: str, value: Any) -> Any:
    """A value of the type that is called ``kind``; an error calls it by its name."""
    value = plain(value)
    try:
        match kind:
            case "str" if isinstance(value, str):
                return value
            case "bool" if isinstance(value, bool):
                return value
            case "int":
                return _whole(value)
            case "float":
                return _number(value)
            case "float | str":
                try:
                    return _number(value)
                except (ValueError, OverflowError):
                    return value
            case "tuple[int, ...]" | "tuple[str, ...]":
                parts = value.split(",") if value and isinstance(value, str) else () if value == "" else value
                one = _whole if kind == "tuple[int, ...]" else _name
                return tuple(map(one, parts if isinstance(parts, Sequence) else [parts]))
    except (ValueError, TypeError, OverflowError):
        pass
    wanted = {"str": "text", "bool": "true or false", "int": "a whole number", "float": "a number"}
    wanted |= {"float | str": "a number or a word", "tuple[str, ...]": "names"}
    raise FedtctError(f"{name} must be {wanted.get(kind, 'whole numbers')}, it is {value!r}")


def _whole(value: Any) -> int:
    if isinstance(value, bool | float):
        raise ValueError
    return int(value)


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    return value.strip()


def _number(value: Any) -> float:
    number = float(value)
    if isinstance(value, bool) or not math.isfinite(number):
        raise ValueError
    return number
