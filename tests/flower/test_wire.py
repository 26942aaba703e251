"""A message over Flower is what was packed, in as few of Flower's objects as its size allows."""

from zipfile import BadZipFile

import pytest
import torch
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedtct.federation.flower.wire import SILO, SMALL_BYTES, addressed, pack, unpack

DTYPES = st.sampled_from([torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool])
SHAPES = st.lists(st.integers(0, 4), max_size=3) | st.just([SMALL_BYTES + 1])
ARRAYS = st.builds(lambda shape, dtype: torch.ones(shape, dtype=dtype), SHAPES, DTYPES)
PLAIN = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=9) | st.booleans()


@given(st.dictionaries(st.sampled_from("abcdef"), ARRAYS | PLAIN))
def test_what_is_unpacked_is_what_was_packed(message):
    found, own = unpack(pack(message, {SILO: "s0"}))
    assert own == {SILO: "s0"}
    assert found.keys() == message.keys()
    for name, value in message.items():
        if isinstance(value, Tensor):
            torch.testing.assert_close(found[name], value, rtol=0, atol=0)
        else:
            assert (found[name], type(found[name])) == (value, type(value))


@given(st.dictionaries(st.sampled_from("abcdef"), PLAIN | st.builds(torch.zeros, st.integers(0, 300))))
def test_small_arrays_cost_no_requests_of_their_own(message):
    """Each of Flower's objects is a request: these are the content and its one record."""
    assert len(get_all_nested_objects(pack(message, {SILO: "s0"}))) == 2


def test_messages_to_many_silos_share_their_large_arrays():
    content = pack({"w": torch.ones(SMALL_BYTES), "n": 7}, {})
    one, other = (get_all_nested_objects(addressed(content, {SILO: name})) for name in ("s0", "s1"))
    large = [key for key, value in one.items() if len(value.deflate()) > SMALL_BYTES]
    assert large
    assert set(large) <= other.keys()


@pytest.mark.parametrize(("data", "error"), [(b"", EOFError), (b"no array", ValueError), (b"PK\x03\x04", BadZipFile)])
def test_bytes_that_are_no_array_are_refused(data, error):
    content = pack({"w": torch.zeros(3)}, {})
    content.config_records["config"]["w"] = data
    with pytest.raises(error):
        unpack(content)
