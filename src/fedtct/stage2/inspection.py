"""What the report shows of stage 2: spectra, how close steps come to diverging, and the loss of the pooled optimum.

No algorithm needs it. Silos on other machines are not asked for it: only what they send anyway is known of them.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from fedtct.federation import Federation, LocalFederation
from fedtct.history import Finding
from fedtct.least_squares import RidgePath, optimal_share

RANKS = 120  # of a spectrum that are kept: enough for a curve


def inspect_steps(federation: Federation, largest: Mapping[str, float], lr: float, diverges_from: float) -> Finding:
    """What to show of a solver whose steps have size ``lr``; ``largest`` are the silos' largest eigenvalues by name."""
    found: Finding = {"step_size": lr, "diverges_from": diverges_from}
    found |= {"silos": list(largest), "largest_eigenvalues": list(largest.values())}
    if isinstance(federation, LocalFederation):
        parts = [silo.regression() for silo in federation.silos]
        if any(part.decomposition.is_known for part in parts):
            found["spectra"] = [spectrum(part.eigenvalues) for part in parts]
        found["optimal_share"] = optimal_share(parts)
    return found


def inspect_ridge(path: RidgePath, strength: float) -> Finding:
    """What to show of the exact solution: the pooled spectrum, and the strength that was taken."""
    return {"ridge": strength, "pooled_spectrum": spectrum(path.eigenvalues)}


def spectrum(eigenvalues: Tensor) -> dict[str, list[float]]:
    """The eigenvalues at some ranks, the largest first: more of them at the top, where the spectrum is steep."""
    count = len(eigenvalues)
    ranks = torch.logspace(0, 1, RANKS, base=float(count), dtype=torch.float64).round().long().unique()
    values = eigenvalues.flip(0)[ranks.clamp(1, count).to(eigenvalues.device) - 1]
    return {"ranks": ranks.tolist(), "eigenvalues": values.tolist()}
