"""Files are whole or not there, whoever else writes them at the same time."""

import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fedtct.files import ABANDONED_SECONDS, HALF, replacing, write_text


def test_of_writers_at_the_same_time_the_last_to_end_wins_with_all_that_it_wrote(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with replacing(path) as outer:
        outer.write_text("outer, ")
        with replacing(path) as inner:
            inner.write_text("inner")
        assert path.read_text() == "inner"
        with outer.open("a") as file:
            file.write("to its end")
    assert path.read_text() == "outer, to its end"
    assert list(tmp_path.iterdir()) == [path]


def test_one_that_fails_takes_nothing_from_the_others(tmp_path: Path) -> None:
    with replacing(tmp_path / "a") as whole:
        whole.write_text("whole")
        with pytest.raises(UnicodeEncodeError):
            write_text(tmp_path / "a", "\ud800")
    assert (tmp_path / "a").read_text() == "whole"
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]


def test_threads_may_write_one_file(tmp_path: Path) -> None:
    texts = [f"{number}" * 50_000 for number in range(8)]
    with ThreadPoolExecutor(len(texts)) as pool:
        list(pool.map(lambda text: write_text(tmp_path / "a", text), texts))
    assert (tmp_path / "a").read_text() in texts
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_who_may_read_it_is_as_of_any_new_file(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write_text(tmp_path / "a", "text")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o666 & ~mask


def test_what_killed_processes_left_is_removed_but_nothing_that_may_yet_become_whole(tmp_path: Path) -> None:
    def leave(name: str, age: float) -> Path:
        (tmp_path / name).write_text("text")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
        return tmp_path / name

    with replacing(tmp_path / "a") as half:
        half.write_text("text")
        name = half.name
    leave(name, 2 * ABANDONED_SECONDS)
    kept = [leave(f"of-another-{name}", 0), leave(f"mine{HALF}", 2 * ABANDONED_SECONDS)]
    write_text(tmp_path / "b", "text")
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "a", tmp_path / "b", *kept])
