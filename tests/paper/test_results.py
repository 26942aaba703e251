"""Results as they are read and shown: none is lost, none is taken for another, and each says how it was made."""

import json
from dataclasses import replace

import pytest

from fedtct.errors import FedtctError
from fedtct.paper.figures import CIFAR10, train
from fedtct.paper.protocol import FEDADAM_GRID, GRID, Tangent
from fedtct.paper.results import Results
from fedtct.paper.tables import cells

FEDADAM = train(CIFAR10, "classes:2", "fedadam", rates=FEDADAM_GRID)
CHOSEN = {"grid_rounds": 40}


def put(folder, run, *, scale="full", seed=0, top1=50.0, lr=0.1, holdout=0.1, loss=0.1, **more):
    config = {"method": "fedavg", "seed": seed, "lr": lr, "holdout": holdout}
    row = {"stage": "stage1", "round": 200, "test_accuracy": top1 / 100} | ({"train_loss": loss} if loss else {})
    record = {"run": run.name, "scale": scale, "top1_percent": top1, "config": config, "rows": [row]} | more
    (folder / f"{run.name}-{scale}-seed{seed}.json").write_text(json.dumps(record))


def shown(folder, run):
    return Results(folder).of_cell(next(cell for cell in cells() if cell.run == run))


def test_a_run_that_came_to_a_rate_is_the_run_at_that_rate(tmp_path):
    """Table 3's FedAdam is one of table 7's, and what table 2 has at rate 0.1 is figure 6's."""
    put(tmp_path, FEDADAM, lr=10**-2.5, **CHOSEN)
    at = {
        run.rates[0]: shown(tmp_path, run)
        for run in (cell.run for cell in cells("table7"))
        if run.name.startswith(FEDADAM.name)
    }
    assert [rate for rate, found in at.items() if found] == [10**-2.5]
    for method in ("fedavg", "fedprox", "scaffold"):
        put(tmp_path, train(CIFAR10, "classes:2", method), lr=0.1, **CHOSEN)
        assert Results(tmp_path).of(train(CIFAR10, "classes:2", method, rates=(0.1,)))
        assert not Results(tmp_path).of(train(CIFAR10, "classes:2", method, rates=(0.01,)))


def test_the_largest_scale_is_shown_wherever_it_comes_from(tmp_path):
    fedavg = train(CIFAR10, "classes:2")
    at_one_rate = replace(fedavg, rates=(0.1,))
    put(tmp_path, at_one_rate, scale="tiny", top1=10.0)
    put(tmp_path, Tangent(fedavg), seed=0, top1=60.0, **CHOSEN)
    put(tmp_path, Tangent(fedavg), seed=1, top1=61.0, **CHOSEN)
    assert [(r.scale, r.seed) for r in Results(tmp_path).of(at_one_rate)] == [("half", 0), ("half", 1)]
    put(tmp_path, at_one_rate, scale="half", top1=20.0)  # its own goes before what is the same
    assert [r.accuracy() for r in Results(tmp_path).of(at_one_rate)] == [20.0, 61.0]
    put(tmp_path, fedavg, top1=70.0, **CHOSEN)
    assert [(r.scale, r.accuracy()) for r in Results(tmp_path).of(at_one_rate)] == [("full", 70.0)]


def test_a_mean_over_seeds_says_how_each_was_made(tmp_path):
    run = train(CIFAR10, "classes:2", "scaffold")
    put(tmp_path, run, seed=0, top1=40.0, **CHOSEN)
    put(tmp_path, run, seed=1, top1=50.0, holdout=0.0, lr_given=0.1)
    put(tmp_path, run, seed=2, top1=10.0, loss=None, **CHOSEN)
    found = shown(tmp_path, run)
    assert found.accuracy == pytest.approx(100 / 3)
    assert found.accuracies == [40.0, 50.0, 10.0]
    assert found.label == "full; full, rate 0.1 given; full, diverged"


@pytest.mark.parametrize(
    ("how", "label"),
    [
        ({"holdout": 0.0}, "full, nothing held out"),  # one rate, run beside others for which one was given
        ({}, "full"),
        ({"grid_rounds": 40}, "full"),
        ({"grid_rounds": 8}, "full, rate after 8 rounds"),  # which is central training's fifth
    ],
)
def test_what_differs_from_the_protocol_is_in_the_label(how, label, tmp_path):
    put(tmp_path, FEDADAM, **how)
    assert shown(tmp_path, FEDADAM).label == label


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"run": "x", "scale": "huge", "config": {"seed": 0}}'])
def test_what_is_no_result_is_named(text, tmp_path):
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(FedtctError, match=r"other\.json"):
        Results(tmp_path)


def test_grids_are_the_papers():
    baselines = {cell.run for table in ("table2", "table3") for cell in cells(table) if "tct" not in cell.method}
    grids = {run.method: run.rates for run in baselines}
    assert grids == dict.fromkeys(("fedavg", "fedprox", "scaffold", "feddyn", "centralized"), GRID) | {
        "fedadam": FEDADAM_GRID
    }


def test_another_step_than_the_papers_is_in_the_label_of_tct_alone(tmp_path):
    fedavg = train(CIFAR10, "classes:1")
    put(tmp_path, Tangent(fedavg), lr_used=3.46e-5, refused="it diverges")
    assert shown(tmp_path, Tangent(fedavg)).label == "full, stage 2's step smaller: 5e-05 diverges"
    assert shown(tmp_path, fedavg).label == "half"
