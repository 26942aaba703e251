"""Federated learning that works when silos' data differ: train, convexify, train."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedtct.classifier import Classifier, Fit, NetworkClassifier, TangentClassifier
    from fedtct.data import Dataset, Samples, load_dataset, partition
    from fedtct.errors import FedtctError
    from fedtct.estimator import FederatedTangentClassifier, FederatedTangentRegressor
    from fedtct.federation import Federation, LocalFederation, Replies
    from fedtct.history import Checkpoint, History, Journal, Row, State
    from fedtct.models import Weights
    from fedtct.privacy import noise_multiplier
    from fedtct.runs.reading import read_runs
    from fedtct.silo import Silo
    from fedtct.stage1 import Centralized, FedAdam, FedAvg, FedDyn, FedProx, Scaffold, Stage1
    from fedtct.stage2 import (
        ConjugateGradient,
        FedAvgRegression,
        GradientDescent,
        IterativeRegression,
        Ridge,
        ScaffoldRegression,
        Stage2,
    )
    from fedtct.tangent import TangentFeatures, tangent_features
    from fedtct.tct import TCT

__version__ = "0.1.0"

# Where the public names live. They are imported when they are first used: torch takes a second or more, and a help
# screen or a mistyped command should not.
_HOMES = {
    "classifier": ("Classifier", "Fit", "NetworkClassifier", "TangentClassifier"),
    "data": ("Dataset", "Samples", "load_dataset", "partition"),
    "errors": ("FedtctError",),
    "estimator": ("FederatedTangentClassifier", "FederatedTangentRegressor"),
    "federation": ("Federation", "LocalFederation", "Replies"),
    "history": ("Checkpoint", "History", "Journal", "Row", "State"),
    "models": ("Weights",),
    "privacy": ("noise_multiplier",),
    "runs.reading": ("read_runs",),
    "silo": ("Silo",),
    "stage1": ("Centralized", "FedAdam", "FedAvg", "FedDyn", "FedProx", "Scaffold", "Stage1"),
    "stage2": (
        "ConjugateGradient",
        "FedAvgRegression",
        "GradientDescent",
        "IterativeRegression",
        "Ridge",
        "ScaffoldRegression",
        "Stage2",
    ),
    "tangent": ("TangentFeatures", "tangent_features"),
    "tct": ("TCT",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "TCT",
    "Centralized",
    "Checkpoint",
    "Classifier",
    "ConjugateGradient",
    "Dataset",
    "FedAdam",
    "FedAvg",
    "FedAvgRegression",
    "FedDyn",
    "FedProx",
    "FederatedTangentClassifier",
    "FederatedTangentRegressor",
    "Federation",
    "FedtctError",
    "Fit",
    "GradientDescent",
    "History",
    "IterativeRegression",
    "Journal",
    "LocalFederation",
    "NetworkClassifier",
    "Replies",
    "Ridge",
    "Row",
    "Samples",
    "Scaffold",
    "ScaffoldRegression",
    "Silo",
    "Stage1",
    "Stage2",
    "State",
    "TangentClassifier",
    "TangentFeatures",
    "Weights",
    "load_dataset",
    "noise_multiplier",
    "partition",
    "read_runs",
    "tangent_features",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'fedtct' has no attribute '{name}'")
    value = getattr(import_module(f"fedtct.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
