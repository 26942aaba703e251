"""Crop and flip against the same thing written as a loop over samples."""

import pytest
import torch

from fedtct.data import AUGMENTATIONS, crop_flip
from fedtct.errors import FedtctError


def one_by_one(x: torch.Tensor, generator: torch.Generator, padding: int) -> torch.Tensor:
    n, channels, height, width = x.shape
    tops, lefts = (torch.randint(2 * padding + 1, (n, 1), generator=generator) for _ in range(2))
    flips = torch.randint(2, (n, 1), generator=generator)
    result = []
    for image, top, left, flip in zip(x, tops, lefts, flips, strict=True):
        padded = torch.zeros(channels, height + 2 * padding, width + 2 * padding, dtype=x.dtype)
        padded[:, padding : padding + height, padding : padding + width] = image
        crop = padded[:, top : top + height, left : left + width]
        result.append(crop.flip(-1) if flip else crop)
    return torch.stack(result)


@pytest.mark.parametrize("padding", [0, 1, 4])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float16, torch.int64, torch.bool])
def test_equals_a_loop_over_samples(dtype, padding):
    x = torch.randint(256, (50, 3, 6, 9), generator=torch.Generator().manual_seed(1)).to(dtype)
    before = x.clone()
    result = crop_flip(x, torch.Generator().manual_seed(2), padding)
    assert result.dtype == dtype
    assert result.is_contiguous()
    assert torch.equal(result, one_by_one(x, torch.Generator().manual_seed(2), padding))
    assert torch.equal(x, before)


def test_every_shift_and_flip_occurs_about_equally_often():
    x = torch.arange(1, 10, dtype=torch.uint8).reshape(1, 1, 3, 3).expand(18_000, 1, 3, 3)
    results, counts = crop_flip(x, torch.Generator().manual_seed(0), 1).unique(dim=0, return_counts=True)
    assert len(results) == 9 * 2
    assert counts.min() > 850
    assert counts.max() < 1150


def test_the_generator_decides():
    x = torch.rand(20, 1, 8, 8)
    generator = torch.Generator().manual_seed(3)
    first, second = crop_flip(x, generator), crop_flip(x, generator)
    assert torch.equal(first, crop_flip(x, torch.Generator().manual_seed(3)))
    assert not torch.equal(first, second)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_result_stays_on_the_device_of_x(device):
    x = torch.rand(20, 3, 8, 8)
    result = crop_flip(x.cuda(), torch.Generator(device).manual_seed(3))
    assert result.is_cuda
    if device == "cpu":
        assert torch.equal(result.cpu(), crop_flip(x, torch.Generator().manual_seed(3)))


def test_an_empty_batch_stays_empty():
    assert crop_flip(torch.zeros(0, 3, 8, 8), torch.Generator()).shape == (0, 3, 8, 8)


def test_errors():
    with pytest.raises(FedtctError, match=r"needs images .* \(5, 10\)"):
        crop_flip(torch.zeros(5, 10), torch.Generator())
    with pytest.raises(FedtctError, match="padding"):
        crop_flip(torch.zeros(1, 1, 4, 4), torch.Generator(), padding=-1)


def test_names():
    assert list(AUGMENTATIONS) == ["none", "crop-flip"]
    assert AUGMENTATIONS["none"] is None
    assert AUGMENTATIONS["crop-flip"] is crop_flip
