import importlib.util

import pytest

if importlib.util.find_spec("flwr") is None:
    pytest.skip("Flower is not installed: pip install 'fedtct[flower]'", allow_module_level=True)
