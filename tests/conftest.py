"""No test fails by chance: for being slow on a machine that others use too, or for what tests before it drew.

Nor for a GPU: where there is one it is hidden, for the same seed gives the same bytes on the processor alone.
"""

import os

if "FEDTCT_TEST_GPU" not in os.environ:  # which `make test-gpu` sets, for the tests that are for it
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["TRITON_INTERPRET"] = "1"  # a GPU's kernels are interpreted: it is read when they are imported

import pytest
import torch
from hypothesis import settings
from matplotlib.figure import Figure

settings.register_profile("fedtct", deadline=None)
settings.load_profile("fedtct")


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    torch.default_generator.manual_seed(0)


@pytest.fixture
def empty_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made, but their files are left empty: to draw them takes most of the time of a small run.

    For tests that are about something else; tests/report is about what is drawn.
    """
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **how: path.touch())
