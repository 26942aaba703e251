"""FedAvg in fedtct. Batches come in the order of the file because both come from the same seed."""

from torch.nn.utils import vector_to_parameters

import fedtct
from benchmarks.peers.task import BATCH, LR, finish, load, network

task = load()
silos = [fedtct.Silo(x, y) for x, y in zip(task.x, task.y, strict=True)]
rounds, _, epochs, _ = task.order.shape
method = fedtct.FedAvg(
    network(), rounds=rounds, local_epochs=epochs, batch_size=BATCH, lr=LR, weight_decay=0, evaluate_every=rounds
)
fit = method.fit(silos, test=(task.test_x, task.test_y))
module = network()
vector_to_parameters(fit.model.network.weights().parameters, module.parameters())
finish("with_fedtct", module)
