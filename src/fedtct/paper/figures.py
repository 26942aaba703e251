"""Every figure of the paper as data: panels, their curves, and the runs these show."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from fedtct.paper.protocol import GRID, Run, Tangent, Train
from fedtct.runs.settings import METHODS


@dataclass(frozen=True)
class Curve:
    """An accuracy by round."""

    label: str
    run: Run
    metric: str = "test"  # or "train"


@dataclass(frozen=True)
class Panel:
    """One picture of a figure."""

    title: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Figure:
    """A figure of the paper."""

    name: str
    title: str
    panels: tuple[Panel, ...]


FASHION, CIFAR10, CIFAR100 = "fashion-mnist", "cifar10", "cifar100"
MODELS = {FASHION: "simple-cnn", CIFAR10: "resnet18-bn", CIFAR100: "resnet18-bn"}
ABLATIONS = ((FASHION, "classes:2"), (CIFAR10, "classes:2"), (CIFAR100, "dirichlet:0.01"))
BASELINES = ("fedavg", "fedprox", "scaffold")
SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def train(
    dataset: str, split: str, method: str = "fedavg", *, init: str = "random", rates: tuple[float, ...] = GRID
) -> Train:
    """A run of the dataset's usual model."""
    return Train(dataset, MODELS[dataset], init, split, method, rates)


def both(label: str, run: Run) -> Iterable[Curve]:
    """Training and test accuracy."""
    return Curve(label, run, "train"), Curve(label, run)


def _figure1() -> Figure:
    def panel(title: str, model: str) -> Panel:
        runs = [
            (f"{METHODS[method].called}, {split}", Train(CIFAR10, model, "random", split, method))
            for method in ("fedavg", "scaffold")
            for split in ("classes:2", "dirichlet:0.1")
        ]
        return Panel(title, tuple(curve for label, run in runs for curve in both(label, run)))

    panels = (panel("linear model", "linear"), panel("ResNet-18", "resnet18-bn"))
    return Figure("figure1", "FedAvg and SCAFFOLD on a linear model and on ResNet-18 (CIFAR-10)", panels)


def _figure2() -> Figure:
    splits = ("dirichlet:0.1", "dirichlet:0.01", "dirichlet:0.001")

    def panel(title: str, runs: Iterable[tuple[str, Run]]) -> Panel:
        return Panel(title, tuple(curve for label, run in runs for curve in both(label, run)))

    panels = (
        panel("FedAvg", [(s, train(CIFAR100, s)) for s in splits]),
        panel("SCAFFOLD", [(s, train(CIFAR100, s, "scaffold")) for s in splits]),
        panel("TCT", [(s, Tangent(train(CIFAR100, s))) for s in splits]),
    )
    return Figure("figure2", "Accuracy by round on CIFAR-100", panels)


def _figure3() -> Figure:
    panels = []
    for dataset, split in ABLATIONS:
        network = train(dataset, split)
        curves = [Curve(f"TCT, M = {m}", Tangent(network, steps=m), "train") for m in (100, 1000)]
        for power in range(-5, 0):
            run = Tangent(network, solver="gradient-descent", lr=10.0**power, steps=1)
            curves.append(Curve(f"TCT-GD, lr 1e{power}", run, "train"))
        curves.append(Curve("FedAvg, lr 0.1", train(dataset, split, rates=(0.1,)), "train"))
        panels.append(Panel(f"{dataset}, {split}", tuple(curves)))
    return Figure("figure3", "Stage 2 against full-batch gradient descent", tuple(panels))


def _figure4() -> Figure:
    panels = []
    for dataset, split in ABLATIONS:
        network = train(dataset, split)
        curves = [
            Curve(f"{label}, M = {m}", Tangent(network, solver=solver, steps=m), "train")
            for label, solver in (("TCT", "scaffold"), ("TCT-FedAvg", "fedavg"))
            for m in (10, 100, 1000)
        ]
        panels.append(Panel(f"{dataset}, {split}", tuple(curves)))
    return Figure("figure4", "Stage 2 by SCAFFOLD against FedAvg", tuple(panels))


def _after(share: float) -> str:
    """TCT by the paper's T1."""
    return f"TCT from {round(100 * share)} % of stage 1"


def _figure5() -> Figure:
    network = train(CIFAR10, "classes:2")
    rounds = [(_after(s), Tangent(network, share=s)) for s in SHARES]
    normal = [
        ("normalised", Tangent(network)),
        *((f"not normalised, lr {lr:g}", Tangent(network, normalize=False, lr=lr)) for lr in (0.5, 0.1, 0.05, 0.01)),
    ]
    panels = (
        Panel("rounds of stage 1", tuple(c for label, run in rounds for c in both(label, run))),
        Panel("normalisation", tuple(Curve(label, run, "train") for label, run in normal)),
    )
    return Figure("figure5", "How long stage 1 is, and normalisation (CIFAR-10, classes:2)", panels)


def _figure6() -> Figure:
    panels = []
    for dataset, split in ABLATIONS[1:]:
        network = train(dataset, split)
        runs: list[tuple[str, Run]] = [(_after(s), Tangent(network, share=s)) for s in SHARES[1:]]
        runs += [(METHODS[method].called, train(dataset, split, method, rates=(0.1,))) for method in BASELINES]
        for metric in ("train", "test"):
            curves = tuple(Curve(label, run, metric) for label, run in runs)
            panels.append(Panel(f"{dataset}, {split}", curves))
    return Figure("figure6", "TCT from each length of stage 1 against the baselines", tuple(panels))


def _figure7() -> Figure:
    settings = (
        (CIFAR10, "classes:2"),
        (CIFAR10, "dirichlet:0.1"),
        (CIFAR100, "dirichlet:0.01"),
        (CIFAR100, "dirichlet:0.001"),
    )
    panels = []
    for dataset, split in settings:
        network = train(dataset, split, init="imagenet")
        curves = [*both("FedAvg", network), *both("TCT", Tangent(network))]
        panels.append(Panel(f"{dataset}, {split}", tuple(curves)))
    return Figure("figure7", "Accuracy by round from ImageNet weights", tuple(panels))


@cache
def figures() -> dict[str, Figure]:
    """All figures by name."""
    made = (_figure1(), _figure2(), _figure3(), _figure4(), _figure5(), _figure6(), _figure7())
    return {figure.name: figure for figure in made}
