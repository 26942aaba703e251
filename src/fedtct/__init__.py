"""Federated learning that works when silos' data differ: train, convexify, train."""

from fedtct.classifier import Classifier, Fit, NetworkClassifier, TangentClassifier
from fedtct.data import Dataset, Samples, load_dataset, partition
from fedtct.errors import FedtctError
from fedtct.federation import Federation, LocalFederation
from fedtct.history import History, Journal, Row
from fedtct.silo import Silo
from fedtct.stage1 import Centralized, FedAdam, FedAvg, FedDyn, FedProx, Scaffold
from fedtct.stage2 import FedAvgRegression, GradientDescent, Ridge, ScaffoldRegression
from fedtct.tangent import TangentFeatures, tangent_features
from fedtct.tct import TCT

__version__ = "0.1.0"

__all__ = [
    "TCT",
    "Centralized",
    "Classifier",
    "Dataset",
    "FedAdam",
    "FedAvg",
    "FedAvgRegression",
    "FedDyn",
    "FedProx",
    "Federation",
    "FedtctError",
    "Fit",
    "GradientDescent",
    "History",
    "Journal",
    "LocalFederation",
    "NetworkClassifier",
    "Ridge",
    "Row",
    "Samples",
    "Scaffold",
    "ScaffoldRegression",
    "Silo",
    "TangentClassifier",
    "TangentFeatures",
    "load_dataset",
    "partition",
    "tangent_features",
]
