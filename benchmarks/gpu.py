"""What a GPU makes of each part, beside the straightforward way, in one run: python benchmarks/gpu.py OUT.json."""

import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from fedtct.federation import LocalFederation
from fedtct.least_squares import LocalRegression
from fedtct.models import InputSpec, NetworkSpec
from fedtct.silo import Silo
from fedtct.stage1 import FedAvg
from fedtct.tangent import TangentFeatures, TangentMap, tangent_features
from fedtct.training import local_update

SHAPES = {"simple-cnn": (1, 28, 28), "resnet18-bn": (3, 32, 32)}


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """The median time of ``work``, after one run that is not counted."""
    times = []
    for _ in range(repeats + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return sorted(times[1:])[repeats // 2]


def federation(model: str, samples: int, precision: str) -> LocalFederation:
    """Ten silos with random images; speed does not depend on what they show."""
    torch.manual_seed(0)
    silos = [
        Silo(torch.randint(256, (samples, *SHAPES[model]), dtype=torch.uint8), torch.randint(10, (samples,)))
        for _ in range(10)
    ]
    return LocalFederation(silos, "cuda", precision=precision)


def stage1(model: str, augment: str, precision: str) -> dict[str, object]:
    """Images a second of a round over all silos, side by side and one after another."""
    samples = 64 * 20
    fed = federation(model, samples, precision)
    algorithm = FedAvg(model, rounds=1, local_epochs=2, augment=augment, evaluate_every=10**9)
    session = algorithm.open(fed, model, None, None)
    message = algorithm.question(session.network.weights()._asdict(), 1)
    images = 10 * samples * algorithm.local_epochs
    together = images / seconds(lambda: fed.ask("train", message))
    trainer, fed.trainer = fed.trainer, None
    assert trainer is not None
    one_by_one = images / seconds(lambda: fed.ask("train", message), 1)
    row = {"what": "stage 1", "model": model, "precision": precision, "augment": augment}
    row |= {"images_per_second": round(together), "eager_loop": round(one_by_one), "captured": bool(trainer.losses)}
    print(row, flush=True)
    return row


def agreement(model: str) -> dict[str, object]:
    """How far the captured steps end from the plain ones, in float32 without TF32."""
    torch.backends.cudnn.allow_tf32 = False
    fed = federation(model, 200, "fp32")
    algorithm = FedAvg(model, rounds=1, local_epochs=1, lr=0.01)
    session = algorithm.open(fed, model, None, None)
    message = algorithm.question(session.network.weights()._asdict(), 1)
    jobs = [silo.begin_training(message)[1] for silo in fed.silos]
    assert fed.trainer is not None
    fast = fed.trainer.train(jobs)
    plain = [local_update(fed.trainer.build(), job) for job in jobs]
    start = jobs[0].start.parameters
    error = max(
        float((a.parameters - b.parameters).norm() / (b.parameters - start).norm())
        for a, b in zip(fast, plain, strict=True)
    )
    torch.backends.cudnn.allow_tf32 = True
    row = {"what": "captured against plain steps", "model": model, "relative_error_of_the_change": error}
    print(row, flush=True)
    return row


def features(model: str, p: int = 100_000) -> dict[str, object]:
    """Tangent features an image, beside a plain pass and the paper's loop over samples."""
    spec = NetworkSpec(
        model, InputSpec(SHAPES[model], torch.uint8, (0.5,) * SHAPES[model][0], (0.2,) * SHAPES[model][0]), 10
    )
    weights = spec.build("cuda").weights()
    tangents = TangentMap(spec, TangentFeatures(p).recipe(weights), "cuda")
    x = torch.randint(256, (512, *SHAPES[model]), dtype=torch.uint8, device="cuda")
    module, prepared = tangents.network.module, tangents.network.prepare(x)

    def one_pass() -> None:
        module(prepared)[:, 0].sum().backward()

    def loop() -> None:
        for i in range(16):
            module.zero_grad()
            module(prepared[i : i + 1])[0, 0].backward()
            torch.cat([q.grad.flatten() for q in module.parameters()])[tangents.coordinates]

    module.eval()
    row = {
        "what": "tangent features",
        "model": model,
        "p": tangents.p,
        "images_per_second": round(512 / seconds(lambda: tangents(x))),
        "plain_pass": round(512 / seconds(one_pass)),
        "loop": round(16 / seconds(loop)),
    }
    half, ks = x[:8], tangents.coordinates
    exact = tangent_features(module.double(), tangents.network.prepare(half).double(), ks, method="func")
    module.float()
    row["relative_error"] = float((tangents(half) - exact).norm() / exact.norm())
    print(row, flush=True)
    return row


def stage2(n: int = 5000, p: int = 100_000, classes: int = 10) -> dict[str, object]:
    """One silo's decomposition and rounds."""
    z = torch.randn(n, p + 1, device="cuda").half()
    y = torch.randn(n, classes, device="cuda")
    w, h = torch.zeros(p + 1, classes, device="cuda"), torch.randn(p + 1, classes, device="cuda") * 1e-4
    made = []
    row: dict[str, object] = {"what": "stage 2, one silo", "n": n, "p": p}
    row["decompose_seconds"] = seconds(lambda: made.append(LocalRegression(z, y)), 1)
    regression = made[-1]
    lr = 1 / regression.largest_eigenvalue
    row["round_seconds"] = seconds(lambda: regression.advance(w, h, lr, 500))
    print(row, flush=True)
    return row


if __name__ == "__main__":
    found: list[dict[str, object]] = []
    for name, augment in (("simple-cnn", "none"), ("resnet18-bn", "crop-flip")):
        found += [agreement(name), *(stage1(name, augment, p) for p in ("bf16", "fp32")), features(name)]
    found.append(stage2())
    record = {"hardware": torch.cuda.get_device_name(), "torch": torch.__version__, "python": platform.python_version()}
    Path(sys.argv[1]).write_text(json.dumps(record | {"rows": found}, indent=2) + "\n")
