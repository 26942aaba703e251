"""The paper's claim on real data, small: with one class a silo, TCT ends clearly above FedAvg."""

import json
import os
import platform
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

import fedtct
from fedtct.data import verify
from fedtct.runs.environment import git_commit

IMAGES, ROUNDS = 2000, 20


@pytest.mark.slow
def test_tct_beats_fedavg_with_one_class_a_silo():
    if any(check.status == "missing" for check in verify("fashion-mnist")):
        pytest.skip("fashion-mnist is not here: fedtct data fetch fashion-mnist, or set FEDTCT_DATA")
    data = fedtct.load_dataset("fashion-mnist")
    x, y = data.train.x[:IMAGES], data.train.y[:IMAGES]
    parts = fedtct.partition(y, silos=10, split="classes:1", seed=0)
    test = fedtct.Samples(data.test.x[:2000], data.test.y[:2000])
    stage1 = fedtct.FedAvg(rounds=ROUNDS // 2, local_epochs=1, lr=0.01)
    methods = {
        "fedavg": fedtct.FedAvg("simple-cnn", rounds=ROUNDS, local_epochs=1, lr=0.01),
        "tct": fedtct.TCT(
            "simple-cnn",
            stage1=stage1,
            features=fedtct.TangentFeatures(p=20_000),
            stage2=fedtct.ScaffoldRegression(rounds=ROUNDS // 2, lr="auto"),
        ),
    }
    fits = {name: m.fit([fedtct.Silo(x[i], y[i]) for i in parts], test=test) for name, m in methods.items()}
    final = {name: fit.history[-1].test_accuracy for name, fit in fits.items()}
    if "FEDTCT_RESULTS" in os.environ:
        record = {
            "what": f"Fashion-MNIST, {IMAGES} training images, 10 silos, classes:1, simple-cnn, seed 0",
            "methods": {name: repr(method) for name, method in methods.items()},
            "test_accuracy": final,
            "commit": git_commit(Path(fedtct.__file__)),
            "hardware": f"{platform.machine()}, {torch.get_num_threads()} threads",
            "torch": torch.__version__,
            "rows": {name: [asdict(row) for row in fit.history] for name, fit in fits.items()},
        }
        path = Path(os.environ["FEDTCT_RESULTS"]) / "fashion-mnist-2000-classes1.json"
        path.write_text(json.dumps(record, indent=1) + "\n")
    assert final["tct"] > final["fedavg"] + 0.1
