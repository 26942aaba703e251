"""Keeps the memory that a batch frees for the next one, by a setting of the C library for the whole process."""

import contextlib
import ctypes
from functools import cache

# Options of glibc's mallopt, and what they are set to: blocks of a batch are smaller than the first.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
KEPT_BLOCK, KEPT = 2**26, 2**28


@cache
def keep_freed_memory() -> None:
    """Have the C library keep what a batch frees, instead of asking the system for it page by page each time."""
    with contextlib.suppress(OSError, TypeError, AttributeError):  # not glibc
        library = ctypes.CDLL(None)
        library.mallopt(MMAP_THRESHOLD, KEPT_BLOCK)
        library.mallopt(TRIM_THRESHOLD, KEPT)
