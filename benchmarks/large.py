"""Stage 2 at n = 60,000 and p = 100,000 within 24 GiB: python -m benchmarks.large [samples]. It takes long.

Random images in ten silos; convexifying and two rounds of stage 2 are enough to show what memory they take.
"""

import sys
import time
import warnings
from dataclasses import asdict

from rich.console import Console

from benchmarks import plain
from benchmarks.machine import Machine, processor
from benchmarks.ours import Stage2Problem
from benchmarks.rows import RESULTS, Record, Row, show
from benchmarks.side_by_side import peak_bytes
from fedtct.stage2 import ScaffoldRegression

SILOS, SAMPLES, P = 10, 60_000, 100_000
ROUNDS, STEPS = 2, 500


def main(samples: int = SAMPLES) -> None:
    """Measure, and write results/bench-large.json."""
    console, machine = Console(), Machine.measure()
    problem = Stage2Problem(SILOS, samples // SILOS, P)
    problem.federation.on_reply = lambda question, done, silos: console.print(f"{question}: {done} of {silos} silos")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        start = time.perf_counter()
        prepared = problem.prepare()
        convexified = time.perf_counter()
        method = ScaffoldRegression(rounds=ROUNDS, steps=STEPS, lr="auto", evaluate_every=ROUNDS)
        method.solve(problem.session, prepared)
        solved = time.perf_counter()
    peak = peak_bytes()
    size = f"n = {samples:,}, p = {P:,}, {SILOS} silos"
    stored = 2 * samples * (P + 1)
    note = f"the features take {stored / 2**30:.1f} GiB in half precision"
    note += "".join(f"; it said: {warning.message}" for warning in said)
    each = samples // SILOS
    flops = samples * 2 / 3 * plain.training_flops("simple-cnn") + SILOS * (each**2 * P + 10 / 3 * each**3)
    rows = [
        Row(
            part="stage 2",
            what=f"convexify, {size}",
            unit="s",
            ours=convexified - start,
            floor=machine.seconds(flops=flops),
            bound="flops of features, of Gram matrices, of which a half is known, and of their reduction",
            peak_bytes=peak,
            note=note,
        ),
        Row(
            part="stage 2",
            what=f"a round of M = {STEPS}, {size}",
            unit="s",
            ours=(solved - convexified) / ROUNDS,
            floor=machine.seconds(size=2 * stored),
            bound="bytes: two passes over the features",
            peak_bytes=peak,
        ),
    ]
    show(rows, processor())
    configuration = {"silos": SILOS, "samples": samples, "p": P, "rounds": ROUNDS, "steps": STEPS}
    record = Record.here("make bench-large", rows, machine=asdict(machine), configuration=configuration)
    record.write(RESULTS / "bench-large.json")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
