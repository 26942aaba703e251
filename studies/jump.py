"""Why FedAvg at learning rate 0.1 jumps to infinity on Fashion-MNIST with two classes a silo: python -m studies.jump

Rounds are run until one ends in weights that are not finite. The silos that did it then do that round again, step by
step, from the same weights and on the same batches, in bf16 and in float32.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from fedtct.federation import LocalFederation
from fedtct.models import Network
from fedtct.runs.config import RunConfig
from fedtct.runs.jobs import prepare
from fedtct.stage1 import FedAvg
from fedtct.training import LocalJob
from fedtct.training.local_update import batch, batch_loss, draw_epochs

SETTINGS = {"dataset": "fashion-mnist", "split": "classes:2", "method": "fedavg", "model": "simple-cnn", "lr": 0.1}
ROUNDS, SHOWN = 200, 11


def main() -> None:
    """Both precisions, one after the other; the file is written after each."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("file", type=Path, nargs="?", default=Path("results/fashion-mnist-jump.json"))
    arguments.add_argument("--seconds", type=float, default=120, help="for each precision")
    arguments.add_argument("--commit", default="", help="where the copy that runs has no history")
    chosen = arguments.parse_args()
    config = SETTINGS | {"holdout": 0.1, "seed": 0}
    record: dict[str, Any] = {
        "command": "python -m studies.jump",
        "config": config,
        "commit": chosen.commit,
        "hardware": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }
    for precision in ("bf16", "fp32"):
        record[precision] = rounds_until_jump(config, precision, chosen.seconds)
        chosen.file.write_text(json.dumps(record, indent=1) + "\n")


def rounds_until_jump(config: dict[str, Any], precision: str, seconds: float) -> dict[str, Any]:
    """Run FedAvg, and look closely at the round that jumps."""
    job = prepare(RunConfig.of(**config))
    federation = LocalFederation(job.silos, "cuda", precision=precision)
    fedavg = FedAvg(config["model"], lr=config["lr"], evaluate_every=10**9)
    session = fedavg.open(federation)
    state, start = fedavg.start(session.network.weights()), time.monotonic()
    for number in range(ROUNDS):  # batches are drawn by it, as in a run
        before = dict(state)
        state, _ = fedavg.round(federation, state, number)
        if not state["parameters"].isfinite().all():
            jobs = [silo.begin_training(fedavg.question(before, number))[1] for silo in federation.silos]
            assert federation.trainer is not None
            ends = federation.trainer.train(jobs)
            silos = [i for i, end in enumerate(ends) if not end.parameters.isfinite().all()]
            ways = {"bf16": torch.bfloat16, "fp32": None}
            again = {
                way: {i: trace(session.spec.build("cuda", precision=p, channels_last=True), jobs[i]) for i in silos}
                for way, p in ways.items()
            }
            return {"jumped_in_round": number + 1, "silos_that_jump_again": silos, "step_by_step": again}
        if time.monotonic() - start > seconds:
            break
    return {"jumped_in_round": None, "rounds": number + 1}


def trace(network: Network, job: LocalJob) -> dict[str, Any]:
    """A local update by hand, without TF32: loss, norm of the gradient and of the weights before each step."""
    network.load(job.start)
    network.set_training(job.plan.trainable)
    rows = []
    with torch.backends.cudnn.flags(allow_tf32=False):
        for epoch in draw_epochs(len(job.y), job.plan, job.seed):
            for indices in epoch.order.to(network.device).split(job.plan.batch_sizes(len(job.y))):
                network.gradient.zero_()
                loss = batch_loss(network, *batch(job, indices, None))
                loss.backward()
                rows.append(torch.stack([loss.detach().float(), network.gradient.norm(), network.parameters.norm()]))
                with torch.no_grad():
                    step = network.gradient + job.plan.weight_decay * network.parameters
                    network.parameters.add_(step, alpha=-job.plan.lr)
    table = torch.stack(rows).cpu()
    infinite = (~table.isfinite().all(1)).nonzero().flatten().tolist()
    shown = [[f"{value:.3g}" for value in row] for row in table[:SHOWN].tolist()]
    return {"steps": len(table), "first_infinite_step": infinite[0] if infinite else None, "first_steps": shown}


if __name__ == "__main__":
    main()
