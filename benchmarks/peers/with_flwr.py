"""FedAvg in Flower's simulation: a core for each of the silos that train at the same time."""

import os

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers.task import finish, load, network, train

client, server = ClientApp(), ServerApp()


@client.train()
def answer(message: Message, context: Context) -> Message:
    """A silo's part of a round."""
    module = network()
    module.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    silo = int(context.node_config["partition-id"])
    number = message.content.config_records["config"]["server-round"]
    assert isinstance(number, int)
    train(module, silo, number - 1)
    metrics = MetricRecord({"num-examples": len(load().y[silo])})
    return Message(RecordDict({"arrays": ArrayRecord(module.state_dict()), "metrics": metrics}), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """All rounds."""
    module = network()
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=load().order.shape[1])
    result = strategy.start(grid, ArrayRecord(module.state_dict()), num_rounds=len(load().order))
    module.load_state_dict(result.arrays.to_torch_state_dict())
    finish("with_flwr", module)


if __name__ == "__main__":
    run_simulation(
        server,
        client,
        num_supernodes=load().order.shape[1],
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": os.cpu_count() or 1},
        },
    )
