"""Checkpoints as files: tensors as safetensors, plain numbers in the header, replaced whole or not at all."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fedtct.errors import FedtctError
from fedtct.federation import Cost
from fedtct.files import replacing
from fedtct.history import Checkpoint

CHECKPOINTS = "checkpoints"  # a part of a run folder
HEADER = "checkpoint"
DOT = "."  # between the names of nested values; a dot in a name is written as %2E


def checkpoint_of(run: Path, stage: str) -> Path:
    """Where a run keeps a stage's checkpoint."""
    return run / CHECKPOINTS / f"{stage}.safetensors"


def write_checkpoint(path: Path, checkpoint: Checkpoint, rows: int) -> None:
    """Replace the checkpoint in a file; ``rows`` is how many rows of history come before it."""
    values = flatten({"state": checkpoint.state, "best": checkpoint.best, "silos": checkpoint.silos})
    # Clones, because safetensors refuses tensors that share memory.
    tensors = {k: v.detach().cpu().clone().contiguous() for k, v in values.items() if isinstance(v, Tensor)}
    header = {
        "round": checkpoint.round,
        "rows": rows,
        "finished": checkpoint.finished,
        "cost": asdict(checkpoint.cost),
        "plain": {k: v for k, v in values.items() if not isinstance(v, Tensor)},
    }
    try:
        with replacing(path) as half:
            # An R² may be −∞, which strict JSON lacks; but only Python reads this.
            save_file(tensors, half, metadata={HEADER: json.dumps(header)})
    except SafetensorError as error:  # also if the disk is full
        raise FedtctError(
            f"cannot write {path}; what was saved before is intact: free disk space and resume", error
        ) from error


def read_checkpoint(path: Path, device: torch.device) -> Checkpoint:
    """The checkpoint in a file."""
    header = read_header(path)
    with safe_open(path, framework="pt", device=str(device)) as file:
        values = {name: file.get_tensor(name) for name in file.keys()} | header["plain"]  # noqa: SIM118 (no mapping)
    nested = unflatten(values)
    return Checkpoint(
        round=header["round"],
        state=nested.get("state", {}),
        cost=_cost(header["cost"]),
        silos=nested.get("silos", {}),
        best=nested.get("best", {}),
        finished=header["finished"],
    )


def _cost(values: dict[str, Any]) -> Cost:
    """The cost as it was, with tuples, which JSON writes as lists."""
    return Cost(**values | {name: tuple(value) for name, value in values.items() if isinstance(value, list)})


def rows_at(path: Path) -> int:
    """How many rows of history come before a checkpoint."""
    return int(read_header(path)["rows"])


def read_header(path: Path) -> dict[str, Any]:
    """The plain part of a checkpoint."""
    try:
        with safe_open(path, framework="pt") as file:
            header: dict[str, Any] = json.loads(file.metadata()[HEADER])
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise FedtctError(f"{path} is damaged: delete it to resume from an earlier point ({error})") from error
    return header


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dicts as one, with names such as ``best.state.parameters``."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        name = name.replace("%", "%25").replace(DOT, "%2E")
        flat |= flatten(value, f"{prefix}{name}{DOT}") if isinstance(value, Mapping) else {prefix + name: value}
    return flat


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """What ``flatten`` was given, but for empty dicts."""
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        *path, last = map(unquote, name.split(DOT))
        inner = nested
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return nested
