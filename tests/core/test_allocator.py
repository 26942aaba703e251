"""Memory that a batch frees serves the next one."""

import platform

import pytest
import torch

from fedtct.allocator import KEPT_BLOCK, keep_freed_memory

PAGE = 4096


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_freed_blocks_are_taken_again_without_asking_the_system():
    import resource

    keep_freed_memory()
    size, rounds = 3 * KEPT_BLOCK // 4, 10  # glibc would give such blocks back at once
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        torch.empty(size, dtype=torch.uint8).fill_(1)
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert taken < rounds * size / PAGE / 2  # the first ones must be had
