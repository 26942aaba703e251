"""How silos are shared out to slices of a GPU."""

from core_helpers import quick
from hypothesis import given
from hypothesis import strategies as st

from fedtct.training.slices import GAIN, SLICE_SIZES, share_out


def worth(loads: list[int], available: int, size: int, owners: list[int]) -> float:
    """The work done in the time of the busiest slice, relative to the whole GPU."""
    busy = [sum(load for load, owner in zip(loads, owners, strict=True) if owner == s) for s in range(max(owners) + 1)]
    return GAIN * size / available * sum(loads) / max(busy)


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=40), st.sampled_from([16, 80, 108, 132, 148]))
@quick
def test_slices_fit_and_pay_or_are_not_made(loads: list[int], available: int) -> None:
    size, owners = share_out(loads, available)
    assert len(owners) == len(loads)
    if size:
        assert size in SLICE_SIZES
        assert (max(owners) + 1) * size <= available
        assert worth(loads, available, size, owners) > 1


def test_ten_equal_silos_on_an_h200_share_five_slices() -> None:
    size, owners = share_out([5000] * 10, 132)
    assert (size, max(owners) + 1) == (24, 5)
    assert all(owners.count(s) == 2 for s in range(5))


def test_one_giant_silo_gets_the_whole_gpu() -> None:
    assert share_out([50_000] + [100] * 9, 132)[0] == 0
