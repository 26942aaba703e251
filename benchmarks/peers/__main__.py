"""Run the same FedAvg in every framework and write results/bench-peers.json: python -m benchmarks.peers."""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from benchmarks.machine import processor
from benchmarks.rows import RESULTS, ROOT, Record, Row, show
from fedtct.data import load_dataset
from fedtct.models import build_module
from fedtct.seeds import derive
from fedtct.training import LocalPlan
from fedtct.training.local_update import draw_epochs

HERE = Path(__file__).parent
PEERS = {"pfl": "pfl==0.6.0", "flwr": "flwr[simulation]==1.41.0"}
SILOS, SAMPLES, ROUNDS, EPOCHS = 10, 140, 20, 2
SEED = 0
REPEATS = 3


@dataclass(frozen=True)
class Run:
    """A whole run, from starting Python to its end."""

    seconds: float
    peak_bytes: int
    accuracy: float


def environment(peer: str) -> Path:
    """The Python of the peer's own environment, which is made if it is not there."""
    folder = HERE / f".venv-{peer}"
    if not (folder / ".installed").is_file():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, f"torch=={torch.__version__.split('+')[0]}", "numpy", PEERS[peer]], check=True)
        (folder / ".installed").touch()
    return folder / "bin" / "python"


def write_task(folder: Path) -> None:
    """The digits as 28×28 images, dealt to silos of equal size; batches in the order that fedtct draws."""
    data = load_dataset("digits")
    x, test_x = (_enlarged(part.x) for part in (data.train, data.test))
    x, y = x[: SILOS * SAMPLES].unflatten(0, (SILOS, SAMPLES)), data.train.y[: SILOS * SAMPLES].view(SILOS, SAMPLES)
    plan = LocalPlan(EPOCHS, 64, 0.05, 0.0)
    order = [
        [[epoch.order for epoch in draw_epochs(SAMPLES, plan, derive(SEED, "train", r, silo))] for silo in range(SILOS)]
        for r in range(ROUNDS)
    ]
    stacked = torch.stack([torch.stack([torch.stack(epochs) for epochs in silos]) for silos in order])
    arrays = {"x": x, "y": y, "test_x": test_x, "test_y": data.test.y, "order": stacked}
    np.savez(folder / "task.npz", **{name: tensor.contiguous().numpy() for name, tensor in arrays.items()})
    module = build_module("simple-cnn", (1, 28, 28), 10, seed=SEED)
    start = torch.nn.utils.parameters_to_vector(module.parameters()).detach().numpy()
    np.savez(folder / "start.npz", parameters=start)


def _enlarged(x: torch.Tensor) -> torch.Tensor:
    pixels = x.repeat_interleave(3, 2).repeat_interleave(3, 3).float() / 255
    return torch.nn.functional.pad(pixels, (2, 2, 2, 2))


def run(python: Path, script: str, folder: Path) -> Run:
    """Run a script to its end; what it took, all its processes together."""
    command = [str(python), "-m", f"benchmarks.peers.{script}"]
    settings = os.environ | {"TASK": str(folder), "FLWR_TELEMETRY_ENABLED": "0"}
    start = time.perf_counter()
    with (folder / f"{script}.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=settings, cwd=ROOT)
        watch = _MemoryWatch(process.pid)
        code = process.wait()
    seconds = time.perf_counter() - start
    if code:
        raise SystemExit(f"{script} failed:\n{(folder / f'{script}.log').read_text()[-2000:]}")
    return Run(seconds, watch.stop(), json.loads((folder / f"{script}.json").read_text())["accuracy"])


class _MemoryWatch(threading.Thread):
    """The most memory that a process and its descendants hold together; pages they share count once."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.peak, self.ended = pid, 0, threading.Event()
        self.start()

    def run(self) -> None:
        while not self.ended.wait(0.2):
            self.peak = max(self.peak, sum(_proportional_size(pid) for pid in _descendants(self.pid)))

    def stop(self) -> int:
        self.ended.set()
        self.join()
        return self.peak


def _descendants(pid: int) -> list[int]:
    found = [pid]
    for parent in found:  # it grows as it goes
        for file in Path("/proc", str(parent), "task").glob("*/children"):
            try:
                found += map(int, file.read_text().split())
            except OSError:  # it has ended meanwhile
                continue
    return found


def _proportional_size(pid: int) -> int:
    try:
        lines = Path("/proc", str(pid), "smaps_rollup").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0


def main() -> None:
    """Every framework in turn, several times; the fastest run of each counts."""
    console = Console()
    with tempfile.TemporaryDirectory() as name, console.status("installing pfl and flwr") as status:
        folder = Path(name)
        write_task(folder)
        own = Path(sys.executable)
        scripts = {"with_fedtct": own, "bare": own, "with_pfl": environment("pfl"), "with_flwr": environment("flwr")}
        runs: dict[str, list[Run]] = {script: [] for script in scripts}
        for turn in range(REPEATS):
            for script, python in scripts.items():
                status.update(f"{script}, {turn + 1} of {REPEATS}")
                runs[script].append(run(python, script, folder))
        weights = {script: np.load(folder / f"{script}.npy") for script in scripts}
    rows = []
    mine = min(runs["with_fedtct"], key=lambda r: r.seconds)
    versions = {"bare": "a bare PyTorch loop", "with_pfl": PEERS["pfl"], "with_flwr": PEERS["flwr"]}
    for script, said in versions.items():
        theirs = min(runs[script], key=lambda r: r.seconds)
        distance = float(
            np.linalg.norm(weights[script] - weights["with_fedtct"]) / np.linalg.norm(weights["with_fedtct"])
        )
        detail = {
            "accuracy": {"ours": mine.accuracy, "theirs": theirs.accuracy},
            "relative_distance_of_weights": distance,
            "seconds": {"ours": [r.seconds for r in runs["with_fedtct"]], "theirs": [r.seconds for r in runs[script]]},
        }
        note = f"accuracy {100 * mine.accuracy:.2f} % and {100 * theirs.accuracy:.2f} %, weights {distance:.1e} apart"
        rows += [
            Row(
                part="side by side",
                what=f"wall time against {said}",
                unit="s",
                ours=mine.seconds,
                plain=theirs.seconds,
                plain_is=said,
                peak_bytes=mine.peak_bytes,
                ratio_target=1.0,
                note=note,
                detail=detail,
            ),
            Row(
                part="side by side",
                what=f"memory against {said}",
                unit="MiB",
                ours=mine.peak_bytes / 2**20,
                plain=theirs.peak_bytes / 2**20,
                plain_is=said,
                peak_bytes=mine.peak_bytes,
                ratio_target=1.0,
                note="the process and all its descendants",
            ),
        ]
    show(rows, processor())
    Record.here(
        "make bench-peers",
        rows,
        configuration={
            "algorithm": "FedAvg",
            "model": "simple-cnn",
            "data": "digits, enlarged to 28×28",
            "silos": SILOS,
            "samples_a_silo": SAMPLES,
            "rounds": ROUNDS,
            "local_epochs": EPOCHS,
            "batch": 64,
            "lr": 0.05,
            "evaluation": "test data at the end",
            "repeats": REPEATS,
        },
    ).write(RESULTS / "bench-peers.json")
    console.print("results/bench-peers.json written")


if __name__ == "__main__":
    main()
