"""One silo's tangent features: raw at first, then normalised, with the regression on them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedtct.hardware.memory import free_bytes
from fedtct.least_squares.closed_form import Decomposition, LocalRegression, local_regression
from fedtct.tangent import Moments, Normaliser, TangentMap, feature_rows, normalised

RAW_SHARE = 0.25  # of the memory that is left, for a silo's raw features
PIECE = 512  # samples


class LocalFeatures:
    """Features of the samples a silo trains on and of those it holds out; once normalised, with the regression."""

    def __init__(self, raw: Iterable[Tensor], held: Tensor, samples: int) -> None:
        self.raw, self.held, self.samples = raw, held, samples
        self.regression: LocalRegression | None = None

    @classmethod
    def build(cls, tangents: TangentMap, x: Tensor, held_x: Tensor) -> "LocalFeatures":
        """Features of these samples. Raw ones are kept only if there is plenty of memory, else computed twice."""
        batches = _Batches(tangents, x)
        room = RAW_SHARE * free_bytes(x.device)
        raw = list(batches) if 4 * len(x) * tangents.p <= room else batches
        return cls(raw, torch.cat(list(_Batches(tangents, held_x))), len(x))

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], targets: Tensor) -> "LocalFeatures":
        """The features that ``tensors`` gave, on the targets' device, so that nothing is computed again."""
        device, z = targets.device, tensors["z"]
        held = tensors["held"].to(device)
        if "q" not in tensors:
            return cls(_Pieces(z, device), held, len(z))
        features = cls((), held, len(z))
        z = z if z.device == device else feature_rows((len(z), z.shape[1]), z.dtype, device).copy_(z)
        decomposition = Decomposition(*(tensors[part].to(device) for part in Decomposition._fields))
        features.regression = local_regression(z, targets, decomposition)
        return features

    def tensors(self) -> dict[str, Tensor]:
        """Everything that another process needs to go on with these features."""
        if self.regression is None:
            return {"z": self._raw_rows(), "held": self.held}
        return {"z": self.regression.z, "held": self.held} | self.regression.decomposition._asdict()

    def _raw_rows(self) -> Tensor:
        """Raw features as one array in main memory, filled piece by piece so that no memory holds them twice."""
        rows = feature_rows((self.samples, self.held.shape[1]), self.held.dtype, torch.device("cpu"))
        at = 0
        for piece in self.raw:
            rows[at : at + len(piece)] = piece
            at += len(piece)
        return rows

    def moments(self) -> Moments:
        """The count, mean and squared deviations of the raw features."""
        return Moments.of(self.raw)

    def normalise(self, normaliser: Normaliser, targets: Tensor, *, many_steps: bool) -> None:
        """Normalised features take the place of the raw ones, and their regression on the targets is prepared."""
        z = normalised(self.raw, len(targets), normaliser)
        self.raw, self.held = (), normalised([self.held], len(self.held), normaliser)
        self.regression = local_regression(z, targets, many_steps=many_steps)


@dataclass(frozen=True)
class _Pieces:
    """Raw features in main memory, brought to the device some at a time."""

    z: Tensor
    device: torch.device

    def __iter__(self) -> Iterator[Tensor]:
        return (rows.to(self.device) for rows in self.z.split(PIECE))


@dataclass(frozen=True)
class _Batches:
    """Raw features that are computed anew at every iteration."""

    tangents: TangentMap
    x: Tensor

    def __iter__(self) -> Iterator[Tensor]:
        return self.tangents.batches(self.x)
