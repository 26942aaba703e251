"""The least loss on all silos' data together, which no stage-2 method can go below."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedtct.least_squares.closed_form import LocalRegression
from fedtct.least_squares.products import add_lower

COLUMNS = 4096  # features that are converted to float64 at a time
RANK = 1e-12  # eigenvalues below this share of the largest are rounding errors
WORTH = {"cpu": 2e11, "cuda": 2e13}  # multiplications that take seconds


def optimal_share(parts: Sequence[LocalRegression]) -> float | None:
    """The least squared error over all silos' samples, as a share of that of W = 0; none if it would take long."""
    samples, features = sum(part.n for part in parts), parts[0].p
    device = parts[0].z.device
    if min(samples, features) * samples * features > WORTH.get(device.type, 0.0):
        return None
    y = torch.cat([part.y for part in parts]).double()
    rest = _outside_rows(parts, y) if samples <= features else _outside_columns(parts, y)
    return max(rest, 0.0) / float(y.square().sum())


def _outside_rows(parts: Sequence[LocalRegression], y: Tensor) -> float:
    """|Y|² in directions of sample space that no W reaches: the null space of ZZᵀ."""
    gram = torch.zeros(len(y), len(y), dtype=torch.float64, device=y.device)
    for blocks in zip(*(part.z.split(COLUMNS, dim=1) for part in parts), strict=True):
        z = torch.cat([block.double() for block in blocks])
        add_lower(gram, z)
    if _all_reached(gram):
        return 0.0
    eigenvalues, q = torch.linalg.eigh(gram)
    return float((q[:, eigenvalues <= RANK * eigenvalues[-1]].T @ y).square().sum())


def _all_reached(gram: Tensor) -> bool:
    """Whether no eigenvalue counts as zero: Cholesky's decomposition tells sooner than the eigenvalues do."""
    less = gram - RANK * gram.trace() * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    return int(torch.linalg.cholesky_ex(less).info) == 0


def _outside_columns(parts: Sequence[LocalRegression], y: Tensor) -> float:
    """|Y|² less its part in the span of Z's columns, from ZᵀZ."""
    features = parts[0].p
    hessian = torch.zeros(features, features, dtype=torch.float64, device=y.device)
    cross = torch.zeros(features, y.shape[1], dtype=torch.float64, device=y.device)
    for part in parts:
        for rows, targets in zip(part.z.split(COLUMNS), part.y.split(COLUMNS), strict=True):
            z = rows.double()
            add_lower(hessian, z.T)
            cross.addmm_(z.T, targets.double())
    eigenvalues, q = torch.linalg.eigh(hessian)
    kept = eigenvalues > RANK * eigenvalues[-1]
    return float(y.square().sum() - ((q[:, kept].T @ cross).square() / eigenvalues[kept].unsqueeze(1)).sum())
