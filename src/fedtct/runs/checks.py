"""What can be refused of settings before anything is loaded.

Nothing here imports torch, which takes seconds: whoever mistypes a command should not wait for it.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from fedtct.errors import FedtctError, check_not_negative, check_one_of, check_whole
from fedtct.importing import is_function_name
from fedtct.runs.settings import (
    METHODS,
    MODEL_OF,
    MODELS,
    OWN_DEFAULTS,
    SETTINGS,
    STAGE1,
    STAGE2,
    Settings,
    as_value,
    check_names,
    tct_rounds,
)
from fedtct.split_forms import parse_split


def completed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Given settings, with the defaults that depend on the dataset and the method."""
    check_names(given, "the configuration")
    method, stage2 = given.get("method", Settings.method), given.get("stage2", Settings.stage2)
    values = {
        "model": MODEL_OF.get(given.get("dataset", Settings.dataset), Settings.model),
        "rounds": tct_rounds(stage2) if method == "tct" else (200,),
        **given,
    }
    rounds = as_value("rounds", values["rounds"])
    if method == "tct" and stage2 == "ridge" and len(rounds) == 1:
        values["rounds"] = (*rounds, 1)
    return values


def rates(given: Mapping[str, Any]) -> list[Any]:
    """The learning rates among given settings, in a list or between commas."""
    lr = given.get("lr", Settings.lr)
    return list(lr) if isinstance(lr, list | tuple) else str(lr).split(",")


def check_given(runs: Iterable[Mapping[str, Any]]) -> None:
    """Check the settings of runs as they were typed; their data is not looked at."""
    for given in runs:
        usual = OWN_DEFAULTS if given.get("data") else {}
        for rate in rates(given):
            check(Settings(**completed({**usual, **given, "lr": rate})))


def check(settings: Settings) -> None:
    """Refuse what cannot work whatever the data is; methods check their own settings."""
    _check_name(settings, "method", METHODS, "module:Class")
    _check_name(settings, "stage1", STAGE1, "module:Class")
    _check_name(settings, "stage2", STAGE2, "module:Class")
    _check_name(settings, "model", MODELS, "module:function")
    if settings.epsilon and settings.own_methods:
        raise FedtctError("epsilon works with fedtct's own methods only: leave it out with a method of yours")
    if settings.data:
        _check_own(settings)
    else:
        _check_name(settings, "dataset", MODEL_OF, "module:function")
        parse_split(settings.split)
    check_whole(1, silos=settings.silos)
    check_whole(
        0,
        limit=settings.limit,
        per_round=settings.per_round,
        patience=settings.patience,
        seed=settings.seed,
        split_seed=settings.dealt_by,
    )
    check_not_negative(epsilon=settings.epsilon)
    if not 0 <= settings.holdout < 1:
        raise FedtctError(f"holdout is a share of the samples, from 0 to below 1, not {settings.holdout}")
    if isinstance(settings.split_seed, str) and settings.split_seed != "seed":
        raise FedtctError(f"split_seed must be a whole number or 'seed', it is '{settings.split_seed}'")
    if isinstance(settings.stage2_lr, str) and settings.stage2_lr != "auto":
        raise FedtctError(f"stage2_lr must be a number or 'auto', it is '{settings.stage2_lr}'")
    _check_rounds(settings)
    if settings.needs_holdout and not settings.holdout:
        raise FedtctError("patience and ridge='holdout' need held-out samples: set holdout, for example to 0.1")


def _check_name(settings: Settings, name: str, known: Collection[str], own: str) -> None:
    """Refuse a name that is not known, and is not that of something of the user's own."""
    if not is_function_name(getattr(settings, name)):
        check_one_of((*known, own), **{name: getattr(settings, name)})


def _check_own(settings: Settings) -> None:
    for name in ("limit", "split_seed"):
        if getattr(settings, name) != SETTINGS[name].default:
            raise FedtctError(f"{name} is for datasets that fedtct deals to silos, not for your own data: leave it out")


def _check_rounds(settings: Settings) -> None:
    told = ",".join(map(str, settings.rounds)) or "none"
    for number in settings.rounds:
        check_whole(0, rounds=number)
    if settings.method == "tct":
        if len(settings.rounds) != 2:
            raise FedtctError(f"tct has two stages: rounds must be two numbers such as 20,20, not {told}")
        if settings.stage2 == "ridge" and settings.rounds[1] != 1:
            usual = "; with data, ridge is the default" if settings.data else ""
            raise FedtctError(
                f"stage2='ridge' takes one round: rounds must be N or N,1, not {told}"
                f" (stage2='scaffold' takes many{usual})"
            )
    elif len(settings.rounds) != 1:
        raise FedtctError(f"{settings.method} has one stage: rounds must be one number, not {told}")
