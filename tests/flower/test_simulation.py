"""fedtct run --engine flower: Flower's simulation gives the model that this process gives."""

import importlib.util

import pytest
import torch

import fedtct
from fedtct.cli import main

SETTINGS = "--silos 4 --limit 400 --method tct --rounds 1,2 --p 300 --steps 20 --local-epochs 1 --device cpu"


@pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="needs Ray: pip install 'fedtct[flower-simulation]'"
)
def test_the_same_model_as_in_this_process(tmp_path):
    for engine in ("local", "flower"):
        assert main(f"run {SETTINGS} --engine {engine} --out {tmp_path / engine}".split()) == 0
    here, there = (fedtct.Classifier.load(tmp_path / engine / "model") for engine in ("local", "flower"))
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
