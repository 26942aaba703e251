"""What the README prints runs as printed, and its numbers are those of results/."""

import json
import re
from statistics import fmean

from doc_helpers import ROOT, blocks

from fedtct.paper.figures import figures
from fedtct.paper.results import Results
from fedtct.paper.tables import cells

README = ROOT / "README.md"
SPLITS = ("classes:1", "classes:2", "dirichlet:0.1", "dirichlet:0.5")
CIFAR100_SPLITS = tuple(f"dirichlet:{alpha}" for alpha in (0.001, 0.01, 0.1, 0.5))


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
    runs = {cell.key: found[0] for cell in cells("table2") if (found := results.of(cell.run))}
    ours = {key: round(fmean(result.last_rounds()), 1) for key, result in runs.items()}
    text = README.read_text(encoding="utf-8").replace("*", "")
    fashion, cifar10, cifar100 = re.split("CIFAR-10, ResNet-18|CIFAR-100, likewise", text)

    def shown(text: str, method: str) -> list[float]:
        (row,) = re.findall(rf"^\| {method}, [^|]*rounds \|(.*)\|$", text, re.IGNORECASE | re.MULTILINE)
        return [float(cell) for cell in row.split("|")]

    for method in ("fedavg", "fedprox", "scaffold", "tct"):
        assert shown(fashion, method) == [ours[f"fashion-mnist/{split}/{method}"] for split in SPLITS]
    for part, dataset, splits in ((cifar10, "cifar10", SPLITS), (cifar100, "cifar100", CIFAR100_SPLITS)):
        for method in ("fedprox", "scaffold", "tct"):
            assert shown(part, method) == [ours[f"{dataset}/{split}/{method}"] for split in splits]
        stages1 = [runs[f"{dataset}/{split}/tct"].stage1() for split in splits]
        assert shown(part, "fedavg") == [round(fmean(result.last_rounds()), 1) for result in stages1]
        given = [runs[f"{dataset}/{split}/{method}"] for split in splits for method in ("fedprox", "scaffold", "tct")]
        assert {result.record["lr_given"] for result in given} == {0.1}
    for part, dataset in ((fashion, "fashion-mnist"), (cifar10, "cifar10"), (cifar100, "cifar100")):
        assert f"ll data in one place: {ours[f'{dataset}/pooled/centralized']:.1f}." in part
    second = {
        c.key: round(fmean(r.last_rounds()), 1) for c in cells("table2") for r in results.of(c.run) if r.seed == 1
    }
    fedavg, tct = ([second[f"fashion-mnist/{split}/{m}"] for split in SPLITS[:2]] for m in ("fedavg", "tct"))
    told = f"gave FedAvg {fedavg[0]} and {fedavg[1]}, TCT {tct[0]} and {tct[1]}."
    assert told in fashion
    assert len(second) == len(fedavg) + len(tct)  # as the table says of all others
    (untrained,) = results.of(next(c.run for c in figures()["figure5"].panels[0].curves if "0" in c.label))
    assert f"random weights' features have {untrained.accuracy():.1f}" in cifar10
    (shorter,) = results.of(next(c.run for c in figures()["figure6"].panels[1].curves if "60 %" in c.label))
    assert (
        f"With 60 + 40 rounds, in all as many as the baselines had, TCT reaches {shorter.accuracy(40):.1f}" in cifar10
    )


def test_seconds_are_those_of_the_benchmark():
    rows = json.loads((ROOT / "results" / "bench-peers.json").read_text(encoding="utf-8"))["rows"]
    wall = {row["what"]: row for row in rows if row["what"].startswith("wall time against ")}
    pfl, flower = (next(row for what, row in wall.items() if name in what) for name in ("pfl", "flwr"))
    bare = next(row for name, row in wall.items() if "bare" in name)
    assert f"({bare['plain']:.1f} s as a bare\nPyTorch loop)" in README.read_text(encoding="utf-8")
    said = f"{pfl['ours']:.1f} s here, {pfl['plain']:.1f} s in pfl and {flower['plain']:.1f} s in Flower's simulation"
    assert said in README.read_text(encoding="utf-8")
    rows = json.loads((ROOT / "results" / "bench-h200.json").read_text(encoding="utf-8"))["rows"]
    resnet = next(row for row in rows if row["what"].startswith("resnet18-bn, 10 silos"))
    assert f"({round(resnet['ours'], -2):,.0f} images/s, ResNet-18)" in README.read_text(encoding="utf-8")
    assert round(resnet["ours"] / resnet["plain"]) == 9  # "nine times as fast"
