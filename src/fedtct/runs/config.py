"""A run in plain values: settings that go together, and what follows from them."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from fedtct.data.image_files import check_image_size
from fedtct.data.samples import TASKS
from fedtct.data.sources import Reading, silo_paths, unread
from fedtct.early_stopping import OTHER_RATERS
from fedtct.errors import FedtctError, check_one_of
from fedtct.importing import import_function, is_function_name
from fedtct.models import Model
from fedtct.runs.checks import check, completed
from fedtct.runs.methods import build_method, noise_of
from fedtct.runs.settings import (
    METHODS,
    OWN,
    OWN_DEFAULTS,
    OWN_STAGE2,
    SETTINGS,
    STAGE2,
    Settings,
    Solver,
    as_value,
    check_names,
)
from fedtct.stage1 import Stage1
from fedtct.tct import TCT


@dataclass(frozen=True)
class RunConfig(Settings):
    """A run: a dataset and how it is dealt to silos, or silos' own data, and the method that learns from them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check()

    @classmethod
    def of(cls, **given: Any) -> Self:
        """A configuration from given settings; the defaults of some others depend on the dataset and the method."""
        check_names(given, "the configuration")
        if given.get("data"):
            given = own_data(given)
        return cls(**completed(given))

    def build(self, num_classes: int | None = None) -> Stage1 | TCT:
        """The method; ``num_classes`` is a dataset's, even if no silo has some of them."""
        return build_method(self, self.network(), num_classes)

    def network(self) -> Model:
        """The model: a name that fedtct knows, or the user's own function that makes it."""
        return import_function(self.model, Path.cwd()) if is_function_name(self.model) else self.model

    @property
    def noise(self) -> float:
        """The noise that ``epsilon`` takes, in sensitivities; 0 without differential privacy."""
        return noise_of(self)

    def promise(self) -> str:
        """What differential privacy promises in this run, in words; empty if there is none."""
        if not self.epsilon:
            return ""
        return (
            f"differential privacy of every sample: ε = {self.epsilon:g} at δ = {self.delta:g}, spent on "
            f"{self.releases} {'reply' if self.releases == 1 else 'replies'} of each silo, with noise of "
            f"{self.noise:.3g} times the sensitivity"
        )

    def unread(self) -> dict[str, str]:
        """The settings that this run does not read, with what they are for."""
        methods = (self.method, self.trained_by)
        found = {own: name for name, method in METHODS.items() if name not in methods for own in method.own}
        solver = STAGE2.get(self.stage2, OWN_STAGE2) if self.method == "tct" else Solver()
        for own in sorted({own for other in STAGE2.values() for own in other.reads} - set(solver.reads)):
            found[own] = "stage 2 by " + " or ".join(name for name, other in STAGE2.items() if own in other.reads)
        if self.method == "centralized":
            found["per_round"] = "data in several places"
        if self.method == "tct" and self.stage2 == "ridge" and self.p >= self.d:
            found["p"] = f"numbers below ridge's d, {self.d}"
        if not self.epsilon:
            found |= dict.fromkeys(("delta", "clip"), "differential privacy, with epsilon")
        return found

    def _check(self) -> None:
        """Refuse what cannot work, before anything is loaded; methods check their own settings."""
        check(self)
        check_one_of(TASKS, task=self.task)
        if self.data:
            check_image_size(self.image_size)
        else:
            for name in ("test", *Reading._fields):
                if getattr(self, name) != SETTINGS[name].default:
                    raise FedtctError(f"{name} is for your own data: set data, too, or leave out {name}")
        if self.patience and self.per_round:
            raise FedtctError(OTHER_RATERS)
        if not self.own_methods:  # which may be missing where a finished run is only looked at
            build_method(self, "linear")


def warn_of_unread(configs: Iterable[RunConfig], typed: Iterable[str]) -> None:
    """Warn if somebody typed a setting that none of the runs reads: it changes nothing."""
    unread = [config.unread() | _unread_by_files(config) for config in configs]
    for name in typed:
        if all(name in found for found in unread):
            flag = "--" + name.replace("_", "-")
            warnings.warn(f"{flag} has no effect here: it is for {unread[0][name]}", stacklevel=2)


def _unread_by_files(config: RunConfig) -> dict[str, str]:
    if not config.data:
        return {}
    return unread([*Path(config.data).iterdir(), *([Path(config.test)] if config.test else [])])


def own_data(given: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run on silos' own data: the folder decides on those by which a dataset would be dealt."""
    if given.get("split") == OWN and "silos" in given:
        return given  # they were decided before; the data of a finished run may be gone
    folder = Path(str(given["data"]))
    decided = {"dataset": folder.resolve().name, "split": OWN, "silos": len(silo_paths(folder))}
    if other := [name for name in decided if name in given and as_value(name, given[name]) != decided[name]]:
        raise FedtctError(f"with this data {other[0]} is {decided[other[0]]!r}, not {given[other[0]]!r}: leave it out")
    return OWN_DEFAULTS | given | decided
