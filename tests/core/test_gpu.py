"""What only a GPU would show, as far as it can be seen without one; test_on_a_gpu.py is for the rest."""

import contextlib

import pytest
import torch
from core_helpers import skewed_data

from fedtct import LocalFederation, Silo
from fedtct.federation.local import pick_precision
from fedtct.training import graphs


@pytest.mark.parametrize(
    ("capability", "precision"), [((7, 5), None), ((8, 0), torch.bfloat16), ((9, 0), torch.bfloat16)]
)
def test_half_precision_is_for_gpus_that_compute_in_it(monkeypatch, capability, precision):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert pick_precision("auto", torch.device("cuda")) is precision
    assert pick_precision("bf16", torch.device("cuda")) is torch.bfloat16
    assert pick_precision("fp32", torch.device("cuda")) is None


def test_silos_are_waited_for_on_the_gpu_that_they_train_on(monkeypatch):
    current = [torch.device("cuda:0")]

    @contextlib.contextmanager
    def on(device):
        current.append(device)
        yield
        current.pop()

    monkeypatch.setattr(torch.cuda, "device", on)
    monkeypatch.setattr(graphs.GraphTrainer, "_side_by_side", lambda self, jobs, loss: [current[-1]])
    assert graphs.GraphTrainer(None, torch.device("cuda:1"), None).train([]) == [torch.device("cuda:1")]
    assert current == [torch.device("cuda:0")]


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("before", [False, True])
def test_capturing_leaves_the_programs_choice_of_kernels(monkeypatch, before, fails):
    nothing = contextlib.nullcontext
    for name, fake in (("CUDAGraph", object), ("synchronize", bool), ("stream", nothing)):
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, stream: nothing())
    monkeypatch.setattr(graphs, "_drawing_from", nothing)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", before)
    silo, during = graphs._GraphedSilo.__new__(graphs._GraphedSilo), set()
    silo.windows, silo.draws, silo.stream = {8: None}, None, None

    def step(job, window):
        during.add(torch.backends.cudnn.benchmark)
        if fails:
            raise RuntimeError("it cannot be captured")

    silo._step = step
    with pytest.raises(RuntimeError, match="cannot be captured") if fails else nothing():
        silo._capture(None, graphs._Run(8, 2))
    assert during == {True}
    assert torch.backends.cudnn.benchmark is before


@pytest.mark.parametrize("question", ["moments", "sums"])
def test_stage_2_has_the_memory_of_stage_1(monkeypatch, question):
    federation = LocalFederation([Silo(*part) for part in skewed_data()], "cpu")
    federation.trainer = graphs.GraphTrainer(None, torch.device("cpu"), None)
    federation.trainer.silos = {0: "a network and its graphs"}
    monkeypatch.setattr(Silo, "answer", lambda self, question, message: {})
    federation.deliver("evaluate", {})
    assert federation.trainer.silos
    federation.deliver(question, {})
    assert not federation.trainer.silos
