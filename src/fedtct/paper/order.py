"""All runs of the paper, the most valuable first, as a GPU may be there for some minutes at a time."""

from fedtct.paper.figures import figures
from fedtct.paper.protocol import Run, Tangent, Train, network_of
from fedtct.paper.tables import cells

DATASETS = ("fashion-mnist", "cifar10", "cifar100")


def by_value() -> list[Run]:
    """Every run once; those that start from the same weights come together."""
    runs: list[Run] = [cell.run for cell in cells()]
    runs += [curve.run for figure in figures().values() for panel in figure.panels for curve in panel.curves]
    every = list(dict.fromkeys(runs))
    networks = list(dict.fromkeys(map(network_of, every)))
    return sorted(every, key=lambda run: (_rank(run), networks.index(network_of(run)), _detail(run)))


def _rank(run: Run) -> int:
    """Fashion-MNIST whole; TCT on each CIFAR, then Centralized; ImageNet's weights, table 1, GroupNorm; baselines."""
    network = network_of(run)
    if network.dataset == "fashion-mnist":
        return 0
    usual = (network.model, network.init) == ("resnet18-bn", "random")
    if usual and (isinstance(run, Tangent) or network.split == "pooled"):
        return 1 + 2 * DATASETS.index(network.dataset) + (network.split == "pooled")
    if network.init == "imagenet":
        return 10 + DATASETS.index(network.dataset)
    if not isinstance(run, Train | Tangent):
        return 20
    return 30 if network.model == "resnet18-gn" else 40


def _detail(run: Run) -> tuple[bool, float]:
    """TCT as it is before its variants, and these by the features they share."""
    if not isinstance(run, Tangent):
        return False, 0.0
    return run != Tangent(run.network), -run.share - run.normalize
