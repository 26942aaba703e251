"""What is found out beside a run: it is true, it changes nothing, and it is found once."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from torch import nn

from fedtct import FedAvg
from fedtct.errors import FedtctError
from fedtct.report.page.write import render
from fedtct.runs import findings
from fedtct.runs.common_class import accuracy_in_mix
from fedtct.runs.compare import comparison
from fedtct.runs.config import RunConfig
from fedtct.runs.execute import execute
from fedtct.runs.finding_types import ALONE
from fedtct.runs.findings import Judge, alone, class_counts, confusion, confusion_matrix, find_all
from fedtct.runs.folder import RunFolder
from fedtct.runs.jobs import Job, prepare

CONFIG = RunConfig.of(limit=150, silos=3, rounds=(2, 3), local_epochs=1, p=200, steps=10, holdout=0.2)


def run(path: Path, config: RunConfig = CONFIG) -> RunFolder:
    folder = RunFolder.create(path, config)
    execute(folder, find_all)
    return folder


def test_findings_change_neither_the_run_nor_its_bytes(tmp_path: Path) -> None:
    found = run(tmp_path / "a")
    job = prepare(CONFIG)
    alone_in_memory = CONFIG.build(job.num_classes).fit(job.silos, test=job.test)
    rows = [
        [asdict(replace(row, seconds=0.0)) for row in history] for history in (found.history, alone_in_memory.history)
    ]
    assert rows[0] == rows[1]


def test_a_silo_that_cannot_train_alone_does_not_cost_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "silos").mkdir()
    for name, n in {"a": 40, "b": 40, "c": 1}.items():  # BatchNorm trains on no single sample
        rows = "".join(f"{k % 7},{k * k % 5},{k % 2}\n" for k in range(n))
        (tmp_path / "silos" / f"{name}.csv").write_text("u,v,y\n" + rows)
    (tmp_path / "normed.py").write_text(
        "from torch import nn\n"
        "def build(shape, outputs):\n"
        "    return nn.Sequential(nn.Linear(shape[0], 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, outputs))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    settings = {"model": "normed:build", "rounds": (0, 1), "stage2": "ridge", "d": 20, "holdout": 0.2}
    config = RunConfig.of(data=str(tmp_path / "silos"), target="y", silos=3, **settings)
    with pytest.warns(UserWarning, match=r"what silos would reach alone could not be computed: .* single sample"):
        folder = run(tmp_path / "run", config)
    assert folder.finished
    assert folder.finding(ALONE) is None


def test_memory_that_runs_out_afterwards_does_not_cost_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(findings, "alone", Mock(side_effect=torch.OutOfMemoryError("CUDA out of memory\nand more")))
    with pytest.warns(UserWarning, match=r"what silos would reach alone could not be computed: CUDA out of memory$"):
        assert run(tmp_path / "run", CONFIG).finished


def test_a_run_computes_in_the_precision_that_it_says(tmp_path: Path) -> None:
    losses = {
        precision: run(tmp_path / precision, replace(CONFIG, precision=precision, device="cpu")).history[-1].train_loss
        for precision in ("auto", "fp32", "bf16")
    }
    assert losses["auto"] == losses["fp32"] != losses["bf16"]
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=0.1)
    with pytest.raises(FedtctError, match="unknown precision 'fp16'"):
        prepare(replace(CONFIG, precision="fp16"))


def test_they_agree_with_what_silos_and_the_server_say(tmp_path: Path) -> None:
    folder = run(tmp_path / "a")
    last, job = folder.history[-1], prepare(CONFIG)
    silos, classes, split = (folder.finding(name) for name in ("silos", "classes", "split"))
    assert silos is not None
    assert classes is not None
    assert split is not None
    assert silos["own"] == pytest.approx(last.silo_accuracies)  # on what they hold out
    assert silos["everybody"] == pytest.approx(last.test_accuracy)
    found = torch.tensor(classes["confusion"])
    assert found.sum(1).tolist() == job.test.y.bincount(minlength=10).tolist()
    assert int(found.diagonal().sum()) == round(last.test_accuracy * len(job.test.y))
    held = [len(silo) + len(silo.held_y) for silo in job.silos]
    assert [sum(silo["counts"]) for silo in split["silos"]] == held


def test_a_silo_that_has_what_is_tested_is_judged_as_the_test_set_is(tmp_path: Path) -> None:
    folder = run(tmp_path / "a", replace(CONFIG, holdout=0.0))
    job, model = prepare(folder.config), folder.fit().model
    found = confusion_matrix(model, *job.test).double()
    assert accuracy_in_mix(found, found.sum(1)) == pytest.approx(model.score(*job.test))
    judge = Judge.of(job, model.spec)
    assert judge is not None
    counts = class_counts(job, model.spec)
    assert judge.rate(model, [1])["own"] == [pytest.approx(accuracy_in_mix(found, counts[1]))]
    only = torch.zeros(10)
    only[4] = 7
    assert accuracy_in_mix(found, only) == pytest.approx(float(found[4, 4] / found[4].sum()))


@pytest.mark.filterwarnings("ignore:stage1 diverged")
@pytest.mark.parametrize("holdout", [0.0, 0.2])
def test_a_network_that_diverged_recognises_nothing(tmp_path: Path, holdout: float) -> None:
    folder = run(tmp_path / "a", replace(CONFIG, method="fedavg", rounds=(2,), lr=1e30, holdout=holdout))
    for name in ("silos", "alone"):
        found = folder.finding(name) or {}
        assert torch.tensor([found["everybody"]]).count_nonzero() == 0
        assert found["own"] == [0.0] * 3
    classes = torch.tensor((folder.finding("classes") or {})["confusion"])
    assert classes[:, :-1].count_nonzero() == 0
    assert int(classes.sum()) == len(prepare(folder.config).test.y)  # samples without an answer count, too


def test_a_single_silo_alone_is_centralized_training(tmp_path: Path) -> None:
    config = RunConfig.of(method="centralized", limit=150, silos=1, split="iid", rounds=(1,), local_epochs=3)
    folder = run(tmp_path / "a", config)
    found = folder.finding(ALONE)
    assert found is not None
    assert found["settings"]["epochs"] == 3
    assert found["everybody"] == [pytest.approx(folder.history[-1].test_accuracy)]


def test_many_models_of_silos_alone_are_rated_on_a_part_of_the_test_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drawn of all of it: what they have there is within what chance does to what they have on the whole."""
    in_full = run(tmp_path / "full").finding(ALONE)
    monkeypatch.setattr(findings, "RATED_ALONE", 600)
    monkeypatch.setattr(findings, "LEAST_RATED", 10)
    folder = run(tmp_path / "part")
    in_part = folder.finding(ALONE)
    assert in_full is not None
    assert in_part is not None
    assert "samples" not in in_full
    assert in_part["samples"] == 200  # a silo, of the 360 that there are
    assert in_part["own"] == in_full["own"]  # on what silos hold out: all of that
    for part, whole in zip(in_part["everybody"], in_full["everybody"], strict=True):
        assert abs(part - whole) < 4 * (0.25 / 200) ** 0.5
    assert in_part["everybody"] != in_full["everybody"]
    page = render([folder])
    assert "the whole test set (for silos’ own models 200 samples of it, drawn at random)" in page


def test_runs_of_a_comparison_share_what_silos_reach_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = []

    def counted(folder: RunFolder, job: Job, judge: Judge) -> dict[str, object]:
        found = alone(folder, job, judge)
        trained.append(folder.watcher)
        return found

    begun: list[str] = []
    monkeypatch.setattr("fedtct.runs.findings.alone", counted)
    monkeypatch.setattr("fedtct.runs.watcher.Watcher.begin", lambda self, stage, *rest: begun.append(stage))
    settings = {"limit": 150, "silos": 3, "rounds": 2, "local_epochs": 1, "p": 200, "steps": 10}
    plan = comparison(["fedavg", "scaffold", "tct"], ["classes:4"], [0, 1], settings)
    runs = plan.execute(tmp_path / "all", look=find_all)
    assert len(trained) == 6
    assert begun.count(ALONE) == 2  # once a seed
    answers = {json.dumps(folder.finding(ALONE)) for folder in runs.values()}
    assert len(answers) == 2
    begun.clear()
    tuned = comparison(["fedavg", "scaffold"], ["classes:4"], [0], settings | {"lr": "0.1,0.2", "holdout": 0.2})
    tuned.execute(tmp_path / "tuned", look=find_all)
    assert begun.count(ALONE) == 2  # once a learning rate


def test_what_was_found_is_not_computed_again(tmp_path: Path) -> None:
    folder = run(tmp_path / "a")

    def never() -> dict[str, object]:
        raise AssertionError

    folder.find_out("alone", never)
    assert RunFolder.read(tmp_path / "a").finding("nothing") is None


def test_classes_that_no_test_sample_has_do_not_count() -> None:
    found = torch.tensor([[3.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 1.0]])
    assert accuracy_in_mix(found, torch.tensor([10, 70, 30])) == pytest.approx((10 * 0.75 + 30 * 0.5) / 40)


def test_samples_that_a_model_has_no_finite_score_for_count_as_not_recognised() -> None:
    x, y = torch.randn(40, 2, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2
    network = nn.Linear(2, 2)
    network.weight.data = torch.tensor([[2.0, 2.0], [-2.0, -2.0]])
    model = FedAvg(network, rounds=0).fit([(x, y)]).model
    x[:10] = 3e38  # twice that overflows
    found = torch.tensor(confusion(model, x, y)["confusion"], dtype=torch.float64)
    assert found.sum(1).tolist() == [20, 20]
    assert found[:, -1].tolist() == [5, 5]
    assert accuracy_in_mix(found, found.sum(1)) == pytest.approx(model.score(x, y))
