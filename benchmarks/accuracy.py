"""Faster is not worse: the accuracy of the bare loop, ours and ours in bf16, from the same starts and batches."""

import statistics

import torch

from benchmarks.plain import scaled, train_epoch
from benchmarks.rows import Row
from benchmarks.work import BATCH, WEIGHT_DECAY
from fedtct.data import load_dataset
from fedtct.federation import LocalFederation
from fedtct.models import build_module
from fedtct.seeds import derive
from fedtct.silo import Silo
from fedtct.stage1 import FedAvg
from fedtct.training import LocalPlan
from fedtct.training.local_update import draw_epochs

SEEDS = range(5)
EPOCHS, LR = 10, 0.05


def accuracy_rows() -> list[Row]:
    """SimpleCNN on the digits, drawn twice as large; a row for each of our precisions."""
    data = load_dataset("digits")
    (x, y), (test_x, test_y) = ((large(part.x), part.y) for part in (data.train, data.test))

    plan = LocalPlan(EPOCHS, BATCH, LR, WEIGHT_DECAY)
    scale = {"mean": float((x / 255).mean()), "std": float((x / 255).std())}

    def plain(seed: int) -> float:
        module = build_module("simple-cnn", tuple(x.shape[1:]), 10, seed=seed)
        for epoch in draw_epochs(len(y), plan, derive(seed, "train", 0, 0)):
            train_epoch(module, x, y, epoch.order, LR, **scale)
        module.eval()
        with torch.no_grad():
            return float((module(scaled(test_x, **scale)).argmax(1) == test_y).double().mean())

    def ours(seed: int, precision: str) -> float:
        federation = LocalFederation([Silo(x, y)], "cpu", precision=precision)
        method = FedAvg(
            "simple-cnn",
            rounds=1,
            local_epochs=EPOCHS,
            batch_size=BATCH,
            lr=LR,
            weight_decay=WEIGHT_DECAY,
            seed=seed,
        )
        return method.fit(federation).model.score(test_x, test_y)

    bare = [100 * plain(seed) for seed in SEEDS]
    rows = []
    for precision in ("fp32", "bf16"):
        found = [100 * ours(seed, precision) for seed in SEEDS]
        rows.append(
            Row(
                part="same accuracy",
                what=f"simple-cnn, {precision}, digits, {EPOCHS} epochs, mean of {len(SEEDS)} seeds",
                unit="% right",
                ours=statistics.mean(found),
                plain=statistics.mean(bare),
                plain_is="the bare loop in fp32",
                detail={"plain": bare, "ours": found},
            )
        )
    return rows


def large(x: torch.Tensor) -> torch.Tensor:
    """Every pixel as four."""
    return x.repeat_interleave(2, 2).repeat_interleave(2, 3)
