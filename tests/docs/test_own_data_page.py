"""The page about one's own data, and the examples, run as printed."""

import runpy
import sys
from pathlib import Path

import pytest
from doc_helpers import ROOT, blocks, commands, run, run_python

PAGE = ROOT / "docs" / "own-data.md"
EXAMPLES = ROOT / "examples"


def test_from_four_silos_csvs_to_predictions_in_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["make_data.py"])
    runpy.run_path(str(EXAMPLES / "tabular" / "make_data.py"), run_name="__main__")
    printed = [run(words, capsys) for words in commands(PAGE, "sh")]
    assert len(printed) == 4
    assert "calibrated on samples that silos held out" in printed[2]
    assert (tmp_path / "runs" / "hospitals" / "report.html").is_file()
    lines = (tmp_path / "diagnoses.csv").read_text().splitlines()
    assert lines[0] == "label,probability_asthma,probability_flu,probability_healthy"
    assert len(lines) == 241
    for block in blocks(PAGE, "python"):
        run_python(block)


@pytest.mark.parametrize("name", ["own_module", "vision_transformer", "tokens"])
def test_an_example_learns(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    last = capsys.readouterr().out.splitlines()[0].split()[-1]
    assert float(last.rstrip("%")) > 80
