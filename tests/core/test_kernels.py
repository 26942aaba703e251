"""A GPU kernel is used where it is right, in Triton's interpreter as on a GPU, and only there."""

import pytest
import torch

from fedtct.hardware import kernels
from fedtct.least_squares import products
from fedtct.tangent import convolutions

HERE = torch.device("cpu")


@pytest.fixture(params=[(products, "_multiply"), (convolutions, "_convolve")], ids=["products", "convolutions"])
def kernel(request, monkeypatch):
    """A module with a kernel and the name of the function that calls it, on what looks like a GPU."""
    module, name = request.param
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    module._kernel_works.cache_clear()
    yield module, name
    module._kernel_works.cache_clear()


def test_it_is_used_where_it_works(kernel):
    assert kernel[0]._kernel_works(HERE)


def test_it_is_not_used_where_it_is_wrong(kernel, monkeypatch):
    module, name = kernel
    right = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *args, **kwargs: 1.001 * right(*args, **kwargs))
    with pytest.warns(UserWarning, match=r"cannot use their GPU kernel and will be slower \(its error is 0.001\)"):
        assert not module._kernel_works(HERE)


def test_it_is_not_used_where_it_gives_no_number(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    right = torch.ones(3)
    for founds in ((right, right * torch.nan), (right * torch.nan, right)):
        with pytest.warns(UserWarning, match=r"\(its error is nan\)"):
            assert not kernels.works("products", HERE, lambda founds=founds: [(found, right) for found in founds])


def test_it_is_not_used_where_it_cannot_be_compiled(kernel, monkeypatch):
    module, name = kernel

    def fail(*args, **kwargs):
        raise ValueError("no such instruction\nand more")

    monkeypatch.setattr(module, name, fail)
    with pytest.warns(UserWarning, match=r"\(no such instruction\)"):
        assert not module._kernel_works(HERE)


def test_it_is_not_tried_on_an_older_gpu(kernel, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert not kernel[0]._kernel_works(HERE)
