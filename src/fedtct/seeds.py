"""Random draws that depend on their purpose, not on when they are made.

Every draw has its own generator, keyed by the run's seed and by words and numbers such as the round and the silo.
A resumed run therefore needs no generator state, and silos may answer in any order.
"""

import contextlib
import threading
import zlib
from collections.abc import Iterator

import numpy as np
import torch

CPU = torch.device("cpu")
_ALONE = threading.RLock()  # torch has one generator for all threads, which fits in several threads would share


def derive(seed: int, *key: str | int) -> int:
    """A seed of its own for each key."""
    words = [zlib.crc32(k.encode()) if isinstance(k, str) else k for k in key]
    return int(np.random.SeedSequence([seed, *words]).generate_state(1, np.uint64)[0] >> 1)


@contextlib.contextmanager
def seeded(seed: int, device: torch.device = CPU) -> Iterator[None]:
    """For a while torch's own generators, from which dropout and the like draw, start from a seed."""
    on_gpu = device.type == "cuda"
    with _ALONE, torch.random.fork_rng(devices=[device] if on_gpu else []):
        # Not torch.manual_seed: it looks for GPUs and keeps a stack trace, which takes two milliseconds.
        torch.default_generator.manual_seed(seed)
        if on_gpu:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)  # only this GPU's: others' would not be restored
        yield


def generator(seed: int, *key: str | int) -> torch.Generator:
    """A generator of its own for each key, on the CPU, so that it draws the same on every machine."""
    return torch.Generator().manual_seed(derive(seed, *key))
