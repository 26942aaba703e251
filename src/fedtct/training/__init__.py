"""Training on one silo's data: the local update of stage 1, its corrections, and evaluation."""

from fedtct.training.corrections import Memory, ScaffoldCorrection, correction_of
from fedtct.training.evaluation import evaluate
from fedtct.training.frozen import Frozen, apart, head_alone
from fedtct.training.local_update import LocalJob, LocalPlan, local_update

__all__ = [
    "Frozen",
    "LocalJob",
    "LocalPlan",
    "Memory",
    "ScaffoldCorrection",
    "apart",
    "correction_of",
    "evaluate",
    "head_alone",
    "local_update",
]
