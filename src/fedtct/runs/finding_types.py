"""The forms that findings have on disk. One that another version wrote in another form is ignored, not an error."""

import warnings
from pathlib import Path
from typing import Any, NotRequired, TypedDict, get_args, get_origin, get_type_hints, is_typeddict

from fedtct.files import read_json
from fedtct.history import Finding

SPLIT, CLASSES, SILOS, ALONE, STAGE2, DIVERGED = "split", "classes", "silos", "alone", "stage2", "diverged"


class SiloCounts(TypedDict):
    """How many samples a silo holds, of each class if there are classes."""

    name: str
    counts: list[int]


class Holdings(TypedDict):
    """Who holds what."""

    class_names: list[str]
    silos: list[SiloCounts]


class Confusion(TypedDict):
    """How many samples of a class (a row) are predicted as which class (a column).

    The last column counts samples without a prediction.
    """

    confusion: list[list[int]]
    tested: bool


class Ratings(TypedDict):
    """How good the model is on samples like each silo's own, and on everybody's."""

    own: list[float | None]
    everybody: float | None
    held_out: bool


class AloneSettings(TypedDict):
    """Settings that the models depend on which silos train alone; there are more."""

    epochs: int


class RatingsAlone(TypedDict):
    """The same ratings of the models that silos train alone, one each."""

    settings: AloneSettings
    own: list[float | None]
    everybody: list[float | None]
    samples: NotRequired[int]  # of everybody's that they were rated on, if not on all


class Spectrum(TypedDict):
    """Eigenvalues at some ranks."""

    ranks: list[int]
    eigenvalues: list[float]


class Steps(TypedDict):
    """What was found out about a stage 2 that takes steps; spectra may be unknown."""

    step_size: float
    diverges_from: float
    largest_eigenvalues: list[float]
    silos: list[str]
    spectra: NotRequired[list[Spectrum]]
    optimal_share: NotRequired[float | None]


class Solved(TypedDict):
    """What was found out about a stage 2 that is solved at once."""

    ridge: float
    pooled_spectrum: Spectrum


class Failure(TypedDict):
    """Why a run has no model."""

    reason: str


FORMS: dict[str, Any] = {
    SPLIT: Holdings,
    CLASSES: Confusion,
    SILOS: Ratings,
    ALONE: RatingsAlone,
    STAGE2: Steps | Solved,
    DIVERGED: Failure,
}


def read_finding(path: Path) -> Finding | None:
    """The finding in a file; none, with a warning, if it has another form."""
    found: Finding = read_json(path)
    if fits(found, FORMS[path.stem]):
        return found
    warnings.warn(f"{path} is damaged, or from another version of fedtct: it is ignored", stacklevel=2)
    return None


def fits(value: Any, form: Any) -> bool:
    """Whether a value from JSON is of a type; a TypedDict may have more names than it declares."""
    if is_typeddict(form):
        there = isinstance(value, dict) and form.__required_keys__ <= value.keys()
        return there and all(fits(value[name], kind) for name, kind in get_type_hints(form).items() if name in value)
    if get_origin(form) is list:
        return isinstance(value, list) and all(fits(item, get_args(form)[0]) for item in value)
    if get_args(form):  # a union
        return any(fits(value, kind) for kind in get_args(form))
    return isinstance(value, int | float if form is float else form)
