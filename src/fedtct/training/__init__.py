"""Training on one silo's data: the local update of stage 1, its corrections, and evaluation."""

from fedtct.training.corrections import Correction, FedDynCorrection, Memory, ScaffoldCorrection
from fedtct.training.evaluation import evaluate
from fedtct.training.local_update import Job, LocalPlan, local_update

__all__ = [
    "Correction",
    "FedDynCorrection",
    "Job",
    "LocalPlan",
    "Memory",
    "ScaffoldCorrection",
    "evaluate",
    "local_update",
]
