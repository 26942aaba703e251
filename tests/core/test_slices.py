"""How silos are shared out to slices of a GPU."""

from unittest.mock import Mock

import torch
from core_helpers import quick
from hypothesis import given
from hypothesis import strategies as st

from fedtct.training import slices
from fedtct.training.slices import GAIN, SLICE_SIZES, share_out, streams_for


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


def test_the_silos_of_every_fit_have_the_same_streams(monkeypatch) -> None:
    made = []
    gpu = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Mock(multi_processor_count=132))
    monkeypatch.setattr(slices, "_slices", lambda *key: [11, 12, 13, 14, 15])
    monkeypatch.setattr(slices.ctypes, "CDLL", lambda name: Mock(cuGreenCtxStreamCreate=lambda *args: 0))
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda number, device: made.append(device) or object())
    first, second = (streams_for([5000] * 10, gpu) for _ in range(2))
    assert first == second
    assert len(set(first)) == len(made) == 10
