"""Methods of the user's own, named as module:Class."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from fedtct.errors import FedtctError
from fedtct.importing import import_function

Method = TypeVar("Method")


def import_method(name: str, kind: type[Method], settings: Mapping[str, Any], *model: Any) -> Method:
    """The method with a run's settings: of a class of the user's, or of a function that makes one of it."""
    make = import_function(name, Path.cwd())
    if isinstance(make, type):
        _check_kind(name, make, kind)
    taken = {setting: value for setting, value in settings.items() if setting not in _fixed(make)}
    try:
        made = make(*model, **taken)
    except FedtctError:
        raise
    except Exception as error:
        given = "a model and the settings" if model else "the settings"
        raise FedtctError(f"{name} cannot be made of {given} {', '.join(taken)}", error) from error
    _check_kind(name, type(made), kind)
    return made  # type: ignore[no-any-return]  # it was checked


def _fixed(make: object) -> set[str]:
    """The settings that a class has and gives nobody else to decide, as GradientDescent its one step a round."""
    return {spec.name for spec in fields(make) if not spec.init} if is_dataclass(make) else set()


def _check_kind(name: str, found: type, kind: type) -> None:
    if not issubclass(found, kind):
        raise FedtctError(f"{name} is no method: it must be, or make, a fedtct.{kind.__name__}, not {found.__name__}")
