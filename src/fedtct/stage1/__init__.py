"""Stage 1: federated optimisers of networks, a file each."""

from fedtct.stage1.base import Stage1
from fedtct.stage1.centralized import Centralized
from fedtct.stage1.fedadam import FedAdam
from fedtct.stage1.fedavg import FedAvg
from fedtct.stage1.feddyn import FedDyn
from fedtct.stage1.fedprox import FedProx
from fedtct.stage1.scaffold import Scaffold

__all__ = ["Centralized", "FedAdam", "FedAvg", "FedDyn", "FedProx", "Scaffold", "Stage1"]
