"""The GPU's part of the benchmarks: python -m benchmarks.gpu results/bench-h200.json, some five minutes on an H200."""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from benchmarks import plain
from benchmarks.ours import spec_of
from benchmarks.rows import Record, Row, commit, show
from benchmarks.work import BATCH, CLASSES, images
from fedtct.classifier import TangentClassifier
from fedtct.federation import LocalFederation
from fedtct.hardware.precision import full_precision
from fedtct.history import Journal
from fedtct.least_squares import local_regression
from fedtct.silo import Silo
from fedtct.stage1 import FedAvg
from fedtct.stage2 import ScaffoldRegression
from fedtct.stage2.convexify import convexify
from fedtct.stage2.grid import solve_grid
from fedtct.tangent import LinearModel, Normaliser, TangentFeatures, TangentMap, tangent_features
from fedtct.training import LocalJob, local_update
from fedtct.training.graphs import GraphTrainer

STAGE1 = (("simple-cnn", "none"), ("resnet18-bn", "crop-flip"), ("resnet18-gn", "crop-flip"))
SILOS, EPOCHS, P, ROUNDS, STEPS = 10, 5, 100_000, 100, 500
T = TypeVar("T")
LOOPED = 16  # samples or steps that the straightforward way is timed on


def main() -> None:
    """Measure, show and write."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("file", type=Path, nargs="?", default=Path("results/bench-h200.json"))
    arguments.add_argument("--commit", default=commit(), help="where the copy that runs has no history")
    chosen = arguments.parse_args()
    gpu = Gpu()
    rows: list[Row] = []
    parts: list[Callable[[], list[Row]]] = [
        *(lambda m=m, a=a: [stage1(gpu, m, a)] for m, a in STAGE1),
        *(lambda m=m: features(gpu, m) for m in ("simple-cnn", "resnet18-bn")),
        lambda: stage2(gpu),
    ]
    for part in parts:
        rows += part()
        torch.cuda.empty_cache()
        record = Record.here(
            "python -m benchmarks.gpu",
            rows,
            hardware=torch.cuda.get_device_name(),
            commit=chosen.commit,
            machine=vars(gpu),
            configuration={"silos": SILOS, "epochs": EPOCHS, "batch": BATCH, "p": P, "rounds": ROUNDS, "steps": STEPS},
        )
        record.write(chosen.file)  # after every part: a cut run keeps what it has
        show(rows, record.hardware)


class Gpu:
    """What the GPU itself does: rates of large, simple operations."""

    def __init__(self) -> None:
        a = torch.randn(8192, 8192, device="cuda")
        half, source, target = a.bfloat16(), *(torch.randn(2**29, device="cuda") for _ in range(2))
        self.bf16 = 2 * len(a) ** 3 / seconds(lambda: half @ half)
        with full_precision():
            self.fp32 = 2 * len(a) ** 3 / seconds(lambda: a @ a)
        self.bandwidth = 2 * source.nbytes / seconds(lambda: target.copy_(source))


def stage1(gpu: Gpu, model: str, augment: str) -> Row:
    """A round of the paper over all silos: side by side, and one silo and one step after another."""
    samples = 80 * BATCH
    data = [images(model, samples) for _ in range(SILOS)]
    federation = LocalFederation([Silo(x, y) for x, y in data], "cuda", precision="bf16")
    trainer, jobs = a_round(federation, FedAvg(model, local_epochs=EPOCHS, augment=augment, evaluate_every=10**9))
    plain_network = spec_of(model).build("cuda")

    start = time.perf_counter()
    trainer.train(jobs)  # compiles and captures
    prepared = time.perf_counter() - start
    torch.cuda.reset_peak_memory_stats()
    ours = SILOS * EPOCHS * samples / seconds(lambda: trainer.train(jobs))
    peak = torch.cuda.max_memory_allocated()
    eager = EPOCHS * samples / seconds(lambda: local_update(plain_network, jobs[0]), 1)
    flops = plain.training_flops(model, "cuda")
    return Row(
        part="stage 1",
        what=f"{model}, {SILOS} silos, bf16",
        unit="images/s",
        ours=ours,
        plain=eager,
        plain_is="one silo and one step after another, float32 with TF32",
        floor=gpu.bf16 / flops,
        bound="flops in bf16; below it: kernels that are too short for the GPU",
        peak_bytes=peak,
        ratio_target={"simple-cnn": 10.0, "resnet18-bn": 6.0}.get(model),
        ours_target={"resnet18-bn": 60_000.0}.get(model),
        detail={"seconds to compile and capture": prepared, "error against plain steps, float64": agreement(model)},
        note="the loss is compiled" if "compiled" in (trainer.ways or []) else "the loss is not compiled",
    )


def a_round(federation: LocalFederation, fedavg: FedAvg) -> tuple[GraphTrainer, list[LocalJob]]:
    """What trains silos side by side, and what it has to do in a round."""
    session = fedavg.open(federation)
    message = fedavg.question(session.network.weights()._asdict(), 1)
    assert federation.trainer is not None
    return federation.trainer, [silo.begin_training(message)[1] for silo in federation.silos]


def agreement(model: str) -> float:
    """How far captured steps end from plain ones in float64, relative to how far they went."""
    x, y = images(model, 4 * BATCH)
    module = plain.plain_module(model).double()
    federation = LocalFederation([Silo(plain.scaled(x).double(), y) for _ in range(2)], "cuda", precision="fp32")
    trainer, jobs = a_round(federation, FedAvg(module, local_epochs=1))
    fast, slow = trainer.train(jobs), [local_update(trainer.build(), job) for job in jobs]
    start = jobs[0].start.parameters
    pairs = zip(fast, slow, strict=True)
    return max(float((a.parameters - b.parameters).norm() / (b.parameters - start).norm()) for a, b in pairs)


def features(gpu: Gpu, model: str, samples: int = 4096) -> list[Row]:
    """Tangent features and predictions from them, beside the paper's loop over samples and one plain pass."""
    spec, x = spec_of(model), images(model, samples)[0].cuda()
    recipe = TangentFeatures(P).recipe(spec.build("cuda").weights())
    tangents = TangentMap(spec, recipe, "cuda")
    module, prepared = tangents.network.module.eval(), tangents.network.prepare(x)
    linear = LinearModel(Normaliser.identity(P, "cuda"), torch.randn(P + 1, CLASSES, device="cuda"))
    classifier = TangentClassifier(spec, recipe, linear, torch.device("cuda"))

    torch.cuda.reset_peak_memory_stats()
    ours = samples / seconds(lambda: [len(raw) for raw in tangents.batches(x)])
    peak = torch.cuda.max_memory_allocated()
    with full_precision():
        one_pass = samples / seconds(lambda: _passes(module, prepared), 1)
        loop = LOOPED / seconds(lambda: _loop(module, prepared[:LOOPED], tangents.coordinates), 1)
    row = Row(
        part="tangent features",
        what=f"{model}, p = {P:,}, float32",
        unit="images/s",
        ours=ours,
        plain=loop,
        plain_is="a backward pass for every sample",
        floor=gpu.bf16 / (3 * 2 / 3 * plain.training_flops(model, "cuda")),
        bound="flops of a forward pass and of the gradients of activations: three half-precision products for each",
        peak_bytes=peak,
        ratio_target=100.0,
        ours_target={"resnet18-bn": 15_000.0}.get(model),
        detail={"one plain pass, images/s": one_pass, "time relative to a plain pass": one_pass / ours}
        | {"relative error against float64": _error(module, prepared[:16], tangents.coordinates)},
    )
    torch.cuda.reset_peak_memory_stats()
    predicted = Row(
        part="prediction",
        what=row.what,
        unit="images/s",
        ours=samples / seconds(lambda: classifier.predict(x), 1),
        plain=ours,
        plain_is="feature extraction alone",
        floor=row.floor,
        bound=row.bound,
        ratio_target=0.5,
    )
    return [row, replace(predicted, peak_bytes=torch.cuda.max_memory_allocated())]


def _pass(module: nn.Module, x: Tensor) -> None:
    module.zero_grad()
    module(x)[:, 0].sum().backward()


def _passes(module: nn.Module, x: Tensor) -> None:
    for xs in x.split(512):
        _pass(module, xs)


def _loop(module: nn.Module, x: Tensor, coordinates: Tensor) -> None:
    for sample in x:
        _pass(module, sample.unsqueeze(0))
        torch.cat([w.grad.flatten() for w in module.parameters() if w.grad is not None])[coordinates]


def _error(module: nn.Module, x: Tensor, coordinates: Tensor) -> float:
    fast = tangent_features(module, x, coordinates)
    exact = tangent_features(module.double(), x.double(), coordinates, method="func")
    module.float()
    return float((fast - exact).norm() / exact.norm())


def stage2(gpu: Gpu, samples: int = 5000) -> list[Row]:
    """All of stage 2 on prepared features, and the sixteen cells of a grid over step size and steps."""
    federation = LocalFederation([Silo(*images("resnet18-bn", samples)) for _ in range(SILOS)], "cuda")
    session = FedAvg("resnet18-bn").open(federation)
    recipe = TangentFeatures(P).recipe(session.network.weights())
    torch.cuda.reset_peak_memory_stats()
    convexifying, problem = timed(lambda: convexify(session, recipe))
    z, y = federation.silos[0].regression().z, federation.silos[0].regression().y
    decomposing = SILOS * seconds(lambda: local_regression(z, y), 1)
    solver = ScaffoldRegression(rounds=ROUNDS, steps=STEPS, lr="auto")

    def rounds(cells: list[tuple[float, int]] | None = None) -> None:
        session.journal = Journal()  # else it would find them done
        solve_grid(solver, session, problem, cells) if cells else solver.solve(session, problem)

    one = seconds(rounds, 1)
    peak = torch.cuda.max_memory_allocated()
    start = torch.zeros(P + 1, CLASSES, device="cuda")
    step = seconds(lambda: plain.local_steps(z.float(), y, start, torch.zeros_like(start), 1e-9, LOOPED), 1) / LOOPED
    safe = solver.step_limits(problem).safe
    cells = [(share * safe, steps) for steps in (50, 100, 200, 500) for share in (1.0, 0.5, 0.2, 0.1)]
    grid = seconds(lambda: rounds(cells), 1)
    traffic = ROUNDS * SILOS * 2 * z.nbytes / gpu.bandwidth
    products = 2 * 2 * ROUNDS * SILOS * 2 * z.numel() * len(cells) * CLASSES / gpu.bf16  # each as two of halves
    return [
        Row(
            part="stage 2",
            what=f"{ROUNDS} rounds × {STEPS} steps × {SILOS} silos, n = {SILOS * samples:,}, p = {P:,}",
            unit="s",
            ours=decomposing + one,
            plain=ROUNDS * STEPS * SILOS * step,
            plain_is=f"every step by itself, scaled up from {LOOPED}",
            floor=traffic,
            bound="two passes over the features a round",
            peak_bytes=peak,
            ours_target=10.0,
            detail={"seconds to decompose": decomposing, "for the rounds": one, "before, for features": convexifying},
        ),
        Row(
            part="stage 2",
            what="sixteen cells of step size × steps, same n and p, features included",
            unit="s",
            ours=convexifying + grid,
            plain=convexifying + one,
            plain_is="a single cell, ours too",
            floor=convexifying + products,
            bound="flops of all cells' products with the features, after a single cell's features as they are",
            peak_bytes=torch.cuda.max_memory_allocated(),
            ratio_target=1 / 3,
            detail={"seconds for the rounds alone": grid, "a single cell's": one},
        ),
    ]


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Seconds, and what the work gave."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    result = work()
    torch.cuda.synchronize()
    return time.perf_counter() - start, result


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """The median time of some work, after a run that is not counted."""
    return sorted([timed(work)[0] for _ in range(repeats + 1)][1:])[repeats // 2]


if __name__ == "__main__":
    main()
