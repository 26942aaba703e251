"""Flower's processes load only what they need, as every silo and every run waits for it."""

import subprocess
import sys

import pytest

DRAWS_OR_READS_TABLES = {"matplotlib", "PIL", "sklearn", "scipy", "pandas", "pyarrow"}
OF_SERVERS = {"fedtct.stage1", "fedtct.stage2", "fedtct.tct"}


@pytest.mark.parametrize(
    ("module", "needless"),
    [
        ("client_app", DRAWS_OR_READS_TABLES | OF_SERVERS | {"fedtct.report"}),
        ("server_app", DRAWS_OR_READS_TABLES | {"fedtct.report"}),
        ("supernode", DRAWS_OR_READS_TABLES | OF_SERVERS | {"torch"}),
        ("superlink", DRAWS_OR_READS_TABLES | OF_SERVERS | {"torch"}),
    ],
)
def test_a_process_does_not_load_what_it_does_not_need(module, needless):
    code = f"import sys, fedtct.deploy.{module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert f"fedtct.deploy.{module}" in loaded
    assert not needless & set(loaded)
