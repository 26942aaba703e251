"""--group: all rows of one patient are held out or none, on the command line."""

import numpy as np
import pandas as pd
import pytest
from hospitals import QUICK, patients

from fedtct.cli import main
from fedtct.runs.config import RunConfig
from fedtct.runs.folder import RunFolder
from fedtct.runs.jobs import prepare

ASKED = ["--data", "silos", "--target", "state", "--group", "patient", *QUICK]


@pytest.fixture
def owners(folder):
    """Of each silo whose its rows are, which has a column in its file; the test file has none."""
    found = {}
    for name, rows in (("north", 60), ("south", 40)):
        found[name] = np.arange(rows) // 3
        table = patients(rows, 0).assign(patient=[f"p{owner}" for owner in found[name]])
        table.to_csv(f"silos/{name}.csv", index=False)
    (folder / "silos" / "south.parquet").unlink()
    return found


def learnt_from(folder):
    """The ages that each silo of a run trains on: they are different in all rows."""
    return {silo.name: set(silo.x["age"]) for silo in prepare(RunFolder.read(folder).config).silos}


def test_runs_hold_out_whole_groups_and_know_it_when_read_again(owners, capsys):
    assert main(["run", *ASKED, "--out", "a", "--lr", "0.1,0.01", "--test", "test.csv"]) == 0
    for candidate in ("lr-0.1", "lr-0.01"):
        for name, ages in learnt_from(f"a/{candidate}").items():
            table = pd.read_csv(f"silos/{name}.csv")
            assert table["age"].isin(ages).groupby(owners[name]).nunique().eq(1).all()
            assert abs(len(table) - len(ages) - 0.2 * len(table)) <= 1
    run = RunFolder.read("a/lr-0.1")
    assert [column["name"] for column in run.agreement()["inputs"]["table"]["columns"]] == ["age", "town", "cost"]
    capsys.readouterr()
    assert main(["run", "--resume", "a/lr-0.1", "--group", "town"]) == 2
    assert 'group was "patient"' in capsys.readouterr().err
    for command in ("predict", "evaluate"):
        assert main([command, "a", "--input", "test.csv"]) == 0


def test_what_groups_cannot_be_is_said_before_any_work(owners, folder, capsys):
    bad = {
        "--group pat": "north.csv has no column 'pat', which is set as group. It has age, town, state, cost, patient",
        "--group state": "'state' is the target: group must be another column",
        "--group town --group patient": "--group is given twice",
        "--group town": "of 60 samples have no group",
    }
    for words, message in bad.items():
        assert main(["run", "--data", "silos", "--target", "state", *words.split(), "--out", "x"]) == 2
        assert message in capsys.readouterr().err
    assert main(["run", "--group", "patient"]) == 2
    assert "group is for your own data" in capsys.readouterr().err
    pd.read_csv("silos/south.csv").assign(patient=7).to_csv("silos/south.csv", index=False)
    assert main(["run", *ASKED]) == 2
    assert "south: all 40 samples are of one group" in capsys.readouterr().err
    np.savez("silos/east.npz", x=np.zeros((9, 3)), y=["ill"] * 9)
    assert main(["run", *ASKED]) == 2
    assert "east.npz is not a .csv or .parquet file and has no column 'patient'" in capsys.readouterr().err
    assert not (folder / "x").exists()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("first", [100_001, 2**62, "01"])
def test_the_columns_that_name_groups_hold_what_they_will(kind, first, owners, folder):
    for name, own in owners.items():
        ids = [f"{first}{owner}" for owner in own] if isinstance(first, str) else first + own
        table = patients(len(own), 0).assign(patient=ids)
        (folder / "silos" / f"{name}.csv").unlink()
        (table.to_csv if kind == "csv" else table.to_parquet)(f"silos/{name}.{kind}", index=False)
    config = RunConfig.of(data="silos", target="state", group="patient", texts="patient", rounds="1")
    for silo in prepare(config).silos:
        rows = patients(len(owners[silo.name]), 0)["age"].isin(set(silo.held_x["age"]))
        assert rows.groupby(owners[silo.name]).nunique().eq(1).all()
        assert len(silo.held_x) == rows.sum() > 0
