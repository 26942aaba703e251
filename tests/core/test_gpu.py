"""What only a GPU would show, as far as it can be seen without one; test_on_a_gpu.py is for the rest."""

import contextlib
import random

import numpy as np
import pandas as pd
import pytest
import torch
from core_helpers import skewed_data

from fedtct import LocalFederation, Silo
from fedtct.federation import local
from fedtct.hardware import devices
from fedtct.hardware.devices import pick_device, pick_precision
from fedtct.hardware.memory import free_bytes
from fedtct.seated_silo import SeatedSilo
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
    monkeypatch.setattr(torch.cuda, "current_stream", bool)
    monkeypatch.setattr(torch.cuda, "stream", contextlib.nullcontext)
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
    monkeypatch.setattr(graphs, "_never_waiting", nothing)
    with pytest.raises(RuntimeError, match="cannot be captured") if fails else nothing():
        silo._capture(None, graphs._Run(8, 2))
    assert during == {True}
    assert torch.backends.cudnn.benchmark is before


@pytest.mark.parametrize("question", ["moments", "sums"])
def test_stage_2_has_the_memory_of_stage_1(monkeypatch, question):
    federation = LocalFederation([Silo(*part) for part in skewed_data()], "cpu")
    federation.trainer = graphs.GraphTrainer(None, torch.device("cpu"), None)
    federation.trainer.silos = {0: "a network and its graphs"}
    monkeypatch.setattr(SeatedSilo, "answer", lambda self, question, message: {})
    federation.deliver("evaluate", {})
    assert federation.trainer.silos
    federation.deliver(question, {})
    assert not federation.trainer.silos


@pytest.mark.parametrize(
    "draw", [lambda: torch.rand([]), random.random, np.random.rand], ids=["torch", "python", "numpy"]
)
def test_what_a_step_draws_on_the_processor_is_not_captured(draw):
    with graphs._nothing_drawn_on_the_processor():
        torch.rand(3, generator=torch.Generator())
    with (
        pytest.raises(RuntimeError, match="draws random numbers on the processor"),
        graphs._nothing_drawn_on_the_processor(),
    ):
        draw()


def fails_to(capture: str, because: str) -> RuntimeError:
    error = RuntimeError(capture)
    error.__context__ = RuntimeError(because)
    return error


@pytest.mark.parametrize(
    ("error", "left", "told"),
    [
        (RuntimeError("no such thing\nmore"), ["captured"], "cannot be compiled (no such thing)"),
        (
            torch.OutOfMemoryError("CUDA out of memory"),
            [],
            "takes more memory than the GPU has left: one after another",
        ),
        (fails_to("the capture failed", "item() waits"), ["captured"], "cannot be compiled (item() waits)"),
    ],
)
def test_a_way_to_train_that_fails_is_not_tried_again(error, left, told):
    ways = ["compiled", "captured"]
    assert graphs.GraphTrainer(None, torch.device("cpu"), None)._give_up(ways, error).endswith(told)
    assert ways == left


def test_a_gpu_that_torch_has_no_kernels_for_is_left_alone(monkeypatch):
    def fail(*args, **more):
        raise RuntimeError("no kernel image is available\nmore")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "ones", fail)
    devices._gpu_computes.cache_clear()
    with pytest.warns(
        UserWarning, match=r"the GPU cannot be used, so the CPU is used instead \(no kernel image is available\)"
    ):
        assert pick_device("auto") == torch.device("cpu")
    devices._gpu_computes.cache_clear()


def test_rows_of_numbers_keep_their_digits(monkeypatch):
    monkeypatch.setattr(local, "pick_precision", lambda name, device: name)
    rows, images = torch.zeros(4, 3), torch.zeros(4, 1, 3, 3)
    for x, asked, precision in ((rows, "auto", "fp32"), (rows, "bf16", "bf16"), (images, "auto", "auto")):
        assert LocalFederation([(x, [0, 1, 0, 1])], "cpu", precision=asked).precision == precision
    table = pd.DataFrame({"year": [2001.0, 2002.0]})
    assert LocalFederation([(table, [0, 1])], "cpu").precision == "fp32"


def test_what_torch_keeps_for_later_is_free(monkeypatch):
    for name, found in {"mem_get_info": (5, 100), "memory_reserved": 40, "memory_allocated": 30}.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, found=found: found)
    assert free_bytes(torch.device("cuda")) == 15
