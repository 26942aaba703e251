"""Differential privacy: what silos send is bounded and noised, and an exact account of what that promises.

Two federations are neighbours if one sample of one silo is replaced by another. A release is a reply whose value moves
by at most its sensitivity between neighbours; noise is Gaussian, with a deviation of ``noise`` sensitivities. Each silo
adds its own before it replies, so the promise holds against the server too.
"""

import hashlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedtct.errors import FedtctError, check_whole
from fedtct.least_squares import Sums
from fedtct.models import Weights
from fedtct.seeds import whole_digest

AddNoise = Callable[[Weights, Weights, float, float, bytes], Weights]  # as noisy_update does
LARGEST_EPSILON = 100.0  # beyond it nothing is promised
LEAST = 1e-9  # noise or clip, and 1/LEAST is the largest: no run needs others, and their squares are finite

# The account. Gaussian releases compose, however each depends on those before, to a single one with μ = √releases/noise
# (Dong, Roth and Su, 2022), whose δ at every ε is known exactly (Balle and Wang, 2018).


def noise_multiplier(epsilon: float, delta: float, releases: int) -> float:
    """The noise with which so many releases together are (ε, δ)-differentially private.

    A round of stage 1 is a release, and so is stage 2 by Ridge. It is a number of sensitivities, as FedAvg and Ridge
    take it.

    >>> round(noise_multiplier(epsilon=8, delta=1e-5, releases=1), 3)
    0.6
    """
    check_whole(0, releases=releases)
    return math.sqrt(max(releases, 1)) / mu_of(epsilon, delta)


def spent_epsilon(noise: float, releases: int, delta: float) -> float:
    """The ε that so many releases with this noise come to."""
    return epsilon_of(math.sqrt(releases) / noise, delta) if releases else 0.0


def mu_of(epsilon: float, delta: float) -> float:
    """The μ of all releases together with which they are (ε, δ)-differentially private."""
    check_budget(epsilon, delta)
    return _root(lambda mu: gaussian_delta(epsilon, mu) - delta, 0.0, 1000.0)


def epsilon_of(mu: float, delta: float) -> float:
    """The ε that releases with this μ come to; infinite if it is far beyond any that may be promised."""
    most = 2 * LARGEST_EPSILON
    if gaussian_delta(most, mu) > delta:
        return math.inf
    return _root(lambda epsilon: delta - gaussian_delta(epsilon, mu), 0.0, most) if mu else 0.0


def gaussian_delta(epsilon: float, mu: float) -> float:
    """The δ of a Gaussian release whose sensitivity is μ deviations."""
    if mu == 0:
        return 0.0
    return _normal(mu / 2 - epsilon / mu) - math.exp(epsilon) * _normal(-mu / 2 - epsilon / mu)


def check_budget(epsilon: float, delta: float) -> None:
    """Refuse promises that are none."""
    if not 0 < epsilon <= LARGEST_EPSILON:
        raise FedtctError(f"epsilon must be above 0 and at most {LARGEST_EPSILON:g}, it is {epsilon:g}")
    if not 0 < delta < 1:
        raise FedtctError(f"delta must lie between 0 and 1, far below 1 over the samples; it is {delta:g}")


def _normal(x: float) -> float:
    """Φ."""
    return math.erfc(-x / math.sqrt(2)) / 2


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising function turns from negative to positive."""
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2


# The releases.

ROUNDED = 1 + 1e-5  # times: in float32 a norm of one may come out longer, by far less than this


class Draws:
    """Gaussian numbers that tell nothing of each other to whoever lacks the key: of a stream of SHAKE-256 (FIPS 202).

    Sums that are zero in any case show their noise, and from it the state of numpy's generators could be worked out,
    with all the noise that they have still to give.
    """

    def __init__(self, key: bytes) -> None:
        self._key, self._calls = key, 0

    def normal(self, mean: float, deviation: float, size: tuple[int, ...]) -> NDArray[np.float64]:
        """As of numpy's generators."""
        from scipy.special import ndtri  # slow to import, and only noise needs it

        self._calls += 1
        stream = hashlib.shake_256(self._key + self._calls.to_bytes(8, "little")).digest(8 * math.prod(size))
        shares = ((np.frombuffer(stream, "<u8") >> 12) + 0.5) * 2.0**-52  # above 0 and below 1, exactly
        return np.asarray(mean + deviation * ndtri(shares).reshape(size))


def draw_key(secret: str, question: str, seat: int, *content: Mapping[str, Any]) -> bytes:
    """What a reply's noise is drawn from: the message, the samples, and the reply as it is before.

    A question that is asked again after a crash gets the same answer, which tells nothing more. Two answers that differ
    must differ in their noise: with the same, their difference would be told without any. And if they are the same to
    different questions, or about other samples, that must not be told either.
    """
    text = "/".join([secret, question, str(seat), *map(whole_digest, content)])
    return hashlib.sha256(text.encode()).digest()


def is_noised(message: Mapping[str, Any]) -> bool:
    """Whether a question asks for noise, in plain numbers: what it is measured by would come round to zero in bytes."""
    values = (message["noise"], message.get("clip", 1.0))
    return all(type(value) in (int, float) and LEAST <= value <= 1 / LEAST for value in values)


def update_sensitivity(clip: float) -> float:
    """A replaced sample may take an update anywhere within the norm that it is clipped to."""
    return 2 * clip


def bounded(start: Weights, local: Weights, clip: float) -> Weights:
    """How far training led, but no further than ``clip``; if it diverged, nowhere.

    What is not finite no noise hides. The norm is taken in float64: in float32 its error depends on the processor, and
    what is then clipped by it may be longer than it is said to be.
    """
    updates = [there.double() - here.double() for here, there in zip(start, local, strict=True)]
    norm = math.sqrt(sum(float(update.square().sum()) for update in updates))
    if not math.isfinite(norm):
        return Weights(*map(torch.zeros_like, start))
    share = min(1.0, clip / norm) if norm else 1.0
    return Weights(*((share * update).to(here.dtype) for here, update in zip(start, updates, strict=True)))


def noisy_update(start: Weights, local: Weights, clip: float, noise: float, key: bytes) -> Weights:
    """Where training led, its update clipped and noised.

    The noise is on the update, before it is added to where training began: a server may have it begin so far from zero
    that a sum is rounded by more than the clip. This is what Flower's LocalDpMod does, to the last bit: were it not,
    the next round's question would differ in a digit and, since noise follows from the question, in all of its noise.
    """
    updates = [update.cpu().numpy() for update in bounded(start, local, clip)]
    # Within the clip already, but the mod measures again, in float32: what it finds too long it shortens by a digit.
    norm = float(np.sqrt(sum(np.linalg.norm(update.flat) ** 2 for update in updates)))
    shrink = min(1.0, clip / norm) if norm else 1.0
    draws, deviation = Draws(key), noise * update_sensitivity(clip)
    for update in updates:
        update *= shrink
        update += draws.normal(0.0, deviation, update.shape).astype(update.dtype)
    return Weights(*(at + torch.from_numpy(update).to(at) for at, update in zip(start, updates, strict=True)))


def sums_sensitivity(num_classes: int) -> float:
    """How far one sample (z, y), replaced by (x, v), moves what is told of (Σz̃z̃ᵀ, Σz̃yᵀ), with z̃ = (1, z) and |z| ≤ 1.

    Of Σz̃z̃ᵀ the upper triangle is told, and n is known. With r = z·x it moves by |z − x|² + |zzᵀ − xxᵀ|² at most, which
    is (2 − 2r) + (2 − 2r²); Σz̃yᵀ by |z̃|²|y|² + |x̃|²|v|² − 2(z̃·x̃)(y·v) ≤ 4q + 2(1 + r)(1 − q), since |y|² = q = 1 − 1/C
    and y·v ≥ q − 1. Together this is largest at r = −q/2, and is reached there. Norms are one but for rounding errors.
    """
    q = 1 - 1 / num_classes
    return ROUNDED * math.sqrt(4 + (2 + q) ** 2 / 2)


def noisy_sums(sums: Sums, noise: float, key: bytes) -> Sums:
    """Sums of bounded features and classes with noise on all but n and Σ|y|² = n·(1 − 1/C).

    This Σ|y|² is computed anew: rounding errors of the sum depend on the labels.
    """
    draws, (size, classes) = Draws(key), sums.t.shape
    deviation = noise * sums_sensitivity(classes)
    of_s, of_t = (
        torch.from_numpy(draws.normal(0.0, deviation, count)).to(sums.s)
        for count in ((size * (size + 1) // 2,), (size, classes))
    )
    of_s[0] = 0.0
    return Sums(sums.s + Sums.unpack(of_s, size), sums.t + of_t, float(sums.s[0, 0]) * (1 - 1 / classes))
