"""Methods of the user's own, named as module:Class."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedtct.errors import FedtctError
from fedtct.importing import import_function
from fedtct.models import Model
from fedtct.stage1.base import Stage1


def import_method(name: str, model: Model, settings: Mapping[str, Any]) -> Stage1:
    """The method with a run's settings: of a class of the user's, or of a function that makes one of it."""
    make = import_function(name, Path.cwd())
    try:
        made = make(model, **settings)
    except FedtctError:
        raise
    except Exception as error:
        raise FedtctError(f"{name} cannot be made of a model and the settings {', '.join(settings)}", error) from error
    if not isinstance(made, Stage1):
        raise FedtctError(f"{name} is no method: it must be, or make, a fedtct.Stage1, not {type(made).__name__}")
    return made
