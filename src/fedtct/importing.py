"""Imports the user's own functions, which commands and files name as module:function."""

import importlib
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from fedtct.errors import FedtctError


def is_function_name(text: str) -> bool:
    """Whether a text has the form module:function."""
    return re.fullmatch(r"[A-Za-z_][\w.]*:\w+", text) is not None


def import_function(name: str, folder: Path, *, installed: bool = True) -> Callable[..., Any]:
    """The function that a name stands for, from a module in ``folder`` or, if allowed, an ``installed`` one."""
    if not is_function_name(name):
        raise FedtctError(f"'{name}' does not name a function: write module:function")
    module, function = name.split(":")
    if not installed and not _origin(module.split(".")[0], folder):
        raise FedtctError(f"{name} is not in a module of {folder.name}, and others are not used here")
    try:
        with importable(folder):
            found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        if module.endswith(".py"):
            raise FedtctError(f"write {name} without .py: {module[:-3]}:{function}") from error
        lacks = isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")
        raise FedtctError(f"there is no {name} to import", error, _where(module, folder) if lacks else "") from error
    except Exception as error:
        raise FedtctError(f"{module} cannot be imported", error) from error
    _check_home(module.split(".")[0], folder)
    if not callable(found):
        raise FedtctError(f"{name} is not a function but {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def _check_home(module: str, folder: Path) -> None:
    """Refuse a module from elsewhere if the folder has one of that name, which Python did not import."""
    own, known = _origin(module, folder), getattr(sys.modules[module], "__file__", None)
    if own and Path(own).resolve() != Path(known or "/").resolve():
        raise FedtctError(
            f"{own} is not used, because {known or 'another module'} already has its name: rename one of them"
        )


def _where(module: str, folder: Path) -> str:
    """Where a module was looked for in vain, and what to do if it is elsewhere."""
    inside = next((path for path in sorted(folder.glob("*/")) if _origin(module.split(".")[0], path)), None)
    advice = "if it is elsewhere, name its folder in PYTHONPATH"
    if inside:
        advice = f"put PYTHONPATH={shlex.quote(str(inside))} before the command"
    return f" in {folder.absolute()}, nor installed ({advice})"


def _origin(module: str, folder: Path) -> str | None:
    """The file of a module in a folder, if it is there."""
    found = PathFinder.find_spec(module, [str(folder.absolute())])
    return found.origin if found else None


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Modules in a folder can be imported for a while."""
    sys.path.insert(0, str(folder.absolute()))
    try:
        yield
    finally:
        sys.path.remove(str(folder.absolute()))
