"""A silo's cache: versions of its memory, features, damage, and its bound."""

import os
import stat
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError

from fedtct.deploy import cache as module
from fedtct.deploy.cache import RunCache, drop_old_runs
from fedtct.errors import FedtctError
from fedtct.files import ABANDONED_SECONDS, HALF

LIMIT = 100_000


def memory(value):
    return {"stage1": {"own": torch.full((3,), float(value))}}


def value_of(cache, position):
    found = cache.memory(position)
    return float(found["stage1"]["own"][0]) if found else None


def test_memory_is_that_of_the_last_round_that_counted_even_when_a_round_is_asked_again(tmp_path):
    cache = RunCache(tmp_path, "run", LIMIT)
    assert value_of(cache, -1) is None
    for position in range(4):
        assert value_of(cache, position - 1) == (None if position == 0 else position - 1)
        cache.remember(position, memory(position), last=position - 1)
    assert value_of(cache, 2) == 2  # round 3 again
    cache.remember(3, memory(33), last=2)
    assert value_of(cache, 3) == 33
    for late in (4, 5, 6):  # answers that came too late to count
        assert value_of(cache, 3) == 33
        cache.remember(late, memory(late), last=3)
    assert len(list(tmp_path.rglob("memory-*"))) == 2


@given(delays=st.lists(st.integers(0, 3), max_size=12))
def test_an_answer_that_came_too_late_takes_nothing_from_later_rounds_and_leaves_nothing(delays):
    with TemporaryDirectory() as folder:
        cache, last, under_way = RunCache(Path(folder), "run", LIMIT), -1, []
        for position, delay in enumerate([*delays, 0, 0, 0, 0, 0]):  # in rounds; in time, in the end
            assert value_of(cache, last) == (None if last < 0 else last)
            if delay:
                under_way.append((position + delay, position, last))
            else:
                cache.remember(position, memory(position), last)
                last = position
            for end, late, before in under_way:
                if end == position:
                    cache.remember(late, memory(late), before)
        assert sorted(cache._rounds()) == [last - 1, last]


def test_what_a_run_left_that_goes_on_from_an_earlier_round_is_never_taken(tmp_path):
    cache = RunCache(tmp_path, "run", LIMIT)
    for position in range(3):
        cache.remember(position, memory(position), last=position - 1)
    cache.remember(1, memory(11), last=0)
    assert value_of(cache, 1) == 11
    cache.remember(2, {}, last=1)  # this time there is nothing to remember
    assert value_of(cache, 2) is None


def test_what_a_killed_process_left_does_not_fill_the_cache(tmp_path):
    cache = RunCache(tmp_path, "run", LIMIT)
    cache.keep_features({"z": torch.zeros(10)}, {})
    for number in range(3):
        left = tmp_path / "run" / f"features.safetensors.0000000{number}{HALF}"
        left.write_bytes(bytes(LIMIT))
        os.utime(left, (time.time() - 2 * ABANDONED_SECONDS,) * 2)
    cache.keep_features({"z": torch.ones(10)}, {})
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["features.safetensors"]


def test_damaged_files_count_as_not_there(tmp_path):
    cache = RunCache(tmp_path, "run", LIMIT)
    cache.keep_features({"z": torch.ones(4, 4)}, {"recipe": "a"})
    assert cache.features()[1] == {"recipe": "a"}
    cache.remember(0, memory(0), -1)
    for file in (tmp_path / "run").iterdir():
        file.write_bytes(file.read_bytes()[:-5])
    assert cache.features() == ({}, {})
    assert cache.memory(0) == {}


def test_a_flipped_bit_is_noticed_in_every_byte_of_a_file(tmp_path):
    cache = RunCache(tmp_path, "run", LIMIT)
    cache.keep_features({"z": torch.ones(4).half(), "n": torch.tensor(3)}, {"recipe": "a"})
    (file,) = (tmp_path / "run").iterdir()
    whole = file.read_bytes()
    assert cache.features()[1] == {"recipe": "a"}
    for place in range(len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        assert cache.features() == ({}, {}), place


def test_only_its_owner_may_look_into_it(tmp_path):
    cache = RunCache(tmp_path / "cache", "run", LIMIT)
    before = os.umask(0)
    try:
        cache.remember(0, memory(0), -1)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "cache" / "run").stat().st_mode) == 0o700


def test_the_oldest_runs_make_room_and_the_bound_holds(tmp_path):
    for run in ("old", "older", "new"):
        RunCache(tmp_path, run, LIMIT).keep_features({"z": torch.zeros(8000)}, {})
        for file in (tmp_path / run).iterdir():
            os.utime(file, (time.time() - {"old": 100, "older": 200, "new": 0}[run],) * 2)
    assert {folder.name for folder in tmp_path.iterdir()} == {"old", "older", "new"}
    RunCache(tmp_path, "run", LIMIT).keep_features({"z": torch.zeros(8000)}, {})
    assert {folder.name for folder in tmp_path.iterdir()} == {"old", "new", "run"}
    with pytest.raises(FedtctError, match="raise cache_gb"):
        RunCache(tmp_path, "run", LIMIT).keep_features({"z": torch.zeros(30_000)}, {})


def test_runs_that_are_long_gone_are_removed_and_a_run_that_ends_leaves_nothing(tmp_path):
    def lose_a_run():
        RunCache(tmp_path, "lost", LIMIT).remember(0, memory(0), -1)
        for file in (tmp_path / "lost").iterdir():
            os.utime(file, (time.time() - 31 * 24 * 3600,) * 2)

    lose_a_run()
    cache = RunCache(tmp_path, "run", LIMIT)
    cache.remember(0, memory(0), -1)
    assert {folder.name for folder in tmp_path.iterdir()} == {"run"}
    lose_a_run()
    drop_old_runs(tmp_path)  # a silo starts
    drop_old_runs(tmp_path / "none")
    assert {folder.name for folder in tmp_path.iterdir()} == {"run"}
    cache.forget()
    assert not list(tmp_path.iterdir())


def test_files_of_another_run_may_vanish_as_they_are_counted(tmp_path):
    RunCache(tmp_path, "other", LIMIT).keep_features({"z": torch.zeros(8)}, {})
    (tmp_path / "other" / "memory-3.safetensors").symlink_to(tmp_path / "gone")  # listed, but not there
    cache = RunCache(tmp_path, "run", LIMIT)
    cache.keep_features({"z": torch.ones(8)}, {})
    assert torch.equal(cache.features()[0]["z"], torch.ones(8))


def test_a_disk_that_is_full_is_told_of_in_words(tmp_path, monkeypatch):
    def full(tensors, file, metadata):
        file.touch()
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(module, "save_file", full)
    with pytest.raises(FedtctError, match="cannot write to the silo's cache"):
        RunCache(tmp_path, "run", LIMIT).remember(0, memory(1), -1)
    assert not list((tmp_path / "run").iterdir())
