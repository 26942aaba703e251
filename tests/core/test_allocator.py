"""Memory that a batch frees serves the next one."""

import platform
import subprocess
import sys

import pytest

# In a process of its own: page faults are counted for all threads of a process, and other tests leave some behind.
PROGRAM = """
from resource import RUSAGE_SELF, getrusage

import torch

from fedtct.hardware.allocator import KEPT_BLOCK, keep_freed_memory


def faults(rounds=100):
    before = getrusage(RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        torch.empty(3 * KEPT_BLOCK // 4, dtype=torch.uint8).fill_(1)
    return getrusage(RUSAGE_SELF).ru_minflt - before


given_back = faults()
keep_freed_memory()
print(given_back, faults())
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_freed_blocks_are_taken_again_without_asking_the_system():
    told = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
    given_back, kept = map(int, told.split())
    assert kept < given_back / 2  # the first ones ask: an aligned block does not fit into one just freed of its size
