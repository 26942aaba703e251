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
    (tct,) = results.of(next(cell.run for cell in cells("table2") if cell.key == "cifar10/classes:2/tct"))
    fedavg = next(row for row in tct.record["rows"] if (row["stage"], row["round"]) == ("stage1", 100))
    assert (
        f"TCT has {ours['cifar10/classes:2/tct']:.1f} % with two classes a silo, where FedAvg has "
        f"{100 * fedavg['test_accuracy']:.1f} % after TCT's first 100 rounds, "
        f"and {ours['cifar10/dirichlet:0.1/tct']:.1f} % at Dirichlet 0.1."
    ) in text


def test_seconds_are_those_of_the_benchmark():
    rows = json.loads((ROOT / "results" / "bench-peers.json").read_text(encoding="utf-8"))["rows"]
    wall = {row["what"]: row for row in rows if row["what"].startswith("wall time against ")}
    pfl, flower = (next(row for what, row in wall.items() if name in what) for name in ("pfl", "flwr"))
    said = f"{pfl['ours']:.1f} s here, {pfl['plain']:.1f} s in pfl and {flower['plain']:.1f} s in Flower's simulation"
    assert said in README.read_text(encoding="utf-8")
    rows = json.loads((ROOT / "results" / "bench-h200.json").read_text(encoding="utf-8"))["rows"]
    resnet = next(row for row in rows if row["what"].startswith("resnet18-bn, 10 silos"))
    assert f"({round(resnet['ours'], -2):,.0f} images/s, ResNet-18)" in README.read_text(encoding="utf-8")
    assert round(resnet["ours"] / resnet["plain"]) == 10  # "ten times as fast"
