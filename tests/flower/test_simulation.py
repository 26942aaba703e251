"""fedtct run --engine flower: Flower's simulation gives the model that this process gives."""

import importlib.util

import pytest
import torch

from fedtct import FedtctError, LocalFederation
from fedtct.cli import main
from fedtct.deploy.server_app import ServerFolder
from fedtct.deploy.simulate import SimulationFolder
from fedtct.history import Checkpoint
from fedtct.runs.config import RunConfig
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


@pytest.mark.parametrize(
    ("kind", "words", "go_on"),
    [
        (SimulationFolder, "", "fedtct run --engine flower --resume run"),
        (RunFolder, "--engine flower", "fedtct run --resume run"),
        (ServerFolder, "", "fedtct deploy run APP --resume run"),
    ],
)
def test_a_run_goes_on_with_the_engine_it_was_begun_with(kind, words, go_on, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    kind.create("run", RunConfig.of(method="fedavg", rounds=1)).begin("stage1", 1, 0)
    assert main(f"run --resume run {words}".split()) == 2
    assert f"run was started with another command: resume it with `{go_on}`" in capsys.readouterr().err
    assert RunFolder.read("run").go_on == go_on


@pytest.mark.parametrize("kind", [SimulationFolder, ServerFolder])
def test_every_round_is_saved_as_silos_remember_no_more_than_two(kind, tmp_path):
    folder = kind.create(tmp_path / "run", RunConfig.of(method="fedavg", rounds=1))
    folder.begin("stage1", 9, 0)
    for number in range(5):
        folder.save("stage1", Checkpoint(number, {"w": torch.zeros(100_000)}))
        assert folder.restore("stage1").round == number


def test_silos_of_this_process_refuse_what_others_remember():
    with pytest.raises(FedtctError, match="resume it with the engine it was started with"):
        LocalFederation([([[0.0]], [0])], "cpu").restore({"position": torch.tensor(3)})


def test_what_the_engine_cannot_do_is_refused(tmp_path, capsys):
    for words, message in {
        "--engine spark": "unknown engine 'spark'",
        "--engine flower --lr 0.1,0.01 --holdout 0.1": "give a single lr",
    }.items():
        assert main(f"run {words} --out {tmp_path / 'run'}".split()) == 2
        assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
