"""Checks of a silo.toml and of the [server] table of a run.toml: names that exist, with values of their kind."""

from collections.abc import Mapping
from typing import Any

from fedtct.errors import FedtctError, check_known

KINDS: dict[type, tuple[tuple[type, ...], str]] = {
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    tuple: ((list, tuple), 'a list such as ["a", "b"]'),
    str: ((str,), "text in quotes"),
}


def check_settings(given: Mapping[str, Any], usual: Mapping[str, Any], where: str) -> None:
    """Refuse names that are not among the ``usual`` settings, and values of another kind than theirs."""
    for name, value in given.items():
        check_known(name, usual, where)
        kinds, wanted = KINDS[type(usual[name])]
        if not isinstance(value, kinds) or isinstance(value, bool) or value != value:
            raise FedtctError(f"{where}: {name} must be {wanted}, it is {value!r}")
