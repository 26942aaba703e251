"""The pictures of docs/how-it-works.md and the numbers beside them: python docs/pictures.py (three minutes).

Pictures go to docs/images, numbers with settings, seed and machine to results/how-it-works.json.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, StrMethodFormatter
from sklearn.linear_model import RidgeClassifierCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

import fedtct
from fedtct.report.looks import COLOURS, QUIET
from fedtct.report.style import new_figure
from fedtct.runs.environment import environment
from fedtct.tangent import TangentMap

ROOT = Path(__file__).parents[1]
IMAGES, RESULTS = ROOT / "docs" / "images", ROOT / "results" / "how-it-works.json"
SEED = 0
SEEDS = range(5)
TEST_SEED = 1000  # test points are drawn anew
SPLITS = ("iid", "classes:2", "classes:1")
Numbers = dict[str, Any]


def percent(share: float) -> str:
    """A share as the page prints it."""
    return f"{100 * share:.1f} %"


# Where FedAvg fails: four silos, each with one arm of a spiral


def spiral(samples: int, seed: int) -> tuple[Tensor, Tensor]:
    """Points in the plane on four arms, a class each."""
    draws = torch.Generator().manual_seed(seed)
    y = torch.arange(samples) % 4
    radius = 0.1 + 0.9 * torch.rand(samples, generator=draws).sqrt()
    blur = 0.12 * torch.randn(samples, generator=draws) / (radius + 0.2)
    angle = 2 * math.pi * (y / 4 + 0.6 * radius) + blur
    return 2 * torch.stack([radius * angle.cos(), radius * angle.sin()], 1), y


def plane_network(seed: int) -> nn.Module:
    """A perceptron for points in the plane."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 4))


def fit_plane(method: str, seed: int, rounds: int = 60) -> fedtct.Classifier:
    """What a method makes of the plane when each silo has one class."""
    x, y = spiral(800, seed)
    shared: dict[str, Any] = {"batch_size": 32, "seed": seed}
    if method == "TCT":
        stage1 = fedtct.FedAvg(rounds=rounds // 2, **shared)
        stage2 = fedtct.ScaffoldRegression(rounds=rounds // 2, lr="auto")
        fitted: Any = fedtct.TCT(plane_network(seed), stage1, fedtct.TangentFeatures(3000, seed), stage2)
    else:
        kind: Any = {"FedAvg": fedtct.FedAvg, "SCAFFOLD": fedtct.Scaffold, "Centralized": fedtct.Centralized}[method]
        fitted = kind(plane_network(seed), rounds=rounds, **shared)
    model: fedtct.Classifier = fitted.fit([fedtct.Silo(x[y == k], y[y == k]) for k in range(4)]).model
    return model


def where_fedavg_fails() -> Numbers:
    """One class a silo: four methods, several seeds; the picture is of the first seed."""
    (x, y), shown = spiral(800, SEED), ("FedAvg", "TCT", "Centralized")
    models = {name: [fit_plane(name, seed) for seed in SEEDS] for name in (*shown, "SCAFFOLD")}
    accuracies = {
        name: [model.score(*spiral(2000, TEST_SEED + seed)) for seed, model in zip(SEEDS, fitted, strict=True)]
        for name, fitted in models.items()
    }
    with new_figure(11, 3.1) as figure:
        first, *others = figure.subplots(1, 4, sharex=True, sharey=True)
        draw_points(first, x, y, "four silos, a class each")
        for axes, name in zip(others, shown, strict=True):
            draw_regions(axes, models[name][0].predict)
            draw_points(axes, x[::5], y[::5], f"{name}: {percent(accuracies[name][0])}")
        save(figure, "where-fedavg-fails")
    return accuracies


def draw_points(axes: Axes, x: Tensor, y: Tensor, title: str) -> None:
    """Samples in the plane, coloured by class."""
    axes.scatter(x[:, 0], x[:, 1], c=[COLOURS[label] for label in y], s=7, linewidths=0)
    axes.set(xticks=[], yticks=[], aspect="equal")
    axes.set_title(title, fontsize=12)
    axes.spines[["left", "bottom"]].set_visible(False)


def draw_regions(axes: Axes, predict: Callable[[Tensor], Any]) -> None:
    """Which class each place of the plane is given."""
    line = torch.linspace(-2.2, 2.2, 200)
    classes = torch.as_tensor(predict(torch.cartesian_prod(line, line))).view(200, 200).T
    colours = ListedColormap(COLOURS[:4])
    axes.imshow(classes, origin="lower", extent=(-2.2, 2.2) * 2, cmap=colours, vmin=0, vmax=3, alpha=0.25, zorder=0)


# What tangent features see: the same linear regression on three views of the same points


def what_tangent_features_see() -> Numbers:
    """Ridge regression with all data in one place, on FedAvg's network after 30 rounds; FedAvg's own head beside it."""
    (x, y), test = spiral(800, SEED), spiral(2000, TEST_SEED + SEED)
    fedavg = fit_plane("FedAvg", SEED, rounds=30)
    assert isinstance(fedavg, fedtct.NetworkClassifier)
    network, hidden = fedavg.network, nn.Sequential(*list(fedavg.network.module.children())[:-1])
    tangents = TangentMap(fedavg.spec, fedtct.TangentFeatures(3000, SEED).recipe(network.weights()))
    views: dict[str, Callable[[Tensor], Tensor]] = {
        "the coordinates": lambda points: points,
        "the last hidden layer": lambda points: hidden(points).detach(),
        "tangent features": lambda points: tangents(points).detach(),
    }
    predictors: dict[str, Callable[[Tensor], Any]] = {"FedAvg's own head": fedavg.predict}
    for name, view in views.items():
        regression = make_pipeline(StandardScaler(), RidgeClassifierCV(alphas=[10.0**k for k in range(-3, 4)]))
        regression.fit(view(x), y)
        predictors[name] = lambda points, r=regression, v=view: torch.from_numpy(r.predict(v(points)))  # type: ignore[misc]
    accuracies = {name: float((predict(test[0]) == test[1]).double().mean()) for name, predict in predictors.items()}
    with new_figure(11, 3.1) as figure:
        for axes, name in zip(figure.subplots(1, 4, sharex=True, sharey=True), predictors, strict=True):
            draw_regions(axes, predictors[name])
            draw_points(axes, x[::5], y[::5], f"{name}:\n{percent(accuracies[name])}")
        save(figure, "tangent-features")
    return accuracies


# Stage 2 on one and the same network, with the data dealt in three ways


def silos(split: str) -> list[fedtct.Silo]:
    """The training digits, dealt to ten silos."""
    train = fedtct.load_dataset("digits").train
    parts = fedtct.partition(train.y, silos=10, split=split, seed=SEED)
    return [fedtct.Silo(train.x[part], train.y[part]) for part in parts]


def stage2_and_the_split(rounds: int = 200, features: int = 512) -> Numbers:
    """Training loss of the linear model by round: SCAFFOLD, FedAvg, and one round of sums."""
    network = fedtct.FedAvg("mlp", rounds=10, seed=SEED).fit(silos("classes:1")).model.network.module  # type: ignore[attr-defined]

    def losses(stage2: Any, split: str) -> list[float | None]:
        method = fedtct.TCT(network, fedtct.FedAvg(rounds=0), fedtct.TangentFeatures(features, SEED), stage2)
        return [row.train_loss for row in method.fit(silos(split)).history if row.stage == "stage2"]

    solvers = {
        "FedAvg": fedtct.FedAvgRegression(rounds=rounds, lr="auto"),
        "SCAFFOLD": fedtct.ScaffoldRegression(rounds=rounds, lr="auto"),
        "Ridge": fedtct.Ridge(d=features, ridge=1e-6),
    }
    curves = {name: {split: losses(solver, split) for split in SPLITS} for name, solver in solvers.items()}
    pooled = curves["Ridge"]["iid"][-1]
    with new_figure(10, 3.4) as figure:
        for axes, name in zip(figure.subplots(1, 2, sharey=True), ("FedAvg", "SCAFFOLD"), strict=True):
            for split, colour in zip(SPLITS, COLOURS, strict=False):
                axes.plot(curves[name][split], color=colour, label=split)
            axes.axhline(pooled, color=QUIET, ls=":", label="the optimum of the pooled data")
            axes.set(yscale="log", xlabel="rounds of stage 2", title=f"linear model by {name}")
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axes.yaxis.set_minor_formatter(NullFormatter())
            axes.set_yticks([0.1, 0.2, 0.5, 1])
            axes.grid(axis="y")
        figure.axes[0].set_ylabel("training loss over all silos")
        figure.axes[1].legend(loc="upper right")
        save(figure, "stage-2-and-the-split")
    return {f"{name}, {split}": loss[-1] for name, of in curves.items() for split, loss in of.items()}


def save(figure: Figure, name: str) -> None:
    """Write a picture."""
    figure.savefig(IMAGES / f"{name}.png", dpi=144, bbox_inches="tight", pad_inches=0.15)


def main() -> None:
    """All pictures and all numbers."""
    torch.set_num_threads(1)
    where = environment("cpu") | {"command": "python docs/pictures.py"}
    record: Numbers = {"environment": where, "seed": SEED, "settings": "as in docs/pictures.py"}
    for work in (where_fedavg_fails, what_tangent_features_see, stage2_and_the_split):
        record[work.__name__] = work()
        print(work.__name__, json.dumps(record[work.__name__], indent=2), flush=True)
    RESULTS.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
