"""Sums over the steps of gradient descent, as functions of an eigenvalue: in numbers, and as series for matrices."""

import torch
from torch import Tensor

ENOUGH = 16  # nodes of a series, times the root of the steps
TOLERANCE = 1e-10  # relative to the largest value: where what is left of a series is below it, it ends

StepSize = float | Tensor  # or a row: each column of W has its own
StepCount = int | Tensor


def power_sums(c: Tensor, steps: StepCount) -> tuple[Tensor, Tensor, Tensor]:
    """c^M, Σ_{m<M} c^m and Σ_{m<M} Σ_{j<m} c^j, element by element, of M too if it is a tensor.

    By doubling and without dividing by 1 − c, so it is right at c = 1 (a zero eigenvalue) too.
    """
    a, s, t = torch.ones_like(c), torch.zeros_like(c), torch.zeros_like(c)
    count: StepCount = 0
    for bit in reversed(range(int(torch.as_tensor(steps).max()).bit_length())):
        a, s, t, count = a * a, s + a * s, t + count * s + a * t, 2 * count
        odd = steps >> bit & 1  # then it is one more than twice as many
        a, s, t, count = a * c**odd, s + odd * a, t + odd * s, count + odd
    return a, s, t


def step_sums(eigenvalues: Tensor, lr: StepSize, steps: StepCount) -> tuple[Tensor, Tensor]:
    """Σ_{m<M} c^m and Σ_{m<M} Σ_{j<m} c^j of c = 1 − ηλ, for every eigenvalue λ."""
    _, s, t = power_sums(1 - lr * eigenvalues, steps)
    return s, t


class ChebyshevSeries:
    """The coefficients of s and t (see ``power_sums``), as functions of an eigenvalue in 0 … upper, by degree.

    With as many nodes as steps they are exact, but for many steps fewer do: they end after some 6·√M.
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
