"""Small federated problems, and plain re-implementations that the laws compare with."""

import copy
from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
import torch.nn.functional as F
from hypothesis import settings
from torch import Tensor, nn

from fedtct import TCT, FedAvg, FedtctError, LocalFederation, Ridge, Silo, TangentFeatures
from fedtct.history import Journal, State
from fedtct.seeds import derive
from fedtct.tasks import NUMBERED
from fedtct.training import LocalPlan
from fedtct.training.local_update import draw_epochs

Data = tuple[Tensor, Tensor]

quick = settings(max_examples=25)

CLASSES = 3
UNEQUAL = (20, 10, 5)  # in batches of 8: steps of 8, 8, 4 · 8, 2 · 5
UNTRAINED = FedAvg(rounds=0)
LOCAL = {"local_epochs": 2, "batch_size": 8, "lr": 0.2, "weight_decay": 0.01, "seed": 3}


def skewed_data(sizes: Sequence[int] = UNEQUAL, *, features: int = 4, classes: int = 3, seed: int = 0) -> list[Data]:
    """Silos that differ: each has its own place in feature space and mostly its own class."""
    draws = torch.Generator().manual_seed(seed)
    parts = []
    for k, n in enumerate(sizes):
        shift = torch.randn(features, generator=draws)
        y = torch.full((n,), k % classes)
        y[: n // 2] = torch.arange(n // 2) % classes
        centre = 1.5 * F.one_hot(y, features).float()
        parts.append((torch.randn(n, features, generator=draws) + centre + shift, y))
    return parts


def skewed_silos(sizes: Sequence[int] = UNEQUAL, *, holdout: float = 0.0, **options: int) -> list[Silo]:
    return [Silo(x, y, holdout=holdout) for x, y in skewed_data(sizes, **options)]


def pooled(parts: Sequence[Data]) -> Data:
    return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])


def deal(x: Tensor, y: Tensor, seed: int, silos: int) -> list[Silo]:
    """The samples at random to so many silos, of very unequal sizes, none empty."""
    draws = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(y), generator=draws)
    cuts = (torch.randperm(len(y) - 1, generator=draws)[: silos - 1] + 1).sort().values
    return [Silo(x[part], y[part]) for part in order.tensor_split(cuts)]


def tiny_net(*, features: int = 4, classes: int = 3, norm: bool = False, seed: int = 0) -> nn.Module:
    """A two-layer network in float64, so that laws hold to many digits."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        middle = nn.BatchNorm1d(6) if norm else nn.Identity()
        return nn.Sequential(nn.Linear(features, 6), middle, nn.Tanh(), nn.Linear(6, classes)).double()


def convex_net(*, features: int = 4, classes: int = 3) -> nn.Module:
    """Softmax regression in float64 from zero."""
    model = nn.Linear(features, classes).double()
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    return model


def parameters_of(fit) -> Tensor:
    return fit.model.network.weights().parameters


def flat(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


def batches(samples: int, epochs: int, batch_size: int, seed: int, number: int, silo: int) -> Iterator[Tensor]:
    """The batches that silo ``silo`` trains on in round ``number``."""
    plan = LocalPlan(epochs, batch_size, lr=1.0, weight_decay=0.0)
    for epoch in draw_epochs(samples, plan, derive(seed, "train", number, silo)):
        yield from epoch.order.split(plan.batch_sizes(samples))


def plain_sgd(
    module: nn.Module,
    data: Data,
    order: Iterator[Tensor],
    *,
    lr: float,
    weight_decay: float,
    penalty: Callable[[nn.Module], Tensor | float] = lambda _: 0.0,
) -> tuple[nn.Module, int]:
    """Local training as everybody writes it: a trained copy, and its number of steps."""
    module = copy.deepcopy(module).train()
    optimiser = torch.optim.SGD(module.parameters(), lr=lr, weight_decay=weight_decay)
    x, y, steps = data[0].double(), data[1], 0
    for batch in order:
        optimiser.zero_grad()
        (F.cross_entropy(module(x[batch]), y[batch]) + penalty(module)).backward()
        optimiser.step()
        steps += 1
    return module, steps


def inner(module: nn.Module, vector: Tensor) -> Tensor:
    """⟨vector, w⟩: a loss term whose gradient is the vector."""
    return torch.cat([p.reshape(-1) for p in module.parameters()]) @ vector


def assign(module: nn.Module, vector: Tensor) -> nn.Module:
    """A copy with these parameters."""
    module = copy.deepcopy(module)
    nn.utils.vector_to_parameters(vector, module.parameters())
    return module


def explicit_steps(z: Tensor, y: Tensor, w: Tensor, term: Tensor | None, lr: float, steps: int) -> Tensor:
    """A silo's steps of stage 2 one by one, as the paper lists them."""
    for _ in range(steps):
        gradient = z.T @ (z @ w - y) / len(z)
        w = w - lr * (gradient if term is None else gradient + term)
    return w


def pooled_optimum(module: nn.Module, data: Data, weight_decay: float) -> Tensor:
    """The minimiser of the pooled, regularised loss of a convex model, by Newton's method."""
    x, y = data[0].double(), data[1]
    shapes = {name: p.shape for name, p in module.named_parameters()}

    def loss(w: Tensor) -> Tensor:
        pieces = w.split([s.numel() for s in shapes.values()])
        values = {name: piece.view(s) for (name, s), piece in zip(shapes.items(), pieces, strict=True)}
        logits = torch.func.functional_call(module, values, (x,))
        return F.cross_entropy(logits, y) + weight_decay / 2 * w @ w

    w = torch.zeros_like(flat(module))
    for _ in range(20):
        (gradient,) = torch.autograd.grad(loss(w.requires_grad_()), w)
        w = w.detach() - torch.linalg.solve(torch.autograd.functional.hessian(loss, w), gradient)
    assert gradient.norm() < 1e-12
    return w


class Diary(Journal):
    """A journal that also keeps the server's state after every round."""

    def __init__(self) -> None:
        super().__init__()
        self.states: dict[str, list[State]] = {}

    def save(self, stage, checkpoint):
        if checkpoint.state and not checkpoint.finished:
            self.states.setdefault(stage, []).append(checkpoint.state)


def tct(model, stage2, *, p: int = 100_000, stage1=UNTRAINED, **features) -> TCT:
    """TCT on the features of a network as it is, unless stage 1 is given."""
    return TCT(model, stage1=stage1, features=TangentFeatures(p=p, **features), stage2=stage2)


def normalised_features(model, x: Tensor) -> Tensor:
    """What a TCT model's linear part sees, bias included, in float64."""
    return model.linear.normaliser(model.tangents(x)).double()


def problem(model, parts):
    """The regression that stage 2 of this model solved, a silo's part each, in float64."""
    return [(normalised_features(model, x), NUMBERED.targets(y, CLASSES).double()) for x, y in parts]


def pooled_solution(regression):
    """The least-squares solution of smallest norm, which descent from zero leads to."""
    z, y = pooled(regression)
    return torch.linalg.pinv(z, rcond=1e-6) @ y


def error(stage2, silos, parts):
    """How far from the pooled solution a method ends."""
    model = tct("linear", stage2).fit(silos).model
    solution = pooled_solution(problem(model, parts))
    return float((model.linear.w.double() - solution).norm() / solution.norm())


def assert_refused(message, silos, model="linear", test=None):
    """By whatever method, and before a silo was asked to train or to build features."""
    for method in (FedAvg, lambda model: tct(model, Ridge(d=5), stage1=FedAvg(rounds=1))):
        asked = []
        federation = LocalFederation(silos)
        federation.on_reply = lambda question, *_: asked.append(question)  # noqa: B023
        with pytest.raises(FedtctError, match=message):
            method(model).fit(federation, test)
        assert set(asked) <= {"describe"}
