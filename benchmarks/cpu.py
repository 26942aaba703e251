"""What a processor makes of each part, beside the straightforward way, in one run: python -m benchmarks.cpu."""

import statistics
import subprocess
import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch
from rich.console import Console

from benchmarks import ours, plain
from benchmarks.accuracy import accuracy_rows
from benchmarks.machine import Machine, processor
from benchmarks.rows import RESULTS, Record, Row, show
from benchmarks.side_by_side import Timing, Way, side_by_side
from benchmarks.work import BATCH, CLASSES, SHAPES
from fedtct.models import MODELS

SAMPLES = {"linear": 25_600, "mlp": 12_800, "simple-cnn": 2_560, "resnet18-bn": 256, "resnet18-gn": 256}
P = 100_000
STAGE2 = {"silos": 10, "samples": 1_000, "p": 20_000}
READY = {"silos": 2, "samples": 5_000, "p": 20_000}
ROUNDS, STEPS = 100, 500
CELLS = 16
MISTYPED = "fedtct run --method sgd, which is refused"


def stage1_rows(model: str, machine: Machine) -> list[Row]:
    """A round of local training; every model in fp32, SimpleCNN in bf16 too."""
    work = {"model": model, "samples": SAMPLES[model]}
    precisions = ["fp32", "bf16"] if model == "simple-cnn" else ["fp32"]
    found = side_by_side(
        {"plain": Way(plain.stage1, work)} | {p: Way(ours.stage1, work | {"precision": p}) for p in precisions}
    )
    flops = plain.training_flops(model)
    rows = []
    for precision in precisions:
        wanted = {"fp32": 1.2, "bf16": 2.5}[precision] if model == "simple-cnn" else 1 / 1.05
        written = ", ReLU before pooling" if model == "simple-cnn" else ""
        rate = machine.bf16 if precision == "bf16" else machine.fp32
        rows.append(
            Row(
                part="stage 1",
                what=f"{model}, {precision}, batch {BATCH}",
                unit="images/s",
                ours=found[precision].rate,
                plain=found["plain"].rate,
                plain_is=f"a bare PyTorch loop in fp32{written}",
                floor=rate / flops,
                bound=f"flops: {flops / 1e6:,.4g} MFLOP an image",
                peak_bytes=found[precision].peak_bytes,
                ratio_target=wanted,
                detail=turns(found) | {"plain_peak_bytes": found["plain"].peak_bytes},
            )
        )
    return rows


def feature_rows(model: str, machine: Machine) -> list[Row]:
    """Tangent features and predictions from them."""
    samples = {"simple-cnn": 1024, "resnet18-bn": 128}[model]
    work = {"model": model, "samples": samples}
    found = side_by_side(
        {
            "loop": Way(plain.features, work | {"p": P, "samples": samples // 16}),
            "pass": Way(plain.training_pass, work),
            "ours": Way(ours.features, work | {"p": P}),
            "prediction": Way(ours.prediction, work | {"p": P}),
        },
        turns=3,
    )
    flops = 2 / 3 * plain.training_flops(model)  # no gradients of weights
    floor = 1 / machine.seconds(flops=flops, size=4 * P)
    bound = f"flops: {flops / 1e6:,.4g} MFLOP an image for activations and their gradients"
    size = f"{model}, p = {P:,}"
    mine = found["ours"]

    def row(part: str, what: str, timing: Timing, against: str, said: str, wanted: float) -> Row:
        return Row(
            part=part,
            what=f"{size}, {what}",
            unit="images/s",
            ours=timing.rate,
            plain=found[against].rate,
            plain_is=said,
            floor=floor,
            bound=bound,
            peak_bytes=timing.peak_bytes,
            ratio_target=wanted,
            detail=turns(found),
        )

    loop = "the paper's listing: autograd, a sample at a time"
    return [
        row("tangent features", "against the loop", mine, "loop", loop, 4),
        row("tangent features", "against a training pass", mine, "pass", "one forward and backward pass", 1 / 1.7),
        row("prediction", "against features alone", found["prediction"], "ours", "our feature extraction", 0.5),
    ]


def stage2_row(machine: Machine) -> Row:
    """All rounds of SCAFFOLD on given features."""
    loop = {"samples": STAGE2["samples"], "p": STAGE2["p"], "steps": 20}
    found = side_by_side(
        {"loop": Way(plain.stage2, loop), "ours": Way(ours.stage2, STAGE2 | {"rounds": ROUNDS, "steps": STEPS})},
        turns=2,
        warm_up=0,
    )
    all_steps = ROUNDS * STEPS * STAGE2["silos"]
    z_bytes = 4 * STAGE2["silos"] * STAGE2["samples"] * (STAGE2["p"] + 1)
    return Row(
        part="stage 2",
        what=f"n = {STAGE2['silos'] * STAGE2['samples']:,}, p = {STAGE2['p']:,}, {ROUNDS} rounds × M = {STEPS}",
        unit="s",
        ours=found["ours"].seconds,
        plain=all_steps * found["loop"].seconds,
        plain_is=f"explicit steps; {loop['steps']} of one silo timed, scaled to all {all_steps:,}",
        floor=machine.seconds(size=2 * ROUNDS * z_bytes),
        bound=f"bytes: two passes over {z_bytes / 1e9:.1f} GB of features a round",
        peak_bytes=found["ours"].peak_bytes,
        ratio_target=100,
        detail=turns(found),
    )


def ready_row(machine: Machine) -> Row:
    """What silos do before rounds of one step, beside what they do before rounds of many."""
    ways = {"decomposed": True, "ours": False}
    found = side_by_side(
        {name: Way(ours.ready, READY | {"many_steps": many}) for name, many in ways.items()}, turns=2, warm_up=0
    )
    samples = READY["silos"] * READY["samples"]
    z_bytes = 4 * samples * (READY["p"] + 1)
    return Row(
        part="stage 2",
        what=f"ready for conjugate gradients, {READY['silos']} silos of {READY['samples']:,}, p = {READY['p']:,}",
        unit="s",
        ours=found["ours"].seconds,
        plain=found["decomposed"].seconds,
        plain_is="ready for SCAFFOLD, ours too: Gram matrices are decomposed",
        floor=machine.seconds(size=2 * z_bytes),
        bound=f"bytes: two passes over {z_bytes / 1e9:.1f} GB of features, for a single product with ZZᵀ",
        peak_bytes=found["ours"].peak_bytes,
        detail=turns(found),
    )


def grid_row(machine: Machine) -> Row:
    """Sixteen cells of (η, M) against one."""
    work = STAGE2 | {"rounds": ROUNDS}
    ways = {str(cells): Way(ours.grid, work | {"cells": cells}) for cells in (1, CELLS)}
    found = side_by_side(ways, turns=1, warm_up=0)
    many = found[str(CELLS)]
    n, columns = STAGE2["silos"] * STAGE2["samples"], CELLS * CLASSES
    flops = float(n**2 * STAGE2["p"] + 2 * n**2 * columns * ROUNDS)  # K = Z·Zᵀ, of which a half is known, and K·A
    return Row(
        part="stage 2",
        what=f"a grid of {CELLS} (η, M), same n and p, {ROUNDS} rounds, features included",
        unit="s",
        ours=many.seconds,
        plain=found["1"].seconds,
        plain_is="a single cell, ours too",
        floor=machine.seconds(flops=flops),
        bound=f"flops: the samples' inner products once, and {columns} columns times these in every round",
        peak_bytes=many.peak_bytes,
        ratio_target=1 / 3,
        detail=turns(found),
    )


def startup_rows() -> list[Row]:
    """From the shell's prompt and back."""
    python, fedtct = sys.executable, str(Path(sys.executable).with_name("fedtct"))
    commands = {
        "python": [python, "-c", "pass"],
        "import torch": [python, "-c", "import torch"],
        "import fedtct": [python, "-c", "import fedtct"],
        "from fedtct import TCT": [python, "-c", "from fedtct import TCT"],
        "fedtct --help": [fedtct, "--help"],
        MISTYPED: [fedtct, "run", "--method", "sgd"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(4):  # the first fills the disk's cache
        for name, command in commands.items():
            start = time.perf_counter()
            subprocess.run(command, check=name != MISTYPED, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            times[name].append(time.perf_counter() - start)
    floors = {"from fedtct import TCT": "import torch"} | dict.fromkeys(
        ("import fedtct", "fedtct --help", MISTYPED), "python"
    )
    return [
        Row(
            part="start-up",
            what=name,
            unit="s",
            ours=statistics.median(times[name][1:]),
            floor=min(times[floor][1:]),
            bound=f"the start of {floor} alone",
            ours_target=3,
            detail={"seconds": times[name]},
        )
        for name, floor in floors.items()
    ]


def turns(found: dict[str, Timing]) -> dict[str, list[float]]:
    """What every turn of every way took, in seconds for a unit."""
    return {name: timing.turns for name, timing in found.items()}


def main() -> None:
    """Measure everything and write results/bench-cpu.json."""
    console, rows = Console(), []
    configuration = {
        "shapes": SHAPES,
        "samples": SAMPLES,
        "p": P,
        "stage2": STAGE2,
        "ready": READY,
        "best_of": "turns in detail",
    }
    with console.status("the machine itself") as status:
        machine = Machine.measure()
        parts = [("start-up", startup_rows), ("accuracy", accuracy_rows)]
        parts += [(f"stage 1: {model}", partial(stage1_rows, model, machine)) for model in MODELS]
        models = ("simple-cnn", "resnet18-bn")
        parts += [(f"features: {model}", partial(feature_rows, model, machine)) for model in models]
        parts += [("stage 2", lambda: [stage2_row(machine)]), ("the grid", lambda: [grid_row(machine)])]
        parts += [("getting ready", lambda: [ready_row(machine)])]
        start = time.perf_counter()
        for number, (name, measure) in enumerate(parts, start=1):
            done = f"{number} of {len(parts)}, {time.perf_counter() - start:.0f} s so far"
            status.update(f"{name} ({done})")
            rows += measure()
            Record.here("make bench", rows, machine=asdict(machine), configuration=configuration).write(
                RESULTS / "bench-cpu.json"
            )  # after every part: a cut run keeps what it has
    show(rows, f"{processor()}, torch {torch.__version__}")
    console.print(f"results/bench-cpu.json written after {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
