"""A silo's own limit on what it tells: it holds whatever a server asks for, in all runs together."""

from dataclasses import replace

import numpy as np
import pytest
from flower_helpers import METHODS, InlineGrid, over, parts
from hypothesis import given
from hypothesis import strategies as st
from test_server import SETTINGS, Crash, crash_at

from fedtct import FedtctError
from fedtct.deploy.check import check_silo
from fedtct.deploy.privacy_budget import SPENT, Budget
from fedtct.deploy.server_app import serve
from fedtct.deploy.server_config import ServerConfig
from fedtct.deploy.silo_config import SiloConfig
from fedtct.runs.config import RunConfig

pytestmark = pytest.mark.usefixtures("no_pauses")
PRIVATE = {"method": "tct", "rounds": (3, 1), "stage2": "ridge", "d": 100, "epsilon": 4.0}


@pytest.fixture
def grid(tmp_path):
    """Silos that spend an ε of 5 at most."""
    grid = InlineGrid(tmp_path, parts())
    for node, setup in grid.setups.items():
        (folder := tmp_path / str(node)).mkdir()
        grid.setups[node] = replace(setup, budget=Budget(5.0, 1e-5, folder), secret=f"secret {node}")
    return grid


def run(grid, tmp_path, name, resume="", **settings):
    server = ServerConfig(out=str(tmp_path / name), round_timeout=1.0, wait=0.0, num_classes=10)
    return serve(grid, RunConfig.of(**SETTINGS | PRIVATE | settings), server, resume=resume and str(tmp_path / resume))


def spent(grid):
    return [setup.budget.spent() for setup in grid.setups.values()]


def test_a_run_spends_what_it_promised_and_another_has_what_is_left(grid, tmp_path):
    run(grid, tmp_path, "one")
    assert spent(grid) == pytest.approx([4.0] * 4)
    grid.asked.clear()
    with pytest.raises(FedtctError, match=r"spent ε = 4 in all runs so far; this run would make it [56].*limit is 5"):
        run(grid, tmp_path, "two")
    # Nothing was spent on a run that cannot end.
    assert {question for _, question in grid.asked} == {"describe", "forget"}
    assert spent(grid) == pytest.approx([4.0] * 4)
    run(grid, tmp_path, "three", epsilon=1.0)
    assert all(4.0 < epsilon < 5.0 for epsilon in spent(grid))


@pytest.mark.parametrize("question", ["train", "sums"])
def test_a_run_that_goes_on_pays_nothing_twice(grid, tmp_path, question):
    grid.before, known = crash_at(question, 1, 102)
    known.append(grid)
    with pytest.raises(Crash):
        run(grid, tmp_path, "one")
    run(grid, tmp_path, "one", resume="one")
    assert spent(grid) == pytest.approx([4.0] * 4)


@pytest.mark.parametrize("method", ["fedavg", "tct", "ridge"])
def test_nothing_is_told_to_a_run_without_differential_privacy(grid, method):
    with pytest.raises(FedtctError, match=r"only with differential privacy .* 'describe' came without it: set epsilon"):
        METHODS[method].fit(over(grid))
    assert spent(grid) == [0.0] * 4


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("train", {"noise": 0.0, "evaluate": False, "correction": "none"}),
        ("train", {"noise": float("nan"), "evaluate": False, "correction": "none"}),
        ("train", {"noise": 1.0, "evaluate": True, "correction": "none"}),
        ("train", {"noise": 1.0, "evaluate": False, "correction": "scaffold"}),
        ("sums", {"noise": 0.0, "bounded": True}),
        ("sums", {"noise": 1.0, "bounded": False}),
        ("evaluate", {}),
        ("moments", {}),
        ("calibrate", {"noise": 1.0}),
        ("describe", {"private": False}),
    ],
)
def test_what_noise_does_not_cover_is_refused(tmp_path, question, message):
    with pytest.raises(FedtctError, match=f"'{question}' came without"):
        Budget(5.0, 1e-5, tmp_path).check("run", question, message)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 5), st.floats(0.1, 10.0)), max_size=30))
def test_the_limit_holds_whatever_is_asked(tmp_path_factory, releases):
    budget = Budget(3.0, 1e-5, tmp_path_factory.mktemp("silo"))
    for name, key, noise in releases:
        before = budget.spent()
        try:
            budget.spend(name, bytes([key]), noise)
        except FedtctError:
            assert budget.spent() == before
    assert budget.spent() <= 3.0 * (1 + 1e-6)


def test_a_ledger_that_cannot_be_read_is_not_taken_for_an_empty_one(tmp_path):
    (tmp_path / SPENT).write_text("{")
    with pytest.raises(FedtctError, match="cannot be read"):
        Budget(3.0, 1e-5, tmp_path).spend("run", b"1", 1.0)


def test_a_silo_says_its_limit_and_what_is_left(tmp_path):
    np.savez(tmp_path / "data.npz", x=np.zeros((20, 1, 4, 4), np.uint8), y=np.arange(20) % 2)
    (tmp_path / "table.csv").write_text("age,ill\n30,0\n31,1\n")
    file = tmp_path / "silo.toml"
    file.write_text('name = "north"\ndata = "data.npz"\nepsilon = 2\nserver = "127.0.0.1:1"\n')
    budget = SiloConfig.read(file).budget()
    assert budget is not None
    budget.spend("run", b"1", 2.0)
    data, *told = [finding.text for finding in check_silo(file)]
    assert data == "data: 20 samples of shape (1, 4, 4) (pixels), 4 of them held out, 2 classes, the largest label is 1"
    assert f"privacy: ε = 2 at δ = 1e-05 in all runs together, of which {budget.spent():.3g} is spent" in told
    file.write_text('name = "north"\ndata = "table.csv"\ntarget = "ill"\nepsilon = 2\n')
    with pytest.raises(FedtctError, match="differential privacy needs arrays"):
        SiloConfig.read(file).load()
    file.write_text('name = "north"\ndata = "data.npz"\nepsilon = -1\n')
    with pytest.raises(FedtctError, match="epsilon must be above 0"):
        SiloConfig.read(file)
