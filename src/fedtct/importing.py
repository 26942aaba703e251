"""Functions of the user's own, named on the command line or in a file of theirs as module:function."""

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    if not callable(found):
        raise FedtctError(f"{name} is no function but {type(found).__name__}")
    return found  # type: ignore[no-any-return]


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Modules in a folder can be imported for a while."""
    sys.path.insert(0, str(folder.absolute()))
    try:
        yield
    finally:
        sys.path.remove(str(folder.absolute()))
