"""Data for federated training: silos' own files and tables, datasets by name and their split, and augmentation.

Its modules, each after those that it imports:

- texts and numbers: texts, numbers, numbers_as_texts, suspicious_numbers
- tables: tables, table_code, table_agreement
- samples of any form: samples, holding_out, copies, splits
- silos' own files: csv_lines, table_files, image_files, sources
- published datasets: dataset_files, cifar_files, layouts, class_names, datasets, fetch
- changes to samples in training: augment, pretext
"""

from fedtct.data.datasets import DATASETS, Dataset, Samples, load_dataset, resolve_data_dir
from fedtct.data.fetch import fetch, verify
from fedtct.data.splits import partition

__all__ = [
    "DATASETS",
    "Dataset",
    "Samples",
    "fetch",
    "load_dataset",
    "partition",
    "resolve_data_dir",
    "verify",
]
