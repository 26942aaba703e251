"""The settings of a run: what a config.toml holds and what the command line sets.

A help screen reads them, and should not wait for torch: nothing here imports it.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fedtct.errors import FedtctError, check_known
from fedtct.importing import is_function_name
from fedtct.runs.toml import as_toml, parse_toml
from fedtct.runs.values import parse_value


class Method(NamedTuple):
    """A value of the setting ``method``."""

    called: str  # its name for people
    own: tuple[str, ...] = ()  # the settings that it alone reads
    trains_tct: bool = True  # whether it can be TCT's stage 1


class Solver(NamedTuple):
    """A value of the setting ``stage2``."""

    reads: tuple[str, ...] = ()  # the settings it reads, of those that not every stage 2 does
    rounds: int = 100  # by default


METHODS = {
    "fedavg": Method("FedAvg"),
    "fedprox": Method("FedProx", ("mu",)),
    "scaffold": Method("SCAFFOLD"),
    "feddyn": Method("FedDyn", ("alpha",)),
    "fedadam": Method("FedAdam", ("server_lr",)),
    "centralized": Method("Centralized", trains_tct=False),  # is not federated
    "fedavg-last-layer": Method("FedAvg, last layer", trains_tct=False),  # trains what TCT replaces
    "tct": Method("TCT", ("pretext", "p", "normalize", "stage1", "stage2"), trains_tct=False),
}
STAGE1 = tuple(name for name, method in METHODS.items() if method.trains_tct)
STAGE2 = {
    "scaffold": Solver(("steps", "stage2_lr")),
    "fedavg": Solver(("steps", "stage2_lr")),
    "conjugate-gradient": Solver(rounds=20),
    "gradient-descent": Solver(("stage2_lr",)),
    "ridge": Solver(("ridge", "d"), rounds=1),
}
OWN_STAGE2 = Solver(("steps", "stage2_lr"))  # the user's own, which may read what all rounds of steps do
MODELS = ("linear", "mlp", "simple-cnn", "resnet18-bn", "resnet18-gn")
MODEL_OF = {"digits": "mlp", "fashion-mnist": "simple-cnn", "cifar10": "resnet18-bn", "cifar100": "resnet18-bn"}
OWN = "own"  # the split of silos that bring their own data
ELSEWHERE = "elsewhere"  # the setting ``data`` of silos on other machines
HOLDOUT = 0.2  # of silos' own data, here and across machines
DELTA = 1e-5  # of differential privacy, here and across machines
OWN_DEFAULTS = {"holdout": HOLDOUT, "stage2": "ridge", "d": 1024}  # for few samples: honest scores, no exact fit


def setting(of: str, default: Any, text: str, metavar: str, *, rare: bool = False) -> Any:
    """A field with the line of help that the command line shows for it; of ``rare`` ones only with --help-all.

    ``of`` tells what changes with the setting: the data, the training of a network, the method, the draws, or only the
    machine.
    """
    return field(default=default, metadata={"help": text, "metavar": metavar, "of": of, "rare": rare})


of_data, of_training, of_method, of_draws, of_machine = (
    partial(setting, kind) for kind in ("data", "training", "method", "draws", "machine")
)


@dataclass(frozen=True)
class Settings:
    """All settings, with their defaults."""

    dataset: str = of_data("digits", "digits, fashion-mnist, cifar10, cifar100, module:function", "NAME")
    data_dir: str = of_machine("", "folder of datasets [$FEDTCT_DATA]", "DIR", rare=True)
    limit: int = of_data(0, "train on only N samples [0: all]", "N", rare=True)
    split: str = of_data("classes:2", "iid, classes:N or dirichlet:ALPHA", "SPLIT")
    split_seed: int | str = of_data("seed", "seed of the split only [as --seed]", "N", rare=True)
    silos: int = of_data(10, "how many silos", "N")
    data: str = of_data("", "your own data: a file or folder for each silo", "DIR")
    target: str = of_data("", "tables: the column to learn", "COLUMN")
    task: str = of_data("auto", "classification or regression", "NAME", rare=True)
    texts: tuple[str, ...] = of_data((), "tables: columns whose numbers are codes", "COLUMN[,COLUMN]", rare=True)
    ignore: tuple[str, ...] = of_data((), "tables: columns to leave out", "COLUMN[,COLUMN]", rare=True)
    group: str = of_data(
        "", "tables: whose a row is (patient, machine); groups are held out whole", "COLUMN", rare=True
    )
    test: str = of_data("", "your own test data, never trained on", "FILE")
    image_size: tuple[int, ...] = of_data(
        (), "image folders: scale to this height and width; 3,H,W: in colour", "H,W", rare=True
    )
    holdout: float = of_data(0.0, "share of samples each silo holds out [0; --data: 0.2]", "SHARE")
    method: str = of_method("tct", "tct, fedavg, ... (see above)", "NAME")
    model: str = of_training("mlp", "linear, mlp, simple-cnn, resnet18-bn or -gn, module:function", "NAME")
    rounds: tuple[int, ...] = of_method((100, 100), "rounds [200]; tct: of stage 1 and of stage 2 [100,100]", "N[,N]")
    per_round: int = of_method(0, "silos drawn for each round of stage 1 [0: all]", "N", rare=True)
    local_epochs: int = of_method(5, "epochs that a silo trains in a round", "N")
    batch_size: int = of_training(64, "samples in a training step", "N")
    lr: float = of_training(0.1, "learning rate; held-out samples choose between several", "LR[,LR]")
    weight_decay: float = of_training(1e-5, "weight decay", "X", rare=True)
    trainable: str = of_training("all", "all, last-layer or last:N", "PART", rare=True)
    augment: str = of_training("none", "none or crop-flip", "NAME")
    pretext: str = of_method(
        "none", "TCT: with rotations, stage 1 learns how images are turned, not labels", "NAME", rare=True
    )
    init_weights: str = of_training("", "a state dict to start from", "FILE", rare=True)
    patience: int = of_method(0, "stop after N rounds without a better score on held-out samples", "N")
    evaluate_every: int = of_method(1, "rate the model every N rounds", "N", rare=True)
    mu: float = of_method(0.01, "FedProx: proximal strength", "X", rare=True)
    alpha: float = of_method(0.01, "FedDyn: regularisation", "X", rare=True)
    server_lr: float = of_method(0.1, "FedAdam: the server's learning rate", "X", rare=True)
    p: int = of_method(100_000, "TCT: number of tangent features", "N")
    normalize: bool = of_method(True, "TCT: normalise the features", "", rare=True)
    stage1: str = of_method("fedavg", "TCT: stage 1: fedavg, scaffold, ... or module:Class", "NAME")
    stage2: str = of_method(
        "scaffold", "TCT: stage 2: scaffold, ridge, ... or module:Class [scaffold; --data: ridge]", "NAME"
    )
    steps: int = of_method(500, "TCT: local steps in a round of stage 2", "N", rare=True)
    stage2_lr: float | str = of_method("auto", "TCT: step size of stage 2, or auto", "LR", rare=True)
    ridge: float | str = of_method("gcv", "TCT: strength of ridge, or how to choose it: gcv or holdout", "X", rare=True)
    d: int = of_method(4096, "TCT: number of features for ridge [4096; --data: 1024]", "N", rare=True)
    epsilon: float = of_method(0.0, "differential privacy of every sample, with this epsilon [0: none]", "E")
    delta: float = of_method(DELTA, "the chance that differential privacy fails", "X", rare=True)
    clip: float = of_method(1.0, "norm that private updates of stage 1 are clipped to", "X", rare=True)
    seed: int = of_draws(0, "seed of every random draw: split, weights, training [0]", "N")
    device: str = of_machine("auto", "auto, cpu or cuda", "NAME")
    precision: str = of_training(
        "auto", "for networks: fp32, bf16 or auto (bf16 on a GPU, except for rows of numbers)", "NAME", rare=True
    )

    def __post_init__(self) -> None:
        for name in SETTINGS:
            object.__setattr__(self, name, as_value(name, getattr(self, name)))

    @property
    def trained_by(self) -> str:
        """The method that trains the network: TCT's stage 1, or the method itself."""
        return self.stage1 if self.method == "tct" else self.method

    @property
    def own_methods(self) -> list[str]:
        """The names of the user's own methods that the run uses."""
        stages = [self.stage1, self.stage2] if self.method == "tct" else [self.method]
        return [name for name in stages if is_function_name(name)]

    @property
    def full_method(self) -> str:
        """The method as it was typed; with TCT's stage 1 if that is not the default, and stage 2 if it is one's own."""
        return self._called(str)

    @property
    def method_name(self) -> str:
        """The method's name for people; of the user's own its class's."""
        return self._called(lambda name: METHODS[name].called if name in METHODS else name.partition(":")[2])

    def _called(self, named: Callable[[str], str]) -> str:
        if self.method != "tct":
            return named(self.method)
        after = "" if self.stage1 == SETTINGS["stage1"].default else f" after {named(self.stage1)}"
        by = f" by {named(self.stage2)}" if is_function_name(self.stage2) else ""
        return f"{named(self.method)}{after}{by}"

    @property
    def dealt_by(self) -> int:
        """The seed that decides which samples are dealt to which silo."""
        return self.split_seed if isinstance(self.split_seed, int) else self.seed

    @property
    def needs_holdout(self) -> bool:
        """Whether a choice is made that needs held-out samples in every silo."""
        return bool(self.patience) or self.holdout_chooses_ridge

    @property
    def holdout_chooses_ridge(self) -> bool:
        """Whether held-out samples choose the strength of stage 2's ridge."""
        return self.method == "tct" and self.stage2 == "ridge" and self.ridge == "holdout"

    @property
    def releases(self) -> int:
        """How many noisy replies a silo gives in the whole run."""
        return self.rounds[0] + (self.method == "tct")

    def to_toml(self) -> str:
        """All settings, a line each."""
        return "".join(f"{name} = {as_toml(value)}\n" for name, value in asdict(self).items())

    def differences(self, given: Mapping[str, Any]) -> list[str]:
        """Which of these settings differ from the ones here; where data and files are on the disk does not count."""
        theirs = {name: as_value(name, value) for name, value in given.items() if name != "data_dir"}
        moved = [name for name in ("data", "test") if theirs.get(name) and getattr(self, name)]
        return [name for name, value in theirs.items() if name not in moved and value != getattr(self, name)]


SETTINGS = {spec.name: spec for spec in fields(Settings)}


def settings_of(*kinds: str) -> list[str]:
    """The names of the settings of these kinds, one kind after another."""
    return [name for kind in kinds for name, spec in SETTINGS.items() if spec.metadata["of"] == kind]


def as_value(name: str, value: Any) -> Any:
    """A setting's value in its own type, from a TOML value or from text of the command line."""
    return parse_value(name, SETTINGS[name].type, value)


def check_names(given: Mapping[str, Any], where: str) -> None:
    """Refuse settings that do not exist, and say which one was probably meant."""
    for name, value in given.items():
        if isinstance(value, dict):
            raise FedtctError(
                f"{where} has an unknown section [{name}]: the only section is [server], in a deployment's run.toml"
            )
        check_known(name, SETTINGS, where)


def read_toml(path: str | Path) -> dict[str, Any]:
    """The settings in a file, checked by name."""
    values = parse_toml(Path(path))
    check_names(values, str(path))
    return values


def tct_rounds(stage2: str) -> tuple[int, int]:
    """The default numbers of rounds of TCT's two stages."""
    return 100, STAGE2.get(stage2, OWN_STAGE2).rounds
