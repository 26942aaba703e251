"""What stage 1 should learn where silos know a single class each: the labels, how images are turned, or nothing.

    python -m studies.bootstrapping
    python -m studies.bootstrapping --model resnet18-bn --rounds 60 --d 8192 --augment crop-flip

TCT with stage 2 in one round on CIFAR-10, one seed. Runs that the file has are not made again, unless by --again; those
of other settings are added to it. Settings were given, none of them chosen by results.
"""

import argparse
import itertools
import json
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich import print as show
from rich.table import Table

from fedtct.runs.config import RunConfig
from fedtct.runs.environment import environment
from fedtct.runs.execute import execute
from fedtct.runs.folder import RunFolder

SHARED: dict[str, Any] = {"dataset": "cifar10", "method": "tct", "stage2": "ridge"}
SPLITS = ("classes:1",)
LEARNT = ("nothing", "labels", "rotations")


def main() -> None:
    """All splits, and all that stage 1 may learn; the file is written after each."""
    chosen = options()
    runs = json.loads(chosen.file.read_text()) if chosen.file.exists() else []
    for split, learnt in itertools.product(chosen.splits.split(","), chosen.learnt):
        settings = SHARED | {"split": split, "model": chosen.model, "augment": chosen.augment, "d": chosen.d}
        settings["local_epochs"] = chosen.local_epochs
        rounds = chosen.rounds if learnt != "nothing" else 0
        settings |= {"rounds": [rounds, 1], "pretext": "rotations" if learnt == "rotations" else "none"}
        config = RunConfig.of(**settings, evaluate_every=1000, device=chosen.device)
        told = {name: value for name, value in asdict(config).items() if name not in ("device", "data_dir")}
        told = json.loads(json.dumps(told))  # as it is read again
        if any(run["config"] == told for run in runs) and not chosen.again:
            continue
        found = {"learnt": learnt, "config": told} | result(config)
        runs = [run for run in runs if run["config"] != told] + [found]
        chosen.file.write_text(json.dumps(runs, indent=1) + "\n")
    table = Table("model", "split", "rounds", "stage 1 learns", "test accuracy, %")
    for run in runs:
        model, split, (rounds, _) = (run["config"][name] for name in ("model", "split", "rounds"))
        table.add_row(model, split, str(rounds), run["learnt"], f"{100 * run['test_accuracy']:.1f}")
    show(table)


def options() -> argparse.Namespace:
    """What is run, and where results go."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("file", type=Path, nargs="?", default=Path("results/bootstrapping.json"))
    arguments.add_argument("--model", default="simple-cnn")
    arguments.add_argument("--rounds", type=int, default=20)
    arguments.add_argument("--d", type=int, default=4096)
    arguments.add_argument("--augment", default="none")
    arguments.add_argument("--local-epochs", type=int, default=1)
    arguments.add_argument("--splits", default=",".join(SPLITS))
    arguments.add_argument("--learnt", nargs="+", choices=LEARNT, default=LEARNT)
    arguments.add_argument("--again", action="store_true")
    arguments.add_argument("--device", default="auto")
    return arguments.parse_args()


def result(config: RunConfig) -> dict[str, Any]:
    """How good the model is at the end, and how long it took."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        fit = execute(RunFolder.create(Path(folder) / "run", config))
    where = environment(config.device) | {"command": "python -m studies.bootstrapping"}
    seconds = round(time.perf_counter() - start, 1)
    return {"test_accuracy": fit.history[-1].test_accuracy, "seconds": seconds, "environment": where}


if __name__ == "__main__":
    main()
