"""Data for federated training: datasets by name, their split over silos, and augmentation."""

from fedtct.data.augment import AUGMENTATIONS, crop_flip
from fedtct.data.datasets import DATASETS, Dataset, Samples, load_dataset, resolve_data_dir
from fedtct.data.fetch import fetch, verify
from fedtct.data.files import FileCheck
from fedtct.data.splits import SPLIT_FORMS, partition

__all__ = [
    "AUGMENTATIONS",
    "DATASETS",
    "SPLIT_FORMS",
    "Dataset",
    "FileCheck",
    "Samples",
    "crop_flip",
    "fetch",
    "load_dataset",
    "partition",
    "resolve_data_dir",
    "verify",
]
