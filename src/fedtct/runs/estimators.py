"""A configuration's plain values as the estimator that they describe."""

from dataclasses import replace
from typing import Any

from fedtct.errors import FedtctError
from fedtct.importing import is_function_name
from fedtct.models import Model
from fedtct.privacy import noise_multiplier
from fedtct.runs.own import import_method
from fedtct.runs.settings import Settings
from fedtct.stage1 import Centralized, FedAdam, FedAvg, FedDyn, FedProx, Scaffold, Stage1
from fedtct.stage2 import ConjugateGradient, FedAvgRegression, GradientDescent, Ridge, ScaffoldRegression, Stage2
from fedtct.tangent import TangentFeatures
from fedtct.tct import TCT

SHARED = ("local_epochs", "batch_size", "lr", "weight_decay", "augment", "trainable", "seed", "evaluate_every", "clip")


def estimator(config: Settings, model: Model, num_classes: int | None = None) -> Stage1 | TCT:
    """The method that a configuration names, with all its settings."""
    stage1 = _stage1(config, model, num_classes)
    if config.method != "tct":
        return stage1
    if config.pretext != "none":  # then nothing is rated, nor waited for, before stage 2
        stage1 = replace(stage1, pretext=config.pretext, patience=None)
    return TCT(model, stage1, TangentFeatures(config.p, config.seed, config.normalize), _stage2(config))


def noise_of(config: Settings) -> float:
    """The noise that ``epsilon`` takes, in sensitivities; 0 without differential privacy."""
    return noise_multiplier(config.epsilon, config.delta, config.releases) if config.epsilon else 0.0


def _stage1(config: Settings, model: Model, num_classes: int | None) -> Stage1:
    shared = {name: getattr(config, name) for name in SHARED} | {
        "noise": noise_of(config),
        "rounds": config.rounds[0],
        "num_classes": num_classes,
        "init_weights": config.init_weights or None,
        "patience": config.patience or None,
    }
    match config.trained_by:
        case "fedprox":
            return FedProx(model, mu=config.mu, **shared)
        case "feddyn":
            return FedDyn(model, alpha=config.alpha, **shared)
        case "fedadam":
            return FedAdam(model, server_lr=config.server_lr, **shared)
        case "fedavg-last-layer":
            return FedAvg(model, **shared | {"trainable": "last-layer"})
        case own if is_function_name(own):
            return import_method(own, Stage1, shared, model)  # type: ignore[type-abstract]  # it asks what is one
    kinds: dict[str, type[Stage1]] = {"fedavg": FedAvg, "scaffold": Scaffold, "centralized": Centralized}
    return kinds[config.trained_by](model, **shared)


def _stage2(config: Settings) -> Stage2:
    if config.stage2 == "ridge":
        return Ridge(d=config.d, ridge=config.ridge, noise=noise_of(config))  # type: ignore[arg-type]  # it checks its words
    if config.epsilon:
        raise FedtctError(f"stage2='{config.stage2}' has no differential privacy: use stage2='ridge'")
    shared: dict[str, Any] = {
        "rounds": config.rounds[1],
        "lr": config.stage2_lr,
        "evaluate_every": config.evaluate_every,
        "patience": config.patience or None,
    }
    if is_function_name(config.stage2):
        settings = shared | {"steps": config.steps}
        return import_method(config.stage2, Stage2, settings)  # type: ignore[type-abstract]  # it asks what is one
    if config.stage2 == "conjugate-gradient":
        return ConjugateGradient(**{name: value for name, value in shared.items() if name != "lr"})
    if config.stage2 == "gradient-descent":
        return GradientDescent(**shared)
    kind = ScaffoldRegression if config.stage2 == "scaffold" else FedAvgRegression
    return kind(steps=config.steps, **shared)
