"""Functions of the user's own, named on the command line or in a file of theirs as module:function."""

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from fedtct.errors import FedtctError


def is_function_name(text: str) -> bool:
    """Whether a text names a function."""
    return re.fullmatch(r"[A-Za-z_][\w.]*:\w+", text) is not None


def import_function(name: str, folder: Path) -> Callable[..., Any]:
    """The function module:function, the module being in ``folder`` or installed."""
    module, function = name.split(":")
    try:
        with importable(folder):
            found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise FedtctError(f"there is no {name} to import", error) from error
    except Exception as error:
        raise FedtctError(f"{module} cannot be imported", error) from error
    _check_home(module.split(".")[0], folder)
    if not callable(found):
        raise FedtctError(f"{name} is no function but {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def _check_home(module: str, folder: Path) -> None:
    """Refuse a module from elsewhere where the folder has its own: of a name, Python knows the one that came first."""
    own = PathFinder.find_spec(module, [str(folder.absolute())])
    known = getattr(sys.modules[module], "__file__", None)
    if own and own.origin and Path(own.origin).resolve() != Path(known or "/").resolve():
        raise FedtctError(f"{own.origin} is not used, as {known or 'another'} has its name already: rename one of them")


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Modules in a folder can be imported for a while."""
    sys.path.insert(0, str(folder.absolute()))
    try:
        yield
    finally:
        sys.path.remove(str(folder.absolute()))
