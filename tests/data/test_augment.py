"""Crop and flip against the same thing written as a loop over samples."""

import pytest
import torch

from fedtct.data.augment import AUGMENTATIONS, PADDING, check_augmentation, crop_flip, draw_crop_flip
from fedtct.errors import FedtctError


def draws(n: int, seed: int = 0) -> torch.Tensor:
    return draw_crop_flip(n, torch.Generator().manual_seed(seed))


def one_by_one(x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    _, channels, height, width = x.shape
    result = []
    for image, (top, left, mirrored) in zip(x, draws.tolist(), strict=True):
        padded = torch.zeros(channels, height + 2 * PADDING, width + 2 * PADDING, dtype=x.dtype)
        padded[:, PADDING : PADDING + height, PADDING : PADDING + width] = image
        crop = padded[:, top : top + height, left : left + width]
        result.append(crop.flip(-1) if mirrored else crop)
    return torch.stack(result)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float16, torch.int64])
def test_equals_a_loop_over_samples(dtype):
    x = torch.randint(256, (50, 3, 6, 9), generator=torch.Generator().manual_seed(1)).to(dtype)
    before = x.clone()
    result = crop_flip(x, draws(50))
    assert result.dtype == dtype
    assert torch.equal(result, one_by_one(x, draws(50)))
    assert torch.equal(x, before)


def test_every_shift_and_flip_occurs_about_equally_often():
    kinds, counts = draws(81 * 2 * 100).unique(dim=0, return_counts=True)
    assert len(kinds) == 81 * 2
    assert counts.min() > 60
    assert counts.max() < 150


def test_the_generator_decides():
    generator = torch.Generator().manual_seed(3)
    first, second = draw_crop_flip(20, generator), draw_crop_flip(20, generator)
    assert torch.equal(first, draws(20, seed=3))
    assert not torch.equal(first, second)


def test_an_empty_batch_stays_empty():
    assert crop_flip(torch.zeros(0, 3, 8, 8), draws(0)).shape == (0, 3, 8, 8)


def test_vectors_cannot_be_cropped():
    with pytest.raises(FedtctError, match=r"needs images .* shape \(10,\)"):
        check_augmentation("crop-flip", (10,))
    check_augmentation("none", (10,))
    check_augmentation("crop-flip", (3, 8, 8))


def test_names():
    assert list(AUGMENTATIONS) == ["none", "crop-flip"]
    assert AUGMENTATIONS["none"] is None
