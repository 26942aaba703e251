"""A model's head: its last linear layer, whose outputs are the classes or the number that is learnt."""

from torch import nn

from fedtct.errors import FedtctError


def head_size(module: nn.Module, name: str | None = None) -> int:
    """How many outputs the head has."""
    head = module.get_submodule(find_head(module, name))
    assert isinstance(head, nn.Linear)
    return head.out_features


def find_head(module: nn.Module, name: str | None = None) -> str:
    """The name of the last linear layer, or of the one that was asked for."""
    layers = {n: m for n, m in module.named_modules() if isinstance(m, nn.Linear)}
    if name is not None and name not in layers:
        raise FedtctError(f"head '{name}' is not an nn.Linear of the model. It has: {', '.join(layers) or 'none'}")
    if not layers:
        raise FedtctError("the model has no nn.Linear to serve as its head: give it one as its last layer")
    return name if name is not None else list(layers)[-1]


def other_heads(module: nn.Module) -> str:
    """What to do if the head that was found is the wrong layer; empty if there is no other linear layer."""
    layers = sum(isinstance(layer, nn.Linear) for layer in module.modules())
    return (
        "; if its head is another layer, define that last, or name it in stage 1, FedAvg(head=...)"
        if layers > 1
        else ""
    )
