"""FedAvg as a bare loop."""

import copy
from collections.abc import Sequence

import torch

from benchmarks.peers.task import finish, load, network, train


@torch.no_grad()
def average(target: torch.nn.Module, sources: Sequence[torch.nn.Module]) -> None:
    """The mean of the silos' weights; they have equally many samples."""
    for parameter, *others in zip(target.parameters(), *(s.parameters() for s in sources), strict=True):
        parameter.copy_(torch.stack([other.detach() for other in others]).mean(0))


server, order = network(), load().order
for number in range(len(order)):
    locals_ = []
    for silo in range(order.shape[1]):
        locals_.append(copy.deepcopy(server))
        train(locals_[-1], silo, number)
    average(server, locals_)
finish("bare", server)
