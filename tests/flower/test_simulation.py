"""fedtct run --engine flower: Flower's simulation gives the model that this process gives."""

import importlib.util

import pytest
import torch

from fedtct.cli import main
from fedtct.runs.folder import RunFolder

SETTINGS = "--silos 4 --limit 400 --method tct --rounds 1,2 --p 300 --steps 20 --local-epochs 1 --device cpu"


OWN_MODEL = """from torch import nn

def build(shape, outputs):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, outputs))
"""


@pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="needs Ray: pip install 'fedtct[flower-simulation]'"
)
@pytest.mark.parametrize("model", ["mlp", "simulated_model:build"])
def test_the_same_model_as_in_this_process(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where a model of one's own is found
    (tmp_path / "simulated_model.py").write_text(OWN_MODEL)
    for engine in ("local", "flower"):
        assert main(f"run {SETTINGS} --model {model} --engine {engine} --out {engine}".split()) == 0
    here, there = (RunFolder.read(tmp_path / engine).fit().model for engine in ("local", "flower"))
    for name, tensor in here._tensors().items():
        torch.testing.assert_close(there._tensors()[name], tensor, rtol=1e-5, atol=1e-5)
    assert not (tmp_path / "flower" / "cache").exists()


def test_what_the_engine_cannot_do_is_refused(tmp_path, capsys):
    for words, message in {
        "--engine spark": "unknown engine 'spark'",
        "--engine flower --lr 0.1,0.01 --holdout 0.1": "give a single lr",
    }.items():
        assert main(f"run {words} --out {tmp_path / 'run'}".split()) == 2
        assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
