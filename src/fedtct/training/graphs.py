"""Local updates of many silos at once on a GPU: a captured graph and a stream for each.

At batch size 64 a step is dozens of kernels too small to fill a GPU, launched slower than they run. A silo's step is
therefore captured once as a CUDA graph, and the silos' graphs are replayed side by side. The graph reads its batch from
memory: the order of the whole round lies on the device and a counter there says how far it is.
"""

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from fedtct.models import Network, NetworkSpec, Weights
from fedtct.training.local_update import Job, batch_loss, draw_epochs, local_update

WARM_UP_STEPS = 3
STEPS_A_GRAPH = 4  # launching a graph costs the host time: several steps share it


class GraphTrainer:
    """Trains jobs side by side; what cannot be captured is trained step by step, with a warning that says so."""

    def __init__(self, spec: NetworkSpec, device: torch.device, precision: torch.dtype | None) -> None:
        self.build: Callable[[], Network] = lambda: spec.build(device, precision=precision, channels_last=True)
        self.silos: dict[int, _GraphedSilo] = {}
        self.captures = True

    def train(self, jobs: list[Job]) -> list[Weights]:
        """The weights each job ends with."""
        if self.captures:
            try:
                return self._side_by_side(jobs)
            except RuntimeError as error:
                reason = str(error).splitlines()[0]
                warnings.warn(f"the model's step cannot be captured ({reason}): training step by step", stacklevel=2)
                torch.cuda.synchronize()
                self.captures, self.silos = False, {}
        plain = self.build()
        return [local_update(plain, job) for job in jobs]

    def _side_by_side(self, jobs: list[Job]) -> list[Weights]:
        for job in jobs:
            silo = self.silos.get(job.index)
            if silo is None or not silo.fits(job):
                self.silos[job.index] = _GraphedSilo(self.build(), job)
        working = [self.silos[job.index] for job in jobs]
        for silo, job in zip(working, jobs, strict=True):
            silo.begin(job)
        torch.cuda.synchronize()
        # The longest job first in every turn: it decides when the round is over.
        turns = [silo.replays() for silo in sorted(working, key=lambda silo: -len(silo.y))]
        while turns:
            turns = [turn for turn in turns if next(turn, None) is not None]
        torch.cuda.synchronize()
        return [silo.network.weights() for silo in working]


class _Run(NamedTuple):
    """Steps in a row on batches of one size: what a graph holds."""

    size: int
    steps: int


def _runs(sizes: list[int]) -> list[_Run]:
    """An epoch's batches as runs of equal ones."""
    runs = []
    for size, equal in itertools.groupby(sizes):
        many, few = divmod(len(list(equal)), STEPS_A_GRAPH)
        runs += [_Run(size, STEPS_A_GRAPH)] * many + [_Run(size, few)] * (few > 0)
    return runs


class _GraphedSilo:
    """One silo's network, buffers and captured steps: one for full batches, one for the last of an epoch."""

    def __init__(self, network: Network, job: Job) -> None:
        self.network, self.plan, self.x, self.y = network, job.plan, job.x, job.y
        self.stream = torch.cuda.Stream(network.device)
        places = job.plan.epochs * len(job.y)
        self.order = torch.zeros(places, dtype=torch.long, device=network.device)
        drawn = draw_epochs(1, job.plan, 0)[0].changes
        self.changes = None if drawn is None else drawn.new_zeros(places, drawn.shape[1]).to(network.device)
        self.place = torch.zeros(1, dtype=torch.long, device=network.device)
        self.start = torch.zeros_like(network.parameters) if job.plan.prox else None
        self.correction = None if job.correction is None else torch.zeros_like(network.parameters)
        self.runs = _runs(job.plan.batch_sizes(len(job.y)))
        # Graphs read these from memory: they must live as long as the graphs.
        self.windows = {run.size: torch.arange(run.size, device=network.device) for run in self.runs}
        self.begin(job)
        self.graphs = {run: self._capture(job, run) for run in sorted(set(self.runs))}

    def fits(self, job: Job) -> bool:
        same_memory = (job.correction is None) == (self.correction is None)
        return job.plan == self.plan and job.x is self.x and job.y is self.y and same_memory

    def begin(self, job: Job) -> None:
        """Bring a round's weights, order and corrections to where the graphs read them."""
        self.network.load(job.start)
        self.network.set_training(self.plan.trainable)
        epochs = draw_epochs(len(job.y), job.plan, job.seed)
        self.order.copy_(torch.cat([e.order for e in epochs]))
        if self.changes is not None:
            self.changes.copy_(torch.cat([e.changes for e in epochs if e.changes is not None]))
        self.place.zero_()
        if self.start is not None:
            self.start.copy_(self.network.parameters)
        if self.correction is not None and job.correction is not None:
            self.correction.copy_(self.network.to_memory(job.correction))

    def replays(self) -> Iterator[int]:
        """Launch a step at a time, giving way to other silos in between."""
        for _ in range(self.plan.epochs):
            for run in self.runs:
                with torch.cuda.stream(self.stream):
                    self.graphs[run].replay()
                yield run.steps

    def _capture(self, job: Job, run: "_Run") -> torch.cuda.CUDAGraph:
        torch.cuda.synchronize()
        torch.backends.cudnn.benchmark = True  # the warm-up finds the fastest kernels, once for all replays
        with torch.cuda.stream(self.stream):
            for _ in range(WARM_UP_STEPS):
                self._step(job, self.windows[run.size])
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            for _ in range(run.steps):
                self._step(job, self.windows[run.size])
        return graph

    def _step(self, job: Job, window: Tensor) -> None:
        places = (self.place + window) % len(self.order)
        changes = None if self.changes is None else self.changes[places]
        parameters: list[Tensor] = [p for p in self.network.module.parameters() if p.requires_grad]
        loss = batch_loss(self.network, job, self.order[places], changes)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            self._descend(parameters, list(gradients))
            self.place += len(window)

    def _descend(self, parameters: list[Tensor], directions: list[Tensor]) -> None:
        plan = self.plan
        if plan.weight_decay:
            torch._foreach_add_(directions, parameters, alpha=plan.weight_decay)
        if self.correction is not None:
            torch._foreach_add_(directions, self._free(self.correction))
        if self.start is not None:
            torch._foreach_add_(directions, parameters, alpha=plan.prox)
            torch._foreach_sub_(directions, self._free(self.start), alpha=plan.prox)
        torch._foreach_add_(parameters, directions, alpha=-plan.lr)

    def _free(self, flat: Tensor) -> list[Tensor]:
        """The pieces of a vector that belong to parameters in training."""
        parameters = self.network.module.parameters()
        return [v for v, p in zip(self.network.views(flat), parameters, strict=True) if p.requires_grad]
