"""Differential privacy of stage 1 over Flower: its own LocalDpMod clips and noises what training sends."""

import math

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, RecordDict
from flwr.app import Message as FlowerMessage
from flwr.clientapp.mod import LocalDpMod

from fedtct.errors import FedtctError
from fedtct.federation.flower.wire import ARRAYS, as_array
from fedtct.models import Weights
from fedtct.privacy import Draws, bounded, noisy_update, update_sensitivity

# The mod's noise is sensitivity·√(2·ln(1.25/δ))/ε. Our account of the whole run is exact and needs another deviation:
# that is given as the sensitivity, and these values make the factor one.
EPSILON, DELTA = 1.0, 1.25 / math.sqrt(math.e)


def with_flowers_noise(
    question: FlowerMessage, context: Context, start: Weights, local: Weights, clip: float, noise: float, key: bytes
) -> Weights:
    """What training led to, its update clipped and noised by Flower, drawn from ``key``.

    The mod is told that training began at zero, so that the noise is on the update alone: see ``noisy_update``.
    """
    update, zero = bounded(start, local, clip), Weights(*map(torch.zeros_like, start))
    asked = FlowerMessage(_records(zero), reply_to=question)
    answered = FlowerMessage(_records(update), reply_to=question)
    mod = LocalDpMod(clip, noise * update_sensitivity(clip), EPSILON, DELTA)
    numpys = np.random.normal
    np.random.normal = Draws(key).normal  # type: ignore[assignment]  # Draws tells what is wrong with numpy's
    try:
        noisy = mod(asked, context, lambda *_: answered)
    except ZeroDivisionError:  # by the norm of an update: that of a training that diverged is zero
        return noisy_update(start, local, clip, noise, key)
    finally:
        np.random.normal = numpys
    if noisy.has_error():
        raise FedtctError(f"differential privacy failed: {noisy.error.reason}")
    updates = noisy.content.array_records[ARRAYS]
    return Weights(*(at + torch.from_numpy(updates[name].numpy()).to(at) for name, at in start._asdict().items()))


def _records(weights: Weights) -> RecordDict:
    """Weights as the mod wants them: in a record of arrays, and nothing else."""
    return RecordDict({ARRAYS: ArrayRecord({name: as_array(v, fp16=False) for name, v in weights._asdict().items()})})
