import importlib.util

import pytest

if importlib.util.find_spec("flwr") is None:
    pytest.skip("Flower is not installed: pip install 'fedtct[flower]'", allow_module_level=True)

from flower_helpers import InlineGrid, parts

from fedtct.federation.flower import federation, post


@pytest.fixture
def no_pauses(monkeypatch):
    """A server that does not wait before it asks or looks again: silos in this process answer at once."""
    monkeypatch.setattr(federation, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(post, "POLL_SECONDS", 0.01)


@pytest.fixture
def grid(tmp_path):
    return InlineGrid(tmp_path, parts())
