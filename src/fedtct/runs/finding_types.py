"""The forms that findings have on disk. What another version wrote in another form is left out, not stumbled over."""

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
    """How many samples of a class (a row) are taken for which (a column).

    The last column is of samples that the model has no answer for.
    """

    confusion: list[list[int]]
    tested: bool


class Ratings(TypedDict):
    """How good the model is on samples such as each silo has, and on everybody's."""

    own: list[float | None]
    everybody: float | None
    held_out: bool


class AloneSettings(TypedDict):
    """What the models of silos alone depend on, among others."""

    epochs: int


class RatingsAlone(TypedDict):
    """The same of the models that silos train alone, one each."""

    settings: AloneSettings
    own: list[float | None]
    everybody: list[float | None]
    samples: NotRequired[int]  # of everybody's that they were rated on, if not on all


class Spectrum(TypedDict):
    """Eigenvalues at some ranks."""

    ranks: list[int]
    eigenvalues: list[float]


class Steps(TypedDict):
    """A stage 2 that takes steps; not every silo's spectrum is known."""

    step_size: float
    diverges_from: float
    largest_eigenvalues: list[float]
    silos: list[str]
    spectra: NotRequired[list[Spectrum]]
    optimal_share: NotRequired[float | None]


class Solved(TypedDict):
    """A stage 2 that is solved at once."""

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
    """What a file of findings holds; none, and a line that says so, if that is of another form."""
    found: Finding = read_json(path)
    if fits(found, FORMS[path.stem]):
        return found
    warnings.warn(f"{path} is damaged, or of another version of fedtct: it is left out", stacklevel=2)
    return None


def fits(value: Any, form: Any) -> bool:
    """Whether a value that came from JSON is of a type; names that a TypedDict does not have may be there, too."""
    if is_typeddict(form):
        there = isinstance(value, dict) and form.__required_keys__ <= value.keys()
        return there and all(fits(value[name], kind) for name, kind in get_type_hints(form).items() if name in value)
    if get_origin(form) is list:
        return isinstance(value, list) and all(fits(item, get_args(form)[0]) for item in value)
    if get_args(form):  # a union
        return any(fits(value, kind) for kind in get_args(form))
    return isinstance(value, int | float if form is float else form)
