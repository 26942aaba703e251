"""The table of docs/choose.md: every method on the digits, dealt in four ways: python docs/methods.py (ten minutes).

Settings are the defaults but for p, and chosen for none of the methods; numbers go to results/digits-methods.json.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import torch

from fedtct.runs.compare import comparison
from fedtct.runs.config import RunConfig
from fedtct.runs.environment import environment
from fedtct.runs.tables import table
from fedtct.runs.watcher import Watcher

RESULTS = Path(__file__).parents[1] / "results" / "digits-methods.json"
METHODS = ("fedavg", "fedprox", "scaffold", "feddyn", "fedadam", "tct", "tct, one round", "centralized")
SPLITS = ("iid", "dirichlet:0.1", "classes:2", "classes:1")
SEEDS = range(3)
SETTINGS: dict[str, Any] = {"dataset": "digits", "silos": 10, "rounds": 30, "p": 4096}


def run(folder: Path) -> list[dict[str, Any]]:
    """A line for each method and split: mean and spread of the test accuracy over seeds."""
    lines = []
    for stage2, methods in {"scaffold": [m for m in METHODS if "," not in m], "ridge": ["tct"]}.items():
        plan = comparison(methods, SPLITS, SEEDS, SETTINGS | {"stage2": stage2})
        for line in table(plan.execute(folder / stage2, watch=tell)):
            method = "tct, one round" if stage2 == "ridge" else line.method
            lines.append(line.as_dict() | {"method": method})
    return lines


def tell(name: str, config: RunConfig) -> Watcher:
    """Say what is being run."""
    print(name, flush=True)
    return Watcher()


def markdown(lines: list[dict[str, Any]]) -> str:
    """The table of the page: a row a method, a column a split."""
    cells = {(line["method"], line["split"]): line for line in lines}
    rows = [["method", *SPLITS, "MB per silo"], ["---", *["---:"] * (len(SPLITS) + 1)]]
    for method in METHODS:
        found = [cells[method, split] for split in SPLITS]
        marks = [f"{100 * c['test_accuracy']:.1f} ± {100 * c['test_accuracy_std']:.1f}" for c in found]
        rows.append([method, *marks, f"{found[0]['megabytes']:.1f}"])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def main() -> None:
    """Run everything, keep the numbers and print the table."""
    torch.set_num_threads(1)
    where = environment("cpu") | {"command": "python docs/methods.py"}
    record = {"environment": where, "settings": SETTINGS, "seeds": list(SEEDS)}
    with tempfile.TemporaryDirectory() as folder:
        lines = run(Path(folder) / "runs")
    RESULTS.write_text(json.dumps(record | {"table": lines}, indent=1) + "\n", encoding="utf-8")
    print(markdown(lines))


if __name__ == "__main__":
    main()
