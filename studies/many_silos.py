"""A hundred silos with two classes each, of which ten are drawn for a round of training: does TCT still help?

    python -m studies.many_silos
    python -m studies.many_silos --show  # what the file tells, without running anything

Fashion-MNIST, 60 images a silo. TCT's two stages share the rounds of the other methods; in stage 2 all silos take part.
Each method, with each seed, has the learning rate that is best on what silos hold out, a tenth of their images.
"""

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from fedtct.runs.compare import carry_out, comparison
from fedtct.runs.environment import environment
from fedtct.runs.folder import RunFolder
from fedtct.runs.summary import Summary
from studies import options

SETTINGS: dict[str, Any] = {
    **{"dataset": "fashion-mnist", "limit": 6000, "model": "simple-cnn", "silos": 100, "per_round": 10, "holdout": 0.1},
    **{"lr": "0.1,0.03,0.01", "evaluate_every": 5, "p": 10_000, "d": 1024, "rounds": 40},
}
SPLIT = "classes:2"
COMPARED: dict[str, tuple[str, dict[str, Any]]] = {  # a method, and what is set besides
    "FedAvg": ("fedavg", {}),
    "SCAFFOLD": ("scaffold", {}),
    "FedDyn": ("feddyn", {}),
    "TCT": ("tct", {"stage2": "scaffold"}),
    "TCT, one round": ("tct", {"stage2": "ridge"}),
}
MEASURED = ("test_accuracy", "holdout_accuracy", "bytes_up", "bytes_down")
Line = dict[str, Any]


def main() -> None:
    """Every method, seed by seed; the file is written after each."""
    chosen = options(__doc__, "results/many-silos.json", seeds=3)
    if chosen.show:
        print(markdown(json.loads(chosen.file.read_text())["runs"]))
        return
    where = environment("cpu") | {"command": "python -m studies.many_silos"}
    runs: list[Line] = []
    for seed in range(chosen.seeds):
        for name, (method, own) in COMPARED.items():
            runs.append({"method": name, "seed": seed} | ending(method, seed, SETTINGS | own))
            print(runs[-1], flush=True)
            record = {"config": SETTINGS | {"split": SPLIT}, "environment": where, "runs": runs}
            chosen.file.write_text(json.dumps(record, indent=1) + "\n")
    print(markdown(runs))


def ending(method: str, seed: int, settings: dict[str, Any]) -> Line:
    """What the run with the best learning rate ends with, and what the others had on held-out samples."""
    plan = comparison([method], [SPLIT], [seed], settings)
    with tempfile.TemporaryDirectory() as folder:
        [best] = carry_out(plan, Path(folder) / "runs").values()
        told = Summary.of(best).as_dict()
        tried = {name: _held_out(Path(folder) / "runs" / name) for name in plan.runs}
        rows = [[row.stage, row.round, row.test_accuracy] for row in best.history if row.test_accuracy is not None]
    return (
        {"lr": best.config.lr, "rounds": told["rounds"]}
        | {n: told[n] for n in MEASURED}
        | {"seconds": told["seconds"], "tried": tried, "curve": rows}
    )


def _held_out(run: Path) -> float | None:
    return Summary.of(RunFolder.read(run)).holdout_accuracy


def markdown(runs: Iterable[Line]) -> str:
    """Means over seeds in per cent, with deviations, and the learning rates that were chosen."""
    lines = ["| method | rounds | learning rate | test | MB per silo |", "| --- | ---: | ---: | ---: | ---: |"]
    by_method: dict[str, list[Line]] = {}
    for run in runs:
        by_method.setdefault(run["method"], []).append(run)
    for name, own in by_method.items():
        tests = [100 * run["test_accuracy"] for run in own]
        spread = f" ± {stdev(tests):.1f}" if len(tests) > 1 else ""
        megabytes = fmean(run["bytes_up"] + run["bytes_down"] for run in own) / 1e6
        rates = " or ".join(f"{rate:g}" for rate in sorted({run["lr"] for run in own}, reverse=True))
        lines.append(f"| {name} | {own[0]['rounds']} | {rates} | {fmean(tests):.1f}{spread} | {megabytes:.1f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
