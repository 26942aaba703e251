"""Stage 2 at n = 60,000 and p = 100,000 within 24 GiB: python -m benchmarks.large [samples]. It takes long.

Random images in ten silos; convexifying and two rounds of stage 2 are enough to show what memory they take.
"""

import sys
import time
import warnings

from rich.console import Console

from benchmarks.machine import processor
from benchmarks.ours import Stage2Problem
from benchmarks.rows import RESULTS, Record, Row, show
from benchmarks.side_by_side import peak_bytes
from fedtct.stage2 import ScaffoldRegression

SILOS, SAMPLES, P = 10, 60_000, 100_000
ROUNDS, STEPS = 2, 500


def main(samples: int = SAMPLES) -> None:
    """Measure, and write results/bench-large.json."""
    console = Console()
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
    rows = [
        Row("stage 2", f"convexify, {size}", "s", convexified - start, peak_bytes=peak, note=note),
        Row("stage 2", f"a round of M = {STEPS}, {size}", "s", (solved - convexified) / ROUNDS, peak_bytes=peak),
    ]
    show(rows, processor())
    configuration = {"silos": SILOS, "samples": samples, "p": P, "rounds": ROUNDS, "steps": STEPS}
    Record.here("make bench-large", rows, configuration=configuration).write(RESULTS / "bench-large.json")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
