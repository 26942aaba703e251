"""A run in plain values: settings that go together, and what follows from them."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from fedtct.data import DATASETS, parse_split
from fedtct.data.image_files import check_image_size
from fedtct.data.samples import TASKS
from fedtct.data.sources import Reading, silo_paths, unread
from fedtct.early_stopping import OTHER_RATERS
from fedtct.errors import FedtctError, check_not_negative, check_one_of, check_whole
from fedtct.importing import import_function, is_function_name
from fedtct.models import Model
from fedtct.models.registry import check_model_name
from fedtct.runs.methods import build_method, noise_of
from fedtct.runs.settings import (
    METHODS,
    MODEL_OF,
    OWN,
    OWN_DEFAULTS,
    OWN_STAGE2,
    SETTINGS,
    STAGE1,
    STAGE2,
    Settings,
    Solver,
    as_value,
    check_names,
    tct_rounds,
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
        method, stage2 = given.get("method", cls.method), given.get("stage2", cls.stage2)
        one_round = method == "tct" and stage2 == "ridge"
        values = {
            "model": MODEL_OF.get(given.get("dataset", cls.dataset), cls.model),
            "rounds": tct_rounds(stage2) if method == "tct" else (200,),
        } | given
        rounds = as_value("rounds", values["rounds"])
        if one_round and len(rounds) == 1:
            values["rounds"] = (*rounds, 1)
        return cls(**values)

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
        self._check_methods()
        check_one_of(TASKS, task=self.task)
        if not is_function_name(self.model):
            check_model_name(self.model)
        if self.data:
            self._check_own()
        else:
            if not is_function_name(self.dataset):
                check_one_of((*DATASETS, "module:function"), dataset=self.dataset)
            parse_split(self.split)
            for name in ("test", *Reading._fields):
                if getattr(self, name) != SETTINGS[name].default:
                    raise FedtctError(f"{name} is for your own data: set data, too, or leave out {name}")
        check_whole(1, silos=self.silos)
        check_whole(
            0,
            limit=self.limit,
            per_round=self.per_round,
            patience=self.patience,
            seed=self.seed,
            split_seed=self.dealt_by,
        )
        check_not_negative(epsilon=self.epsilon)
        if not 0 <= self.holdout < 1:
            raise FedtctError(f"holdout is a share of the samples, from 0 to below 1, not {self.holdout}")
        if isinstance(self.split_seed, str) and self.split_seed != "seed":
            raise FedtctError(f"split_seed must be a whole number or 'seed', it is '{self.split_seed}'")
        if isinstance(self.stage2_lr, str) and self.stage2_lr != "auto":
            raise FedtctError(f"stage2_lr must be a number or 'auto', it is '{self.stage2_lr}'")
        self._check_rounds()
        if self.needs_holdout and not self.holdout:
            raise FedtctError("patience and ridge='holdout' need held-out samples: set holdout, for example to 0.1")
        if self.patience and self.per_round:
            raise FedtctError(OTHER_RATERS)
        if not self.own_methods:  # which may be missing where a finished run is only looked at
            build_method(self, "linear")

    def _check_methods(self) -> None:
        for name, known in (("method", METHODS), ("stage1", STAGE1), ("stage2", STAGE2)):
            if not is_function_name(getattr(self, name)):
                check_one_of((*known, "module:Class"), **{name: getattr(self, name)})
        if self.epsilon and self.own_methods:
            raise FedtctError("epsilon works with fedtct's own methods only: leave it out with a method of yours")

    def _check_own(self) -> None:
        for name in ("limit", "split_seed"):
            if getattr(self, name) != SETTINGS[name].default:
                raise FedtctError(
                    f"{name} is for datasets that fedtct deals to silos, not for your own data: leave it out"
                )
        check_image_size(self.image_size)

    def _check_rounds(self) -> None:
        for number in self.rounds:
            check_whole(0, rounds=number)
        if self.method == "tct":
            if len(self.rounds) != 2:
                raise FedtctError(f"tct has two stages: rounds must be two numbers such as 20,20, not {self._rounds}")
            if self.stage2 == "ridge" and self.rounds[1] != 1:
                usual = "; with data, ridge is the default" if self.data else ""
                raise FedtctError(
                    f"stage2='ridge' takes one round: rounds must be N or N,1, not {self._rounds}"
                    f" (stage2='scaffold' takes many{usual})"
                )
        elif len(self.rounds) != 1:
            raise FedtctError(f"{self.method} has one stage: rounds must be one number, not {self._rounds}")

    @property
    def _rounds(self) -> str:
        return ",".join(map(str, self.rounds)) or "none"

    @property
    def needs_holdout(self) -> bool:
        """Whether a choice is made that needs held-out samples in every silo."""
        return bool(self.patience) or self.holdout_chooses_ridge

    @property
    def holdout_chooses_ridge(self) -> bool:
        """Whether held-out samples choose the strength of stage 2's ridge."""
        return self.method == "tct" and self.stage2 == "ridge" and self.ridge == "holdout"


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
