"""The page about one's own data, and the examples, run as printed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from doc_helpers import ROOT, blocks, commands

PAGE = ROOT / "docs" / "own-data.md"
EXAMPLES = ROOT / "examples"


def run(folder: Path, *words: str) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_from_four_silos_csvs_to_predictions_in_an_empty_folder(tmp_path: Path) -> None:
    run(tmp_path, str(EXAMPLES / "tabular" / "make_data.py"))
    printed = [run(tmp_path, "-m", "fedtct", *words) for words in commands(PAGE, "sh")]
    assert len(printed) == 4
    assert "calibrated on samples that silos held out" in printed[2]
    assert (tmp_path / "runs" / "hospitals" / "report.html").is_file()
    lines = (tmp_path / "diagnoses.csv").read_text().splitlines()
    assert lines[0] == "label,probability_asthma,probability_flu,probability_healthy"
    assert len(lines) == 241
    for block in blocks(PAGE, "python"):
        run(tmp_path, "-c", block)


@pytest.mark.parametrize("name", ["own_module", "vision_transformer", "tokens"])
def test_an_example_learns(name: str) -> None:
    last = run(EXAMPLES, f"{name}.py").splitlines()[0].split()[-1]
    assert float(last.rstrip("%")) > 80
