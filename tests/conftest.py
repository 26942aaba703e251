"""No test fails by chance: for being slow on a machine that others use too, or for what tests before it drew."""

import pytest
import torch
from hypothesis import settings

settings.register_profile("fedtct", deadline=None)
settings.load_profile("fedtct")


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    torch.default_generator.manual_seed(0)
