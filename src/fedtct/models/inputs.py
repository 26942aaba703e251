"""The form of samples: pixels, numbers, tokens or a table's rows, and how they become what a network takes."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedtct.data.samples import as_inputs
from fedtct.data.table_code import TableCode
from fedtct.data.tables import is_table
from fedtct.errors import FedtctError


@dataclass(frozen=True)
class InputSpec:
    """What a sample looks like, and how raw pixels or a table's rows become the numbers a network sees."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    mean: tuple[float, ...] = ()  # per channel, of pixels scaled to [0, 1]; empty for data other than pixels
    std: tuple[float, ...] = ()
    table: TableCode | None = None

    @property
    def image_size(self) -> tuple[int, ...]:
        """Channels, height and width, to which images in files are brought; empty if samples are no images."""
        return self.shape if self.mean and len(self.shape) == 3 else ()

    def encode(self, samples: Any, whose: str = "x") -> Tensor:
        """Samples as a network takes them; refused if they are of another shape or kind than the silos'."""
        if self.table is not None:
            return self.table.encode(samples, whose)
        if is_table(samples):
            samples = samples.to_numpy()
            if samples.dtype == object:
                raise FedtctError(f"{whose} is a table with texts, but the model takes arrays of shape {self.shape}")
        x: Tensor = as_inputs(samples, whose)
        if tuple(x.shape[1:]) != self.shape:
            raise FedtctError(f"{whose}: samples have shape {tuple(x.shape[1:])}, expected {self.shape}")
        if x.dtype == torch.int64 and self.dtype.is_floating_point:
            return x.to(self.dtype)  # uint8 is not converted: it may be pixels, which silos have scaled
        if x.dtype != self.dtype:
            raise FedtctError(f"{whose}: samples are {x.dtype}, expected {self.dtype} as in training")
        return x

    def examples(self, count: int = 1) -> Tensor:
        """Made-up samples to try a model on: numbers from 0 to 1 (of whole numbers 0 alone), or any pixels."""
        drawn = torch.rand(count, *self.shape, generator=torch.Generator().manual_seed(0))
        return (drawn * 255 if self.dtype == torch.uint8 else drawn).to(self.dtype)

    def record(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "shape": list(self.shape),
            "dtype": str(self.dtype).removeprefix("torch."),
            "mean": list(self.mean),
            "std": list(self.std),
            "table": self.table and self.table.record(),
        }

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "InputSpec":
        """The inverse of ``record``, with checks: it may come from a server, and a user's function gets the shape."""
        table, dtype = record["table"], getattr(torch, record["dtype"], None)
        if not isinstance(dtype, torch.dtype):
            raise FedtctError(f"'{record['dtype']}' is not a number type")
        return cls(
            tuple(map(int, record["shape"])),
            dtype,
            tuple(map(float, record["mean"])),
            tuple(map(float, record["std"])),
            TableCode.from_record(table) if table else None,
        )
