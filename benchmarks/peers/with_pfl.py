"""FedAvg in Apple's pfl."""

import itertools
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from benchmarks.peers.task import BATCH, LR, batches, finish, load, network


class Model(nn.Module):
    """The network as pfl wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """What a silo minimises."""
        return F.cross_entropy(self.network(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        """What pfl reports."""
        return {"accuracy": Weighted(int((self.network(x).argmax(1) == y).sum()), len(y))}


class Ordered(Dataset):  # type: ignore[misc]  # pfl has no types
    """A silo in one round, whose batches come in the task's order."""

    def __init__(self, silo: int, number: int) -> None:
        super().__init__(raw_data=(task.x[silo], task.y[silo]), user_id=str(silo))
        self.ordered = batches(silo, number)

    def iter(self, batch_size: int | None) -> Iterable[tuple[Tensor, Tensor]]:
        """The batches of all epochs of the round."""
        return iter(self.ordered)


task = load()
rounds, silos = task.order.shape[:2]
turns = itertools.count()
data = FederatedDataset(
    make_dataset_fn=lambda turn: Ordered(turn % silos, turn // silos % rounds), user_sampler=lambda: next(turns)
)
module = Model()
model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
FederatedAveraging().run(
    algorithm_params=NNAlgorithmParams(
        central_num_iterations=rounds, evaluation_frequency=10**9, train_cohort_size=silos, val_cohort_size=0
    ),
    backend=SimulatedBackend(training_data=data, val_data=data, postprocessors=[WeightByDatapoints()]),
    model=model,
    # The batches of all epochs come in one.
    model_train_params=NNTrainHyperParams(local_num_epochs=1, local_learning_rate=LR, local_batch_size=BATCH),
)
finish("with_pfl", module.network)
