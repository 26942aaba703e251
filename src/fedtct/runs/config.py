"""Everything about a run in plain values: what a config.toml holds and what the command line sets."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedtct.errors import FedtctError, check_known, check_not_negative, check_whole
from fedtct.runs.toml import as_toml, parse_toml
from fedtct.runs.values import parse_value

# torch takes seconds to import and a help screen should not: what needs it is imported where it is used.
if TYPE_CHECKING:
    from fedtct.models import Model
    from fedtct.stage1 import Stage1
    from fedtct.tct import TCT

METHODS = {  # with what people call them
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "scaffold": "SCAFFOLD",
    "feddyn": "FedDyn",
    "fedadam": "FedAdam",
    "centralized": "Centralized",
    "fedavg-last-layer": "FedAvg, last layer",
    "tct": "TCT",
}
STAGE2 = ("scaffold", "fedavg", "conjugate-gradient", "gradient-descent", "ridge")
STAGE2_ROUNDS = {"ridge": 1, "conjugate-gradient": 20}  # of the others 100
MODEL_OF = {"digits": "mlp", "fashion-mnist": "simple-cnn", "cifar10": "resnet18-bn", "cifar100": "resnet18-bn"}
OWN = "own"  # the split of silos that bring their own data
ELSEWHERE = "elsewhere"  # where the data of silos on other machines is
HOLDOUT = 0.2  # of silos' own data, here and across machines
DELTA = 1e-5  # of differential privacy, here and across machines
OWN_DEFAULTS = {"holdout": HOLDOUT, "stage2": "ridge", "d": 1024}  # for few samples: honest scores, no exact fit
NOT_IDENTITY = ("data_dir",)  # where the files lie does not change what a run computes


def setting(default: Any, text: str, metavar: str) -> Any:
    """A field with the line of help that the command line shows for it."""
    return field(default=default, metadata={"help": text, "metavar": metavar})


@dataclass(frozen=True)
class RunConfig:
    """A run: a dataset and how it is dealt to silos, or silos' own data, and the method that learns from them."""

    dataset: str = setting("digits", "digits, fashion-mnist, cifar10 or cifar100", "NAME")
    data_dir: str = setting("", "where datasets are [$FEDTCT_DATA]", "DIR")
    limit: int = setting(0, "train on so many samples only [0: all]", "N")
    split: str = setting("classes:2", "iid, classes:N or dirichlet:ALPHA", "SPLIT")
    silos: int = setting(10, "how many silos", "N")
    data: str = setting("", "your own data: a file or folder for each silo", "DIR")
    target: str = setting("", "of tables: the column that is to be learnt", "COLUMN")
    task: str = setting("auto", "classification or regression", "NAME")
    texts: tuple[str, ...] = setting((), "of tables: columns whose numbers are codes", "COLUMN[,COLUMN]")
    ignore: tuple[str, ...] = setting((), "of tables: columns to leave out", "COLUMN[,COLUMN]")
    test: str = setting("", "your own test data, only scored", "FILE")
    image_size: tuple[int, ...] = setting((), "of image folders: height and width to scale to", "H,W")
    holdout: float = setting(0.0, "share of samples a silo holds out [0; --data: 0.2]", "SHARE")
    method: str = setting("tct", "tct, fedavg, ... (see above)", "NAME")
    model: str = setting("mlp", "linear, mlp, simple-cnn, resnet18-bn or -gn, module:function", "NAME")
    rounds: tuple[int, ...] = setting((100, 100), "rounds [200]; for tct of stage 1 and 2 [100,100]", "N[,N]")
    local_epochs: int = setting(5, "epochs a silo trains in a round", "N")
    batch_size: int = setting(64, "samples in a step", "N")
    lr: float = setting(0.1, "learning rate; run chooses from several", "LR[,LR]")
    weight_decay: float = setting(1e-5, "weight decay", "X")
    trainable: str = setting("all", "all, last-layer or last:N", "PART")
    augment: str = setting("none", "none or crop-flip", "NAME")
    pretext: str = setting("none", "TCT: stage 1 learns how images are turned, not labels: rotations", "NAME")
    init_weights: str = setting("", "start from this state dict", "FILE")
    patience: int = setting(0, "stop after N rounds without a better holdout", "N")
    evaluate_every: int = setting(1, "rate the model every N rounds", "N")
    mu: float = setting(0.01, "FedProx's proximal strength", "X")
    alpha: float = setting(0.01, "FedDyn's regularisation", "X")
    server_lr: float = setting(0.1, "FedAdam's server learning rate", "X")
    p: int = setting(100_000, "TCT: tangent features", "N")
    normalize: bool = setting(True, "TCT: normalise the features", "")
    stage2: str = setting("scaffold", "TCT: scaffold, conjugate-gradient, ridge, ... [--data: ridge]", "NAME")
    steps: int = setting(500, "TCT: local steps in a round of stage 2", "N")
    stage2_lr: float | str = setting("auto", "TCT: step size of stage 2, or auto", "LR")
    ridge: float | str = setting("gcv", "TCT: ridge strength, gcv or holdout", "X")
    d: int = setting(4096, "TCT: features of ridge [4096; --data: 1024]", "N")
    epsilon: float = setting(0.0, "differential privacy of every sample [0: none]", "E")
    delta: float = setting(DELTA, "the chance that differential privacy fails", "X")
    clip: float = setting(1.0, "the norm that updates of stage 1 are clipped to", "X")
    seed: int = setting(0, "seed of the split, the weights, every draw", "N")
    device: str = setting("auto", "auto, cpu or cuda", "NAME")
    precision: str = setting("auto", "of networks: fp32, bf16, or auto, bf16 on a GPU but for rows of numbers", "NAME")

    def __post_init__(self) -> None:
        for spec in fields(self):
            object.__setattr__(self, spec.name, as_value(spec.name, getattr(self, spec.name)))
        self._check()

    @classmethod
    def of(cls, **given: Any) -> RunConfig:
        """A configuration from the settings that are given; the dataset and the method decide on some of the others."""
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

    def to_toml(self) -> str:
        """All settings, a line each."""
        return "".join(f"{name} = {as_toml(value)}\n" for name, value in asdict(self).items())

    def differences(self, given: Mapping[str, Any]) -> list[str]:
        """Which of these settings are not the ones here; where data lies is no difference."""
        names = [name for name in given if name not in NOT_IDENTITY]
        return [name for name in names if as_value(name, given[name]) != getattr(self, name)]

    def build(self, num_classes: int | None = None) -> Stage1 | TCT:
        """The estimator; a dataset has its number of classes even if some have no holder."""
        from fedtct.runs.estimators import estimator

        return estimator(self, self.network(), num_classes)

    def network(self) -> Model:
        """The model: a name that fedtct knows, or a function of the user's that makes one."""
        from fedtct.importing import import_function, is_function_name

        return import_function(self.model, Path.cwd()) if is_function_name(self.model) else self.model

    @property
    def releases(self) -> int:
        """How many noisy replies a silo gives in the whole run."""
        return self.rounds[0] + (self.method == "tct")

    @property
    def noise(self) -> float:
        """The noise that ``epsilon`` takes, in sensitivities; 0 without differential privacy."""
        from fedtct.privacy import noise_multiplier

        return noise_multiplier(self.epsilon, self.delta, self.releases) if self.epsilon else 0.0

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
        """The settings that this run takes no notice of, with what they are for."""
        stage2 = self.stage2 if self.method == "tct" else ""
        purposes = (
            ("method fedprox", self.method == "fedprox", ("mu",)),
            ("method feddyn", self.method == "feddyn", ("alpha",)),
            ("method fedadam", self.method == "fedadam", ("server_lr",)),
            ("method tct", bool(stage2), ("pretext", "p", "normalize", "stage2")),
            ("stage 2 by scaffold or fedavg", stage2 in ("scaffold", "fedavg"), ("steps",)),
            ("stage 2 in steps", stage2 not in ("", "ridge", "conjugate-gradient"), ("stage2_lr",)),
            ("stage 2 by ridge", stage2 == "ridge", ("ridge", "d")),
            (f"fewer features than ridge's d, {self.d}", stage2 != "ridge" or self.p < self.d, ("p",)),
            ("differential privacy, with epsilon", self.epsilon > 0, ("delta", "clip")),
        )
        return {name: purpose for purpose, served, names in purposes if not served for name in names}

    def _check(self) -> None:
        """Refuse what cannot work, before anything is loaded; the estimators check what is theirs."""
        from fedtct.data import DATASETS, parse_split
        from fedtct.data.sources import READING, TASKS
        from fedtct.importing import is_function_name
        from fedtct.models.registry import check_model_name
        from fedtct.runs.estimators import estimator

        own_method = is_function_name(self.method)
        if not own_method:
            _one_of("method", self.method, METHODS)
        elif self.epsilon:
            raise FedtctError("epsilon promises what fedtct's own methods send: leave it out with a method of yours")
        _one_of("stage2", self.stage2, STAGE2)
        _one_of("task", self.task, TASKS)
        if not is_function_name(self.model):
            check_model_name(self.model)
        if self.data:
            self._check_own()
        else:
            _one_of("dataset", self.dataset, list(DATASETS))
            parse_split(self.split)
            for name in ("test", *READING):
                if getattr(self, name) != SETTINGS[name].default:
                    raise FedtctError(f"{name} is for your own data: give that, with data, or leave {name} out")
        check_whole(1, silos=self.silos)
        check_whole(0, limit=self.limit, patience=self.patience, seed=self.seed)
        check_not_negative(epsilon=self.epsilon)
        if not 0 <= self.holdout < 1:
            raise FedtctError(f"holdout is a share of the samples, from 0 to below 1, not {self.holdout}")
        if isinstance(self.stage2_lr, str) and self.stage2_lr != "auto":
            raise FedtctError(f"stage2_lr must be a number or 'auto', it is '{self.stage2_lr}'")
        self._check_rounds()
        if self.needs_holdout and not self.holdout:
            raise FedtctError("patience and ridge='holdout' judge by held-out samples: set holdout, to 0.1 say")
        if not own_method:  # a run that is over can be looked at where its method and model cannot be imported
            estimator(self, "linear")

    def _check_own(self) -> None:
        if self.limit:
            raise FedtctError("limit is for datasets that are dealt: your own data is used whole")
        if self.image_size and (len(self.image_size) != 2 or min(self.image_size) < 1):
            raise FedtctError("image_size must be a height and a width such as 32,32")

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
        chooses = self.method == "tct" and self.stage2 == "ridge" and self.ridge == "holdout"
        return bool(self.patience) or chooses


def tct_rounds(stage2: str) -> tuple[int, int]:
    """As many as TCT's two stages have if nobody says."""
    return 100, STAGE2_ROUNDS.get(stage2, 100)


def method_name(method: str) -> str:
    """What people call a method; one of the user's own as its class is called."""
    return METHODS[method] if method in METHODS else method.partition(":")[2]


def warn_of_unread(configs: Iterable[RunConfig], typed: Iterable[str]) -> None:
    """Say so if somebody typed a setting that none of the runs reads: what it was to change stays as it is."""
    unread = [config.unread() | _unread_by_files(config) for config in configs]
    for name in typed:
        if all(name in found for found in unread):
            flag = "--" + name.replace("_", "-")
            warnings.warn(f"{flag} is for {unread[0][name]}: nothing here reads it", stacklevel=2)


def _unread_by_files(config: RunConfig) -> dict[str, str]:
    from fedtct.data.sources import unread

    if not config.data:
        return {}
    return unread([*Path(config.data).iterdir(), *([Path(config.test)] if config.test else [])])


def own_data(given: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run on silos' own data: the folder decides on those that a dataset would be dealt by."""
    from fedtct.data.sources import silo_paths

    if given.get("split") == OWN and "silos" in given:
        return given  # decided on before: a run that is over can be looked at where its data is not
    folder = Path(str(given["data"]))
    decided = {"dataset": folder.resolve().name, "split": OWN, "silos": len(silo_paths(folder))}
    if other := [name for name in decided if name in given and as_value(name, given[name]) != decided[name]]:
        raise FedtctError(
            f"data is given, and so {other[0]} is {decided[other[0]]!r}, not {given[other[0]]!r}: leave it out"
        )
    return OWN_DEFAULTS | given | decided


SETTINGS = {spec.name: spec for spec in fields(RunConfig)}


def as_value(name: str, value: Any) -> Any:
    """A setting as its type says, from a TOML value or from text of the command line."""
    return parse_value(name, str(SETTINGS[name].type), value)


def _one_of(what: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        raise FedtctError(f"unknown {what} '{name}'. Known: {', '.join(known)}")


def check_names(given: Mapping[str, Any], where: str) -> None:
    """Refuse settings that do not exist, and say which one was probably meant."""
    for name, value in given.items():
        if isinstance(value, dict):
            raise FedtctError(
                f"{where} has an unknown section [{name}]: there is none but [server], in the run.toml of a deployment"
            )
        check_known(name, SETTINGS, where)


def read_toml(path: str | Path) -> dict[str, Any]:
    """The settings in a file, checked by name."""
    values = parse_toml(Path(path))
    check_names(values, str(path))
    return values
