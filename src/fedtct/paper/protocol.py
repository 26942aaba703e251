"""The runs of the paper's evaluation: what each is, and at which scale it is run."""

from __future__ import annotations

from dataclasses import dataclass, replace

STAGE2_LR, STEPS = 5e-5, 500
GRID = (0.1, 0.01, 0.001)  # learning rates of all stage-1 methods but FedAdam
FEDADAM_GRID = (10**-1, 10**-1.5, 10**-2, 10**-2.5, 10**-3)
HOLDOUT = 0.1  # of every silo's samples, where a learning rate is chosen


@dataclass(frozen=True)
class Scale:
    """How much of the paper's protocol is run."""

    name: str
    rounds: int  # of a baseline
    stage1: int  # rounds of TCT
    stage2: int
    grid: int  # rounds after which a learning rate is chosen
    central: int  # rounds, of local_epochs epochs each, of training on pooled data
    local_epochs: int = 5
    p: int = 100_000
    silos: int = 10
    limit: int = 0  # training samples, 0 for all
    dataset: str = ""  # stands in for the paper's
    model: str = ""  # likewise

    @property
    def central_grid(self) -> int:
        """Rounds after which the learning rate of central training is chosen: a fifth, too."""
        return max(2, self.central // 5)


SCALES = {
    scale.name: scale
    for scale in (
        Scale("full", rounds=200, stage1=100, stage2=100, grid=40, central=40),
        Scale("half", rounds=100, stage1=50, stage2=50, grid=20, central=20),
        Scale("tiny", 4, 2, 2, 2, 4, local_epochs=1, p=300, silos=3, limit=60, dataset="digits", model="mlp"),
    )
}
STAGE1_IS = {"full": "half"}  # TCT's stage 1 at one scale is FedAvg at another, whose rounds are its first


@dataclass(frozen=True)
class Train:
    """A network trained across silos, or centrally on all data (``split="pooled"``)."""

    dataset: str
    model: str
    init: str  # "random" or "imagenet"
    split: str
    method: str
    rates: tuple[float, ...] = GRID

    @property
    def name(self) -> str:
        """A name for files."""
        rate = f"-lr{self.rates[0]:.3g}" if len(self.rates) == 1 else ""
        return _file_name(self.dataset, self.model, self.init, self.split, self.method + rate)


@dataclass(frozen=True)
class Tangent:
    """Stage 2 on the tangent features of a network that FedAvg trained."""

    network: Train
    share: float = 1.0  # of stage 1's rounds after which features are taken: T1 / 100 of the paper
    normalize: bool = True
    solver: str = "scaffold"
    lr: float = STAGE2_LR
    steps: int = STEPS

    @property
    def name(self) -> str:
        """A name for files: what differs from the default is in it."""
        words = {"share": "t", "lr": "lr", "steps": "m"}
        changed = {w: v for field, w in words.items() if (v := getattr(self, field)) != getattr(Tangent, field)}
        changes = [f"-{word}{value:.4g}" for word, value in changed.items()]
        changes += [] if self.solver == "scaffold" else [f"-{self.solver}"]
        changes += [] if self.normalize else ["-raw"]
        return replace(self.network, method="tct" + "".join(changes)).name

    @property
    def features(self) -> tuple[Train, float, bool]:
        """What runs that share one set of features have in common."""
        return self.network, self.share, self.normalize


@dataclass(frozen=True)
class Retrain:
    """The last ``layers`` of a network's seven retrained centrally, the others frozen as they are."""

    network: Train
    layers: int
    trained: bool  # frozen layers from the FedAvg run, else random

    @property
    def name(self) -> str:
        """A name for files."""
        return replace(self.network, method=f"retrain{self.layers}-{'fedavg' if self.trained else 'random'}").name


Run = Train | Tangent | Retrain


def network_of(run: Run) -> Train:
    """The network that a run trains or starts from."""
    return run if isinstance(run, Train) else run.network


def _file_name(*parts: str) -> str:
    return "-".join(parts).replace(":", "")
