"""Which way up: a task whose labels no silo brings."""

import pytest
import torch

from fedtct.data.pretext import TURNS, check_pretext, draw_turns, turn
from fedtct.errors import FedtctError


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_equals_a_loop_over_samples(dtype):
    draws = torch.Generator().manual_seed(0)
    x = torch.randint(256, (20, 3, 5, 5), generator=draws).to(dtype)
    quarters = draw_turns(20, draws)[:, 0]
    expected = [torch.rot90(image, int(quarter), (1, 2)) for image, quarter in zip(x, quarters, strict=True)]
    assert torch.equal(turn(x, quarters), torch.stack(expected))


def test_four_quarters_are_none():
    x = torch.rand(4, 1, 6, 6)
    turned = x
    for _ in range(TURNS):
        turned = turn(turned, torch.ones(4, dtype=torch.long))
    assert torch.equal(turned, x)
    assert torch.equal(turn(x, torch.zeros(4, dtype=torch.long)), x)


def test_every_turn_occurs_about_equally_often():
    counts = draw_turns(4000, torch.Generator().manual_seed(0)).flatten().bincount()
    assert len(counts) == TURNS
    assert counts.min() > 900


@pytest.mark.parametrize(
    ("shape", "outputs", "reason"),
    [
        ((10,), 4, r"needs square images .* shape \(10,\)"),
        ((3, 8, 6), 4, r"needs square images .* shape \(3, 8, 6\)"),
        ((3, 8, 8), 1, "two or more outputs"),
    ],
)
def test_what_cannot_be_turned_is_refused(shape, outputs, reason):
    with pytest.raises(FedtctError, match=reason):
        check_pretext("rotations", shape, outputs)
    check_pretext("none", shape, outputs)
    check_pretext("rotations", (3, 8, 8), 2)
