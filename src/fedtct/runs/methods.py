"""Makes the method that a configuration's plain values describe: fedtct's, or the user's own as module:Class."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from fedtct.errors import FedtctError
from fedtct.importing import import_function, is_function_name
from fedtct.models import Model
from fedtct.privacy import noise_multiplier
from fedtct.runs.settings import METHODS, OWN_STAGE2, STAGE2, Settings
from fedtct.stage1 import Centralized, FedAdam, FedAvg, FedDyn, FedProx, Scaffold, Stage1
from fedtct.stage2 import ConjugateGradient, FedAvgRegression, GradientDescent, Ridge, ScaffoldRegression, Stage2
from fedtct.tangent import TangentFeatures
from fedtct.tct import TCT

KINDS: dict[str, type[Stage1]] = {
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "scaffold": Scaffold,
    "feddyn": FedDyn,
    "fedadam": FedAdam,
    "centralized": Centralized,
    "fedavg-last-layer": FedAvg,
}
SOLVERS: dict[str, type[Stage2]] = {
    "scaffold": ScaffoldRegression,
    "fedavg": FedAvgRegression,
    "conjugate-gradient": ConjugateGradient,
    "gradient-descent": GradientDescent,
    "ridge": Ridge,
}
SHARED = ("local_epochs", "batch_size", "lr", "weight_decay", "augment", "trainable", "seed", "evaluate_every", "clip")

Stage = TypeVar("Stage", Stage1, Stage2)


def build_method(config: Settings, model: Model, num_classes: int | None = None) -> Stage1 | TCT:
    """The method that a configuration names, with all its settings."""
    stage1 = _stage1(config, model, num_classes)
    if config.method != "tct":
        return stage1
    if config.pretext != "none":  # such a stage 1 rates nothing, so patience has nothing to go by
        stage1 = replace(stage1, pretext=config.pretext, patience=None)
    return TCT(model, stage1, TangentFeatures(config.p, config.seed, config.normalize), _stage2(config))


def noise_of(config: Settings) -> float:
    """The noise that ``epsilon`` takes, in sensitivities; 0 without differential privacy."""
    return noise_multiplier(config.epsilon, config.delta, config.releases) if config.epsilon else 0.0


def _stage1(config: Settings, model: Model, num_classes: int | None) -> Stage1:
    name = config.trained_by
    settings = {shared: getattr(config, shared) for shared in SHARED} | {
        "noise": noise_of(config),
        "rounds": config.rounds[0],
        "num_classes": num_classes,
        "init_weights": config.init_weights or None,
        "patience": config.patience or None,
    }
    if is_function_name(name):
        return _import_method(name, Stage1, settings, model)  # type: ignore[type-abstract]  # it asks what is one
    settings |= {own: getattr(config, own) for own in METHODS[name].own}
    if name == "fedavg-last-layer":
        settings["trainable"] = "last-layer"
    return KINDS[name](model, **settings)


def _stage2(config: Settings) -> Stage2:
    name = config.stage2
    read = {own.removeprefix("stage2_"): getattr(config, own) for own in STAGE2.get(name, OWN_STAGE2).reads}
    if name == "ridge":
        return Ridge(**read, noise=noise_of(config))
    if config.epsilon:
        raise FedtctError(f"stage2='{name}' has no differential privacy: use stage2='ridge'")
    settings = read | {
        "rounds": config.rounds[1],
        "evaluate_every": config.evaluate_every,
        "patience": config.patience or None,
    }
    if is_function_name(name):
        return _import_method(name, Stage2, settings)  # type: ignore[type-abstract]  # it asks what is one
    return SOLVERS[name](**settings)


def _import_method(name: str, kind: type[Stage], settings: Mapping[str, Any], *model: Any) -> Stage:
    """The user's own method with a run's settings: from a class, or from a function that makes one."""
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
        raise FedtctError(f"{name} does not work with {given} {', '.join(taken)}", error) from error
    _check_kind(name, type(made), kind)
    return made  # type: ignore[no-any-return]  # it was checked


def _fixed(make: object) -> set[str]:
    """The settings that a class has fixed itself, as GradientDescent its one step a round."""
    return {spec.name for spec in fields(make) if not spec.init} if is_dataclass(make) else set()


def _check_kind(name: str, found: type, kind: type) -> None:
    if not issubclass(found, kind):
        raise FedtctError(
            f"{name} is not a method: it must be, or return, a fedtct.{kind.__name__}, not {found.__name__}"
        )
