"""Local updates of many silos at once on a GPU: a captured graph and a stream for each.

At batch size 64 a step is dozens of kernels too small to fill a GPU, launched slower than they run. A silo's step is
therefore captured once as a CUDA graph, and the silos' graphs are replayed side by side. The graph reads its batch from
memory: the order of the whole round lies on the device, with a counter for the position in it. If a round is long, the
loss is compiled first, which joins small kernels into fewer.
"""

import contextlib
import itertools
import random
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fedtct.errors import first_line
from fedtct.hardware.kernels import fastest_convolutions
from fedtct.models import Network, NetworkSpec, Weights
from fedtct.training.group_norm import normalize_by_channels
from fedtct.training.local_update import LocalJob, batch, batch_loss, descend, draw_epochs, local_update
from fedtct.training.slices import streams_for

WARM_UP_STEPS = 3
STEPS_A_GRAPH = 4  # launching a graph costs the host time: several steps share it
COMPILE_FROM = 1000  # steps of a round over all silos, from which on compiling, some seconds once, is worth it

Loss = Callable[[Network, Tensor, Tensor], Tensor]


@cache
def _compiled_loss() -> Loss:
    loss: Loss = torch.compile(batch_loss, dynamic=False)
    return loss


class GraphTrainer:
    """Trains jobs side by side; what cannot be captured is trained step by step, with a warning that says so."""

    def __init__(self, spec: NetworkSpec, device: torch.device, precision: torch.dtype | None) -> None:
        self.device = device
        self.build: Callable[[], Network] = lambda: spec.build(device, precision=precision, channels_last=True)
        self.silos: dict[int, _GraphedSilo] = {}
        self.ways: list[str] | None = None  # those left to try before going step by step; none: not known yet

    @torch.enable_grad()
    def train(self, jobs: list[LocalJob]) -> list[Weights]:
        """The weights each job ends with."""
        if self.ways is None:
            steps = sum(job.plan.steps(len(job.y)) for job in jobs)
            self.ways = ["compiled", "captured"] if steps >= COMPILE_FROM else ["captured"]
        with torch.cuda.device(self.device):  # which need not be the current one, and is synchronised below
            while self.ways:
                try:
                    # A failed capture leaves its stream as the current one, and that is only a slice of the GPU.
                    with torch.cuda.stream(torch.cuda.current_stream()):
                        return self._side_by_side(jobs, _compiled_loss() if self.ways[0] == "compiled" else batch_loss)
                except RuntimeError as error:
                    warnings.warn(self._give_up(self.ways, error), stacklevel=2)
                    torch.cuda.synchronize()
                    self.silos = {}
        plain = self.build()
        return [local_update(plain, job) for job in jobs]

    def _give_up(self, ways: list[str], error: RuntimeError) -> str:
        """Remove the way that failed from ``ways``, or all if memory ran out. Returns a warning about it."""
        if isinstance(error, torch.OutOfMemoryError):
            ways.clear()
            return "training silos side by side takes more memory than the GPU has left: one after another"
        lost = ways.pop(0)
        # A capture's own error says only that it failed; the cause is the error before it.
        reason = error.__context__ if "capture" in str(error) and error.__context__ else error
        slower = "" if ways else ": training step by step"
        return f"the model's step cannot be {lost}{slower} ({first_line(reason)})"

    def release(self) -> None:
        """Free the memory of the graphs: every silo's network and the activations of its steps."""
        self.silos = {}
        torch.cuda.empty_cache()

    def _side_by_side(self, jobs: list[LocalJob], loss: Loss) -> list[Weights]:
        known = [job.index in self.silos and self.silos[job.index].fits(job) for job in jobs]
        if not all(known):
            streams = streams_for([len(job.y) for job in jobs], jobs[0].x.device)
            for job, stream, is_known in zip(jobs, streams, known, strict=True):
                if not is_known:
                    self.silos[job.index] = _GraphedSilo(self.build(), job, loss, stream)
        working = [self.silos[job.index] for job in jobs]
        for silo, job in zip(working, jobs, strict=True):
            silo.begin(job)
        torch.cuda.synchronize()
        # The longest job comes first in every turn, because the round takes as long as it does.
        turns = [silo.replays() for silo in sorted(working, key=lambda silo: -len(silo.y))]
        while turns:
            turns = [turn for turn in turns if next(turn, None) is not None]
        torch.cuda.synchronize()
        return [silo.network.weights() for silo in working]


class _Run(NamedTuple):
    """Steps in a row on batches of one size, which one graph captures."""

    size: int
    steps: int


def _runs(sizes: list[int]) -> list[_Run]:
    """An epoch's batches as runs of equal size."""
    runs = []
    for size, equal in itertools.groupby(sizes):
        many, few = divmod(len(list(equal)), STEPS_A_GRAPH)
        runs += [_Run(size, STEPS_A_GRAPH)] * many + [_Run(size, few)] * (few > 0)
    return runs


class _GraphedSilo:
    """One silo's network, the memory that its steps read, and a graph for each run of an epoch's batches."""

    def __init__(self, network: Network, job: LocalJob, loss: Loss, stream: torch.cuda.Stream) -> None:
        self.network, self.plan, self.x, self.y = network, job.plan, job.x, job.y
        self.loss, self.stream = loss, stream
        self.draws = torch.Generator(network.device)  # its own, because the other silos draw at the same time
        _stop_counting_batches(network.module)
        normalize_by_channels(network.module)
        places = job.plan.epochs * len(job.y)
        self.order = torch.zeros(places, dtype=torch.long, device=network.device)
        drawn = draw_epochs(1, job.plan, 0)[0].changes
        self.changes = None if drawn is None else drawn.new_zeros(places, drawn.shape[1]).to(network.device)
        self.place = torch.zeros(1, dtype=torch.long, device=network.device)
        self.start = torch.zeros_like(network.parameters) if job.plan.prox else None
        self.correction = None if job.correction is None else torch.zeros_like(network.parameters)
        self.runs = _runs(job.plan.batch_sizes(len(job.y)))
        # Graphs read these from memory, so they must live as long as the graphs.
        self.windows = {run.size: torch.arange(run.size, device=network.device) for run in self.runs}
        self.begin(job)
        self.graphs = {run: self._capture(job, run) for run in sorted(set(self.runs))}

    def fits(self, job: LocalJob) -> bool:
        same_memory = (job.correction is None) == (self.correction is None)
        return job.plan == self.plan and job.x is self.x and job.y is self.y and same_memory

    def begin(self, job: LocalJob) -> None:
        """Write a round's weights, order and corrections to the memory that the graphs read."""
        self.network.load(job.start)
        self.network.set_training(self.plan.trainable)
        epochs = draw_epochs(len(job.y), job.plan, job.seed)
        self.order.copy_(torch.cat([e.order for e in epochs]))
        if self.changes is not None:
            self.changes.copy_(torch.cat([e.changes for e in epochs if e.changes is not None]))
        self.place.zero_()
        self.draws.manual_seed(job.seed)
        if self.start is not None:
            self.start.copy_(self.network.parameters)
        if self.correction is not None and job.correction is not None:
            self.correction.copy_(self.network.to_memory(job.correction))

    def replays(self) -> Iterator[int]:
        """Launch the graphs, yielding to other silos after each; yields its number of steps."""
        for _ in range(self.plan.epochs):
            for run in self.runs:
                with torch.cuda.stream(self.stream):
                    self.graphs[run].replay()
                yield run.steps

    def _capture(self, job: LocalJob, run: _Run) -> torch.cuda.CUDAGraph:
        graph, window = torch.cuda.CUDAGraph(), self.windows[run.size]
        torch.cuda.synchronize()
        with _drawing_from(self.draws), fastest_convolutions():  # graphs keep this choice
            with torch.cuda.stream(self.stream), torch.random.fork_rng(devices=[]):
                self._step(job, window)  # may compile
                with _nothing_drawn_on_the_processor(), _never_waiting():
                    for _ in range(WARM_UP_STEPS - 1):
                        self._step(job, window)
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, stream=self.stream):
                for _ in range(run.steps):
                    self._step(job, window)
        return graph

    def _step(self, job: LocalJob, window: Tensor) -> None:
        places = (self.place + window) % len(self.order)
        changes = None if self.changes is None else self.changes[places]
        parameters: list[Tensor] = [p for p in self.network.module.parameters() if p.requires_grad]
        # The last batch of an epoch has its own size in every silo: compiling each would take longer than it saves.
        loss = self.loss if len(window) == self.plan.batch_size else batch_loss
        value = loss(self.network, *batch(job, self.order[places], changes))
        gradients = torch.autograd.grad(value, parameters, allow_unused=True, materialize_grads=True)
        descend(self.plan, parameters, list(gradients), self._free(self.start), self._free(self.correction))
        self.place += len(window)

    def _free(self, flat: Tensor | None) -> list[Tensor] | None:
        """The pieces of a flat vector that belong to parameters in training."""
        if flat is None:
            return None
        parameters = self.network.module.parameters()
        return [v for v, p in zip(self.network.views(flat), parameters, strict=True) if p.requires_grad]


@contextlib.contextmanager
def _drawing_from(own: torch.Generator) -> Iterator[None]:
    """For a while dropout and the like draw from this generator; what is captured then does so at every replay."""
    device = own.device.index
    everybodys = torch.cuda.default_generators[torch.cuda.current_device() if device is None else device]
    before = everybodys.graphsafe_get_state()
    everybodys.graphsafe_set_state(own)
    try:
        yield
    finally:
        everybodys.graphsafe_set_state(before)


@contextlib.contextmanager
def _nothing_drawn_on_the_processor() -> Iterator[None]:
    """Refuse a step that draws on the processor, to skip layers at random, say: every replay would repeat its draws."""
    before = _processors_draws()
    yield
    if _processors_draws() != before:
        raise RuntimeError("its forward draws random numbers on the processor")


def _processors_draws() -> tuple[object, ...]:
    """The states of all generators that draw on the processor."""
    numpys = repr(np.random.get_state())  # noqa: NPY002
    return torch.default_generator.get_state().numpy().tobytes(), random.getstate(), numpys


@contextlib.contextmanager
def _never_waiting() -> Iterator[None]:
    """Refuse what waits for the GPU, as .item() does: a capture would fail at it without freeing its memory."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Synchronization debug mode is a prototype")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def _stop_counting_batches(module: nn.Module) -> None:
    """Keep BatchNorm with a fixed momentum from counting batches: nobody reads it, and it takes a kernel a step."""
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.momentum is not None:
            layer.num_batches_tracked = None
