"""Mean and spread of silos' numbers, also all together, and whether one silo's numbers are in other units."""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

ENOUGH = 20  # so many numbers tell how they are distributed
FAR_MEANS, FAR_SPREADS = 4, 30  # means so many standard deviations apart, spreads so many times as large
TEN = 7  # from so many times as large on, numbers may be ten times as large, apart from how silos differ
OFF_ZERO = 1.5  # with a mean so many standard deviations from zero, numbers have a typical size


class Numbers(NamedTuple):
    """What a silo tells about some numbers."""

    n: int
    mean: float
    m2: float  # sum of squared deviations

    @property
    def std(self) -> float:
        """The standard deviation."""
        return math.sqrt(self.m2 / max(1, self.n))

    @property
    def constant(self) -> bool:
        """Whether all are the same, but for rounding errors."""
        return self.std <= 1e-12 * abs(self.mean)

    @classmethod
    def merge(cls, parts: Sequence["Numbers"]) -> "Numbers":
        """All together (Chan's formula for the squared deviations)."""
        n = sum(part.n for part in parts)
        mean = sum(part.n * part.mean for part in parts) / max(1, n)
        return cls(n, mean, sum(part.m2 + part.n * (part.mean - mean) ** 2 for part in parts))


def warn_of_units(what: str, silos: Mapping[str, Numbers]) -> None:
    """Warn of a silo whose numbers are far from all others', as degrees Fahrenheit are from Celsius.

    Silos with few numbers, or always the same one, are no evidence; at least half of the others must be.
    """
    for silo, own in silos.items():
        others = [numbers for other, numbers in silos.items() if other != silo]
        telling = [numbers for numbers in others if _tell_units(own, numbers)]
        if telling and 2 * len(telling) >= len(others) and all(_far_apart(own, numbers) for numbers in telling):
            rest = Numbers.merge(telling)
            warnings.warn(
                f"{what} is {own.mean:.4g} on average in {silo} (standard deviation {own.std:.2g}), and "
                f"{rest.mean:.4g} ({rest.std:.2g}) in the others: is it in the same units?",
                stacklevel=2,
            )
            return  # once is enough: of two silos each is far from the other


def _tell_units(one: Numbers, other: Numbers) -> bool:
    """Whether the two can be compared at all."""
    return min(one.n, other.n) >= ENOUGH and bool(one.std and other.std)


def _far_apart(one: Numbers, other: Numbers) -> bool:
    """Whether two hardly overlap, or one varies far more, or is ten times the other, as millimetres are."""
    narrow, wide = sorted((one, other), key=lambda numbers: numbers.std)
    off_zero = all(abs(numbers.mean) > OFF_ZERO * numbers.std for numbers in (one, other))
    ten_times = off_zero and wide.std > TEN * narrow.std and wide.mean / narrow.mean > TEN
    far = abs(one.mean - other.mean) > FAR_MEANS * wide.std or wide.std > FAR_SPREADS * narrow.std
    return far or ten_times
