"""From a shorter scale to a longer one: its rounds are the same, so none of them is computed twice."""

import json
from dataclasses import replace

import pytest
from paper_helpers import let_jump

from fedtct.classifier import MODEL_FILE
from fedtct.paper.figures import FASHION, train
from fedtct.paper.folder import KEPT
from fedtct.paper.protocol import SCALES, Retrain, Tangent
from fedtct.paper.runner import Runner
from fedtct.stage1 import FedAvg, Scaffold

NETWORK = train(FASHION, "classes:2", rates=(0.1, 0.01))


@pytest.fixture(autouse=True)
def small_scales(monkeypatch):
    tiny = SCALES["tiny"]
    monkeypatch.setitem(SCALES, "half", replace(tiny, name="half", rounds=5, stage1=2, grid=1, central=3))
    monkeypatch.setitem(SCALES, "full", replace(tiny, name="full", rounds=10, stage1=5, grid=2, central=6))


@pytest.fixture
def computed(monkeypatch):
    """The rounds that were, with their learning rate."""
    seen = []

    def counting(round_):
        def count(self, federation, state, number):
            seen.append((self.lr, number))
            return round_(self, federation, state, number)

        return count

    for method in (FedAvg, Scaffold):
        monkeypatch.setattr(method, "round", counting(method.round))
    return seen


def results_of(folder, runs, *scales):
    for scale in scales:
        runner = Runner(folder / "state", folder / "results", scale=scale)
        runner.run(runs)
    return runner, {run: json.loads(runner.result(run).read_text()) for run in runs}


def told(record):
    """All but how long it took, and where."""
    rows = [{name: value for name, value in row.items() if name != "seconds"} for row in record["rows"]]
    return {k: v for k, v in record.items() if k not in ("seconds", "environment")} | {"rows": rows}


@pytest.mark.parametrize(
    "run",
    [
        NETWORK,
        Tangent(NETWORK),
        Tangent(NETWORK, share=0.6),
        replace(NETWORK, method="fedadam"),
        replace(NETWORK, method="scaffold"),
        replace(NETWORK, method="feddyn"),
        replace(NETWORK, method="centralized", split="pooled"),
        Retrain(NETWORK, 1, trained=True),
    ],
    ids=lambda run: run.name,
)
def test_half_and_then_full_is_full_at_once(run, tmp_path):
    runs = list(dict.fromkeys([getattr(run, "network", run), run]))
    one, at_once = results_of(tmp_path / "a", runs, "full")
    two, gone_on = results_of(tmp_path / "b", runs, "half", "full")
    for each in runs:
        assert told(gone_on[each]) == told(at_once[each])
    models = [sorted(runner.state.glob(f"*-full-seed0/model/{MODEL_FILE}")) for runner in (one, two)]
    assert len(models[0]) == len(models[1]) > 0
    for first, second in zip(*models, strict=True):
        assert first.read_bytes() == second.read_bytes()


def test_no_round_is_computed_twice(computed, tmp_path):
    results_of(tmp_path, [NETWORK, Tangent(NETWORK)], "half", "full")
    assert len(computed) == len(set(computed)) == SCALES["full"].rounds + SCALES["full"].grid


def test_where_something_is_missing_a_run_begins_anew(computed, tmp_path):
    """Silos of a run that is over remember nothing; and weights of earlier rounds are not to be had any more."""
    scaffold, fedavg = replace(NETWORK, method="scaffold", rates=(0.1,)), replace(NETWORK, rates=(0.1,))
    half, _ = results_of(tmp_path, [scaffold, fedavg], "half")
    (half._folder(fedavg, 0.1) / KEPT.format(3)).unlink()
    computed.clear()
    results_of(tmp_path, [scaffold, fedavg], "full")
    assert computed == 2 * [(0.1, number) for number in range(SCALES["full"].rounds)]


def test_a_rate_that_diverges_in_the_last_round_of_half_does_so_at_full(tmp_path, monkeypatch):
    let_jump(monkeypatch, 0.1, SCALES["half"].rounds)
    run = Tangent(NETWORK)  # at full scale it starts from that very round
    with pytest.warns(UserWarning, match="diverged"):
        _, at_once = results_of(tmp_path / "a", [run], "full")
    results_of(tmp_path / "b", [run.network], "half")
    with pytest.warns(UserWarning, match="diverged"):
        _, gone_on = results_of(tmp_path / "b", [run], "full")
    assert told(gone_on[run]) == told(at_once[run])
