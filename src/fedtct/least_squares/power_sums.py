"""Sums over the steps of gradient descent, as functions of an eigenvalue: in numbers, and as series for matrices."""

import torch
from torch import Tensor

ENOUGH = 16  # a series has so many nodes times the root of the steps
TOLERANCE = 1e-10  # a series ends when the rest of it is below this, relative to the largest value

StepSize = float | Tensor  # a tensor is a row of numbers, one for each column of W
StepCount = int | Tensor


def power_sums(c: Tensor, steps: StepCount) -> tuple[Tensor, Tensor, Tensor]:
    """c^M, Σ_{m<M} c^m and Σ_{m<M} Σ_{j<m} c^j, for each element of c, and of M if that is a tensor.

    Computed by doubling M, without dividing by 1 − c, so that c = 1 (a zero eigenvalue) is right too.
    """
    a, s, t = torch.ones_like(c), torch.zeros_like(c), torch.zeros_like(c)
    count: StepCount = 0
    for bit in reversed(range(int(torch.as_tensor(steps).max()).bit_length())):
        a, s, t, count = a * a, s + a * s, t + count * s + a * t, 2 * count
        odd = steps >> bit & 1  # whether M has one more step than twice as many
        a, s, t, count = a * c**odd, s + odd * a, t + odd * s, count + odd
    return a, s, t


def step_sums(eigenvalues: Tensor, lr: StepSize, steps: StepCount) -> tuple[Tensor, Tensor]:
    """Σ_{m<M} c^m and Σ_{m<M} Σ_{j<m} c^j of c = 1 − ηλ, for every eigenvalue λ."""
    _, s, t = power_sums(1 - lr * eigenvalues, steps)
    return s, t


class ChebyshevSeries:
    """The coefficients of s and t (see ``power_sums``), as functions of an eigenvalue in 0 … upper, by degree.

    With as many nodes as steps they are exact, but fewer are enough: the series end after some 6·√M terms.
    """

    def __init__(self, upper: float, lr: float, steps: int) -> None:
        self.upper = upper
        from scipy.fft import dct  # rarely needed, and slow to import

        nodes = max(8, min(steps, int(ENOUGH * steps**0.5)))
        angles = (torch.arange(nodes, dtype=torch.float64) + 0.5) * torch.pi / nodes
        values = torch.stack(step_sums(upper / 2 * (1 + angles.cos()), lr, steps))
        coefficients = torch.from_numpy(dct(values.numpy(), axis=1)) / nodes
        coefficients[:, 0] /= 2
        left = coefficients.abs().flip(1).cumsum(1).flip(1)
        needed = (left > TOLERANCE * values.abs().amax(1, keepdim=True)).any(0)
        self.s, self.t = coefficients[:, : 1 + int(needed.nonzero().max())]
