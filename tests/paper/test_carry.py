"""The runner's state travels in small files, and arrives as it was or not at all."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtct import FedtctError
from fedtct.cli import main
from fedtct.paper.carry import pack, unpack

NAMES = st.sampled_from(["a", "run/metrics.jsonl", "run/checkpoints/stage1.safetensors", "other/x.part"])


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@settings(max_examples=30)
@given(files=st.dictionaries(NAMES, st.binary(max_size=300), min_size=1), limit=st.integers(1, 120))
def test_what_was_packed_comes_back(tmp_path_factory, files, limit):
    folder = tmp_path_factory.mktemp("carry")
    for name, data in files.items():
        (folder / "state" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "state" / name).write_bytes(data)
    parts = pack(folder / "state", folder / "carried", limit)
    assert all(part.stat().st_size <= limit for part in parts)
    unpack(folder / "carried", folder / "back")
    assert contents(folder / "back") == files


def packed(tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "weights").write_bytes(bytes(range(100)))
    return pack(tmp_path / "state", tmp_path / "carried", 30)


def test_a_part_that_is_missing_is_noticed_before_anything_is_written(tmp_path):
    packed(tmp_path)[1].unlink()
    with pytest.raises(FedtctError, match="weights is incomplete: it has 3 of 4 parts"):
        unpack(tmp_path / "carried", tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_the_command_that_goes_on_names_all_it_needs(tmp_path, capsys):
    packed(tmp_path)
    assert main(["paper", "unpack", str(tmp_path / "carried"), str(tmp_path / "back")]) == 0
    assert f": fedtct paper run PART --state {tmp_path / 'back'}, with the same options" in capsys.readouterr().out


def test_nothing_is_written_over(tmp_path):
    packed(tmp_path)
    with pytest.raises(FedtctError, match="is there already"):
        unpack(tmp_path / "carried", tmp_path / "state")
    with pytest.raises(FedtctError, match="is not empty"):
        pack(tmp_path / "state", tmp_path / "carried")


@pytest.mark.parametrize("work", [pack, unpack])
def test_a_folder_that_is_not_there(work, tmp_path):
    with pytest.raises(FedtctError, match="is not a folder"):
        work(tmp_path / "none", tmp_path / "carried")
