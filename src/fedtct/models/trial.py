"""Tries a model on two samples before any work is done, and in training mode if it is to be trained."""

import warnings

import torch
from torch import Tensor

from fedtct.errors import FedtctError
from fedtct.models.head import other_heads
from fedtct.models.network import Network, evaluation_mode
from fedtct.models.spec import NetworkSpec
from fedtct.seeds import seeded

MIXED, MIXED_IN_HALF = 1e-3, 0.05  # relative differences beyond rounding errors, in single and half precision


@torch.no_grad()
def try_model(network: Network, outputs: int, samples: Tensor, whose: str = "") -> None:
    """Refuse a model that cannot take these samples, or returns anything but logits."""
    network.module.eval()
    for sample in samples.split(1):
        try:
            given: object = network(sample)
        except Exception as error:
            if any(dtype.is_complex for dtype in network.dtypes):
                raise FedtctError("the model has complex parameters or buffers: make them all real", error) from error
            if len(network.dtypes) > 1:
                names = " and ".join(sorted(map(str, network.dtypes)))
                mixed = f"the model has parameters and buffers of {names}: convert them all with float()"
                raise FedtctError(mixed, error) from error
            if network.precision is not None and _goes_without_it(network, sample):
                named = str(network.precision).removeprefix("torch.")
                raise FedtctError(f"the model cannot compute in {named}: use precision='fp32'", error) from error
            kind, span = _in_words(samples)
            raise FedtctError(f"{whose}the model cannot take {kind}", error, span) from error
        if (what := _shape_of(given)) != (1, outputs):
            found = f"a number for each output of its head '{network.head}'{other_heads(network.module)}"
            advice = found if isinstance(given, Tensor) else "return only the logits"
            raise FedtctError(f"the model gives {what} for one sample, not (1, {outputs}): {advice}")
    _try_pair(network, samples)


def _goes_without_it(network: Network, sample: Tensor) -> bool:
    """Whether the model takes a sample without the reduced precision."""
    precision, network.precision = network.precision, None
    try:
        network(sample)
    except Exception:
        return False
    finally:
        network.precision = precision
    return True


def try_training(spec: NetworkSpec, network: Network, trainable: str) -> None:
    """Refuse a model of which nothing would be trained, or whose output has no gradient or fails in training mode."""
    with network.tried_in_training(trainable):
        if not network.trainable_slices():
            raise FedtctError(
                f"there is nothing to train: trainable is '{trainable}', and all of that is frozen. Unfreeze some of "
                "the model with requires_grad_(True), or set rounds to 0"
            )
    if (tried := network_for_examples(spec, network)) is not None:
        with tried.tried_in_training(trainable):
            _try_step(tried, spec.inputs.examples(2), (2, spec.num_classes))


def network_for_examples(spec: NetworkSpec, network: Network) -> Network | None:
    """A network that made-up samples can be tried on; none if they are tokens that the model does not know."""
    if spec.inputs.dtype != torch.int64:
        return network
    tried = _on_processor(spec, network)
    try:
        with evaluation_mode(tried.module), torch.no_grad():
            tried(spec.inputs.examples(2))
    except Exception:
        return None
    return tried


def _on_processor(spec: NetworkSpec, network: Network) -> Network:
    """The network on a processor: on a GPU an unknown token would end the process."""
    return network if network.device.type == "cpu" else spec.build()


def _try_step(network: Network, samples: Tensor, shape: tuple[int, int]) -> None:
    try:
        with seeded(0, network.device), torch.enable_grad(), network.arithmetic():
            given: object = network(samples)
            if isinstance(given, Tensor) and given.requires_grad:
                given.sum().backward()
    except Exception as error:
        raise FedtctError("the model fails in training mode", error) from error
    if (what := _shape_of(given)) != shape:
        raise FedtctError(
            f"in training mode the model gives {what} for two samples, not {shape}: return only the logits"
        )
    if isinstance(given, Tensor) and not given.requires_grad:
        raise FedtctError("the model's output has no gradient: its forward must not use torch.no_grad or detach")
    if isinstance(given, Tensor) and _are_probabilities(given):
        warnings.warn(
            "the model returns probabilities: remove its softmax, because the losses take logits", stacklevel=2
        )


def _are_probabilities(given: Tensor) -> bool:
    return given.shape[1] > 1 and bool((given >= 0).all() and torch.allclose(given.sum(1), given.new_ones(())))


def _shape_of(given: object) -> object:
    """A tensor's shape; of anything else its type."""
    return tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__


def try_tokens(spec: NetworkSpec, network: Network, x: Tensor, whose: str) -> None:
    """Refuse a model that does not know all of these tokens."""
    extremes = torch.stack([x.amin(0), x.amax(0)]).cpu()  # the smallest and the largest token at each position
    try_model(_on_processor(spec, network), spec.num_classes, extremes, f"{whose}: ")


def _in_words(samples: Tensor) -> tuple[str, str]:
    """What kind of samples they are; and separately the range of tokens, which is not to leave the silo."""
    kind = f"{samples.dtype} samples of shape {tuple(samples.shape[1:])}"
    if samples.dtype != torch.int64:
        return kind, ""
    return f"{kind} as tokens (quantities must be floats)", f", from {samples.min()} to {samples.max()}"


def _try_pair(network: Network, samples: Tensor) -> None:
    """Warn if the model answers differently for a sample beside another one; refuse it if it fails with two."""
    alone = torch.cat([network(sample) for sample in samples.split(1)])
    try:
        together = network(samples)
    except Exception as error:
        raise FedtctError("the model takes a sample, but not two at a time", error) from error
    mixed = MIXED if network.precision is None else MIXED_IN_HALF
    if together.shape != alone.shape or float((together - alone).norm()) > mixed * float(alone.norm()):
        warnings.warn(
            "in evaluation mode the model gives different outputs for a sample alone and in a batch: samples must be "
            "the first dimension throughout (nn.LSTM and attention need batch_first=True), and nothing may be random",
            stacklevel=2,
        )
