"""Data for federated training: datasets by name, their split over silos, and augmentation."""

from fedtct.data.augment import AUGMENTATIONS, crop_flip
from fedtct.data.datasets import DATASETS, Dataset, Samples, load_dataset, resolve_data_dir
from fedtct.data.fetch import fetch, verify
from fedtct.data.files import FileCheck
from fedtct.data.splits import parse_split, partition

__all__ = [
    "AUGMENTATIONS",
    "DATASETS",
    "Dataset",
    "FileCheck",
    "Samples",
    "crop_flip",
    "fetch",
    "load_dataset",
    "parse_split",
    "partition",
    "resolve_data_dir",
    "verify",
]
