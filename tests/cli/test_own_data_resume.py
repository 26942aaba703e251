"""Runs on silos' own files that go on, or cannot: files that changed, that were moved, training that diverged."""

import shutil

import pytest
from hospitals import QUICK, patients, run

from fedtct.cli import main
from fedtct.runs.folder import RunFolder

RUN = ["run", "--data", "silos", "--target", "state", "--test", "test.csv", *QUICK, "--method", "fedavg"]


def begin_and_stop(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    """By Ctrl-C, before its first row."""

    def stop(self, row):
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(RunFolder, "record", stop)
        assert main([*RUN, *words, "--out", "a"]) == 130


@pytest.mark.parametrize("command", ["predict a --input test.csv", "export a"])
def test_of_a_run_that_diverged_nobody_is_told_to_go_on_with_it(command, folder, capsys):
    assert main(["run", "--data", "silos", "--target", "cost", *QUICK, "--lr", "1e6", "--out", "a"]) == 2
    capsys.readouterr()
    assert main(command.split()) == 2
    told = capsys.readouterr().err
    assert told.startswith("fedtct: a has no model: ")
    assert "stage 1 diverged" in told
    assert "resume" not in told


def test_a_run_that_goes_on_with_other_files_says_so(folder, capsys, monkeypatch):
    begin_and_stop(monkeypatch)
    patients(60, 9).to_csv("silos/north.csv", index=False)
    patients(30, 9).to_csv("test.csv", index=False)
    capsys.readouterr()
    assert main(["run", "--resume", "a"]) == 0
    told = "the files of the test data, north are not those that the run was started with: it continues with other data"
    assert told in " ".join(capsys.readouterr().err.split())


def test_a_run_goes_on_where_its_files_were_moved_to(folder, capsys, monkeypatch):
    begin_and_stop(monkeypatch)
    assert main([*RUN, "--out", "whole", "--json"]) == 0
    (folder / "elsewhere").mkdir()
    (folder / "silos").rename("elsewhere/tables")
    (folder / "test.csv").rename("elsewhere/t.csv")
    begun = (folder / "a" / "config.toml").read_text()
    (folder / "others").mkdir()
    for name in ("north", "west"):
        shutil.copy("elsewhere/tables/north.csv", f"others/{name}.csv")
    capsys.readouterr()
    moved = ["--test", "elsewhere/t.csv", "--json"]
    assert main(["run", "--resume", "a", "--data", "others", *moved]) == 2
    told = "others lacks 'south', which the run was started with and holds 'west', which the run was started without"
    assert f"{told}: give files their old names" in capsys.readouterr().err
    assert (folder / "a" / "config.toml").read_text() == begun
    assert main(["run", "--resume", "a", "--data", str(folder / "elsewhere" / "tables") + "/", *moved]) == 0
    assert "other data" not in capsys.readouterr().err
    there, again = ([row.test_accuracy for row in RunFolder.read(path).history] for path in ("whole", "a"))
    assert again == there
    assert RunFolder.read("a").config.test == "elsewhere/t.csv"


@pytest.mark.parametrize("rates", ["0.1", "0.1,0.01"])
def test_a_silo_whose_file_is_gone_is_named(rates, folder, capsys, monkeypatch):
    begin_and_stop(monkeypatch, "--lr", rates)
    (folder / "silos" / "north.csv").rename("north.csv")
    capsys.readouterr()
    assert main(["run", "--resume", "a"]) == 2
    assert "silos lacks 'north', which the run was started with: give files their old names" in capsys.readouterr().err


def test_what_is_wrong_in_several_files_is_said_at_once(folder, capsys):
    for name, rows in {"north": 60, "west": 60, "east": 20}.items():
        table = patients(rows, 0)
        table.loc[:1, "state"] = None
        table.to_csv(f"silos/{name}.csv", index=False)
    assert main(["run", "--data", "silos", "--target", "state"]) == 2
    told = "rows have no 'state' (empty, NA, None or null): fill it in, or drop these rows"
    assert capsys.readouterr().err.splitlines() == [
        f"fedtct: silos/east.csv: 2 of 20 {told}",
        f"silos/north.csv: 2 of 60 {told} (the same in west)",
    ]
    assert main(["run", "--data", "silos", "--target", "stat"]) == 2
    assert capsys.readouterr().err.count("has no column 'stat'") == 1


def test_files_of_ones_own_are_not_added_to_a_run_that_goes_on(folder, capsys):
    run(capsys, "--target", "state", "--out", "a")
    assert main(["run", "--resume", "a", "--test", "test.csv"]) == 2
    assert 'test was "", now it is "test.csv"' in capsys.readouterr().err
