"""What the README prints runs as printed, and its numbers are those of results/."""

import json
import re

from doc_helpers import ROOT, blocks

from fedtct.paper.results import Results
from fedtct.paper.tables import cells

README = ROOT / "README.md"


def test_the_python_example_runs_and_tct_wins(capsys):
    (example,) = blocks(README, "python")
    assert len(example.strip().splitlines()) <= 12
    exec(compile(example, "README.md", "exec"), {})
    fedavg, tct = map(float, capsys.readouterr().out.split("\n")[0].split())
    assert tct > fedavg + 0.02


def test_links_lead_somewhere():
    for page in (README, ROOT / "CONTRIBUTING.md"):
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (ROOT / target).exists(), target


def test_accuracies_are_those_of_the_results():
    results = Results(ROOT / "results" / "paper")
    ours = {cell.key: found[0] for cell in cells("table2") if (found := results.of_cell(cell)) is not None}
    text = README.read_text(encoding="utf-8").replace("*", "")
    for method in ("fedavg", "fedprox", "scaffold", "tct"):
        (row,) = re.findall(rf"^\| {method}, [^|]*rounds \|(.*)\|$", text, re.IGNORECASE | re.MULTILINE)
        splits = ("classes:1", "classes:2", "dirichlet:0.1", "dirichlet:0.5")
        assert [float(cell) for cell in row.split("|")] == [
            round(ours[f"fashion-mnist/{split}/{method}"], 1) for split in splits
        ]
    assert f"All data in one place: {ours['fashion-mnist/pooled/centralized']:.1f}." in text


def test_seconds_are_those_of_the_benchmark():
    rows = json.loads((ROOT / "results" / "bench-peers.json").read_text(encoding="utf-8"))["rows"]
    wall = {row["what"]: row for row in rows if row["what"].startswith("wall time against ")}
    pfl, flower = (next(row for what, row in wall.items() if name in what) for name in ("pfl", "flwr"))
    said = f"{pfl['ours']:.1f} s here, {pfl['plain']:.1f} s in pfl and {flower['plain']:.1f} s in Flower's simulation"
    assert said in README.read_text(encoding="utf-8")
