"""Probabilities that mean what they say: a temperature for the scores, fitted to what silos hold out.

Scores are divided by the temperature before the softmax, which leaves the most likely class as it is (Guo et al.,
2017). Silos send the loss of their held-out samples at many temperatures; these add up, so one round finds the best
for all of them.
"""

import math

import torch
from torch import Tensor

from fedtct.questions import Message
from fedtct.session import Session
from fedtct.tasks import Regression

TEMPERATURES = torch.logspace(-3, 2, 101, dtype=torch.float64)


def calibrate(session: Session, model: Message) -> float | None:
    """The temperature for the model in a message, by one question to all silos.

    None of a regression, if no silo holds samples out, if silos are private, or if no sample has finite scores.
    """
    if isinstance(session.spec.task, Regression) or session.private or not any(session.agreed.held.values()):
        return None
    replies = session.federation.ask("calibrate", model | {"temperatures": TEMPERATURES})
    if not (samples := sum(replies.values("n"))):
        return None
    return best_temperature(torch.stack([losses.cpu() for losses in replies.values("losses")]).sum(0), samples)


def best_temperature(losses: Tensor, samples: int) -> float:
    """The temperature with the least loss; between those that were tried, the vertex of a parabola through three.

    If every sample is classified rightly, a lower temperature is always better, down to probabilities of 0 and 1. But n
    such samples tell no more than that the next one is right with probability (n + 1)/(n + 2) (Laplace): then the
    temperature is the one with that loss.
    """
    place, least = int(losses.argmin()), samples * math.log((samples + 2) / (samples + 1))
    step, log = float(TEMPERATURES[1].log() - TEMPERATURES[0].log()), float(TEMPERATURES[place].log())
    if losses[0] < least:  # all are right: a single wrong one would cost more at so low a temperature
        while place < len(losses) - 1 and losses[place + 1] < least:
            place += 1
        before, after = losses[place : place + 2].tolist() if place < len(losses) - 1 else (least, math.inf)
        log = float(TEMPERATURES[place].log()) + step * (least - before) / (after - before)
    elif 0 < place < len(losses) - 1:
        left, middle, right = losses[place - 1 : place + 2].tolist()
        log += step * (left - right) / (2 * (left - 2 * middle + right)) if left + right > 2 * middle else 0.0
    return math.exp(log)
