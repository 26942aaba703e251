"""Data for federated training: datasets by name, their split over silos, and augmentation."""

from fedtct.data.datasets import DATASETS, Dataset, Samples, load_dataset, resolve_data_dir
from fedtct.data.fetch import fetch, verify
from fedtct.data.splits import parse_split, partition

__all__ = [
    "DATASETS",
    "Dataset",
    "Samples",
    "fetch",
    "load_dataset",
    "parse_split",
    "partition",
    "resolve_data_dir",
    "verify",
]
