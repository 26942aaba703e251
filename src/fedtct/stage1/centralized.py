"""Centralized: all silos' data in one place, the bound that federated methods are held against."""

from dataclasses import dataclass
from typing import ClassVar

from fedtct.stage1.fedavg import FedAvg


@dataclass(frozen=True)
class Centralized(FedAvg):
    """Plain SGD on the pooled data: FedAvg with a single silo that holds everything. Nothing is communicated."""

    takes_noise: ClassVar[bool] = False
    pooled: ClassVar[bool] = True
