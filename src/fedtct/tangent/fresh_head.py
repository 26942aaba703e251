"""A network with a single logit as its new head: what tangent features are the gradients of."""

from functools import lru_cache

import torch
from torch import Tensor, nn

from fedtct.errors import FedtctError
from fedtct.models import Network, NetworkSpec, other_heads
from fedtct.models.trial import network_for_examples
from fedtct.seeds import generator, seeded


def with_fresh_head(network: Network, seed: int) -> Network:
    """The network with its head replaced by a single logit, drawn from the seed on the CPU."""
    old = network.module.get_submodule(network.head)
    assert isinstance(old, nn.Linear)
    with seeded(seed):  # its own draws, which are replaced below, must not move torch's generator
        new = nn.Linear(old.in_features, 1, bias=old.bias is not None)
    bound = old.in_features**-0.5
    draws = generator(seed, "head")
    with torch.no_grad():
        for parameter in new.parameters():
            parameter.uniform_(-bound, bound, generator=draws)
    new.to(old.weight.dtype)
    module: nn.Module = network.module
    if network.head:
        module.set_submodule(network.head, new)
    else:  # the model is nothing but its head
        module = new
    return Network(module, network.head, network.inputs, network.device, channels_last=network.channels_last)


@lru_cache(maxsize=1)
def feature_count(spec: NetworkSpec) -> int:
    """How many features a network has, if none are left out."""
    return len(with_fresh_head(spec.build(), seed=0).parameters)


def check_head(spec: NetworkSpec) -> None:
    """Refuse a model whose output does not depend on its head once that has a single logit: it has no features.

    A single logit after a softmax, for example, is the same for every sample.
    """
    if isinstance(spec.model, str):
        return
    if isinstance(spec.model, nn.DataParallel):
        raise FedtctError("an nn.DataParallel has no tangent features: give the model inside it, model.module")
    tried = network_for_examples(spec, spec.build())
    if tried is None:
        return
    network = with_fresh_head(tried, seed=0)
    head, seen = network.module.get_submodule(network.head), list[Tensor]()
    head.register_forward_hook(lambda layer, args, output: seen.append(output))
    network.module.eval()
    advice = "the model must end with it. Remove what follows, such as a softmax: the losses take logits"
    advice += other_heads(network.module)
    try:
        with torch.enable_grad():
            given = network(spec.inputs.examples())
            logit = given[:, 0].sum()
        (slope,) = torch.autograd.grad(logit, seen[-1], allow_unused=True, materialize_grads=True)
    except Exception as error:
        raise FedtctError(
            f"with a single logit as its head '{network.head}' the model fails: {advice}", error
        ) from error
    if given.shape[1:] != (1,):
        raise FedtctError(
            f"with a single logit as its head '{network.head}' the model still gives {given.shape[1]} outputs for a "
            "sample: let one nn.Linear make all of them, from everything that they depend on"
        )
    if not bool(slope.any()):
        raise FedtctError(f"with a single logit as its head '{network.head}' the model is constant: {advice}")
