"""Training on one silo's data: the local update of stage 1, its corrections, and evaluation."""

from fedtct.training.corrections import Memory, ScaffoldCorrection, correction_of
from fedtct.training.evaluation import evaluate
from fedtct.training.frozen import Frozen, split_trained, trains_head_alone
from fedtct.training.local_update import LocalJob, LocalPlan, local_update

__all__ = [
    "Frozen",
    "LocalJob",
    "LocalPlan",
    "Memory",
    "ScaffoldCorrection",
    "correction_of",
    "evaluate",
    "local_update",
    "split_trained",
    "trains_head_alone",
]
