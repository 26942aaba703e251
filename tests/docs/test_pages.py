"""Commands and numbers in the pages: commands exist or run, numbers are those of results/."""

import json
import re
from collections import Counter
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from benchmarks.deployment import PARTS
from doc_helpers import PAGES, ROOT, blocks, commands, run, run_python, unknown
from studies import airlines, many_silos, stage2_rounds, views

from fedtct.paper.figures import figures
from fedtct.paper.results import Results
from fedtct.paper.tables import cells

DOCS = ROOT / "docs"
RUN_ELSEWHERE = ["demo"]  # by tests/cli/test_process.py


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_is_one_that_fedtct_knows(page: Path) -> None:
    for words in commands(page, "sh", "text", "console"):
        assert unknown(words) == [], f"fedtct {' '.join(words)}"


@pytest.mark.parametrize("name", ["start", "from-pytorch", "reproduce"])
def test_the_commands_of_a_page_run_as_printed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = DOCS / f"{name}.md"
    for words in commands(page, "sh"):
        if words != RUN_ELSEWHERE:
            run(words, capsys)
    for block in blocks(page, "python"):
        run_python(block)


RETRAINED = ("fedavg", "retrain1-fedavg", "retrain3-fedavg")  # of table 1, that how-it-works.md tells of


def record(name: str) -> dict:
    return json.loads((ROOT / "results" / name).read_text(encoding="utf-8"))


def findings() -> str:
    return " ".join((ROOT / "results" / "findings.md").read_text(encoding="utf-8").split())


def percents(page: str) -> set[str]:
    return set(re.findall(r"\d+\.\d %", (DOCS / page).read_text(encoding="utf-8")))


def test_the_numbers_of_how_it_works_are_those_of_its_record() -> None:
    found = record("how-it-works.json")
    of_methods = [share for shares in found["where_fedavg_fails"].values() for share in shares]
    shares = [*of_methods, *found["what_tangent_features_see"].values()]
    runs = [f"cifar10-resnet18-bn-random-classes2-{run}-full-seed0.json" for run in RETRAINED]
    table1 = {f"{record(f'paper/{run}')['top1_percent']:.1f} %" for run in runs}
    assert percents("how-it-works.md") <= {f"{100 * share:.1f} %" for share in shares} | table1

    losses = {f"{loss:.3f}" for loss in found["stage2_and_the_split"].values()}
    assert set(re.findall(r"\b0\.\d{3}\b", (DOCS / "how-it-works.md").read_text(encoding="utf-8"))) == losses
    ridge = [loss for name, loss in found["stage2_and_the_split"].items() if name.startswith("Ridge")]
    assert max(ridge) - min(ridge) < 1e-7 * max(ridge), "the page says that they agree to seven digits"


def test_the_table_of_choose_is_made_from_results() -> None:
    spec = spec_from_file_location("methods", DOCS / "methods.py")
    assert spec is not None
    assert spec.loader is not None
    methods = module_from_spec(spec)
    spec.loader.exec_module(methods)
    page = (DOCS / "choose.md").read_text(encoding="utf-8")
    assert methods.markdown(record("digits-methods.json")["table"]) in page


def test_how_many_rounds_stage_2_takes_and_what_learning_without_labels_brings_is_what_was_measured() -> None:
    page = (DOCS / "choose.md").read_text(encoding="utf-8")
    assert stage2_rounds.markdown(record("stage2-rounds.json")["runs"]) in page
    assert airlines.markdown(record("airlines.json")["runs"]) in page
    assert views.markdown(record("views.json")["runs"]) in page
    assert many_silos.markdown(record("many-silos.json")["runs"]) in page
    for model, name in (("simple-cnn", "small CNN"), ("resnet18-bn", "ResNet-18")):
        of_one_epoch = [run for run in record("bootstrapping.json") if run["config"]["local_epochs"] == 1]
        runs = {run["learnt"]: run for run in of_one_epoch if run["config"]["model"] == model}
        found = {learnt: f"{100 * run['test_accuracy']:.1f}" for learnt, run in runs.items()}
        (rounds, _), d = (runs["labels"]["config"][setting] for setting in ("rounds", "d"))
        augment = {"none": "no augmentation"}.get(augment := runs["labels"]["config"]["augment"], augment)
        row = f"**{found['rotations']}** | {found['labels']} | {found['nothing']} |"
        assert f"| {name}, {rounds} rounds, {d:,} features, {augment} | {row}" in page


def test_a_method_whose_rate_is_the_least_that_was_tried_with_every_seed_is_told_of() -> None:
    found, text = record("airlines.json"), " ".join((DOCS / "choose.md").read_text(encoding="utf-8").split())
    least = min(found["config"]["rates"])
    rates: dict[str, set[float]] = {}
    for one in found["runs"]:
        rates.setdefault(one["method"], set()).add(one["lr"])
    for method in [method for method, taken in rates.items() if taken == {least}]:
        assert f"{method} has the smallest of the three rates with every seed, {least}" in text


def test_how_long_pooled_data_is_trained_on_is_told() -> None:
    results = Results(ROOT / "results" / "paper")
    runs = {cell.run: cell.dataset for cell in cells() if cell.table == "table1" or cell.method == "centralized"}
    rounds: dict[int, set[str]] = {}
    for pooled, dataset in runs.items():
        for found in results.of(pooled):
            rounds.setdefault(found.record["rows"][-1]["round"], set()).add(dataset)
    assert rounds == {40: {"cifar10", "cifar100"}, 200: {"fashion-mnist"}}
    text = " ".join((DOCS / "results.md").read_text(encoding="utf-8").split())
    assert "have 40 rounds of 5 epochs, Fashion-MNIST's Centralized 200." in text


def test_findings_tell_of_every_rate_on_cifar_that_was_chosen() -> None:
    results = Results(ROOT / "results" / "paper")
    of_cifar = [(cell.table, results.of(cell.run)) for cell in cells() if cell.dataset.startswith("cifar")]
    assert Counter(table for table, found in of_cifar if found and "grid" in found[0].record) == {
        "table1": 1,
        "table4": 4,
    }
    assert "Exceptions are a cell of table 1, four of table 4, and figure 1's linear models." in findings()


def test_findings_tell_where_many_steps_without_correction_fit_least() -> None:
    results = Results(ROOT / "results" / "paper")
    for panel in figures()["figure4"].panels:
        without = {
            curve.run.steps: results.of(curve.run)[0].record["rows"][-1]
            for curve in panel.curves
            if curve.run.solver == "fedavg"
        }
        assert min(without, key=lambda steps: without[steps]["test_accuracy"]) == 1000
        fitted = {steps: row["train_accuracy"] for steps, row in without.items()}
        if min(fitted, key=fitted.__getitem__) != 1000:
            told = "M = 1000 {:.1%}, M = 100 {:.1%}, M = 10 {:.1%}".format(*(fitted[m] for m in (1000, 100, 10)))
            assert told.replace("%", " %") in findings()


def test_findings_compare_tct_with_baselines_of_equally_many_rounds() -> None:
    results = Results(ROOT / "results" / "paper")
    for panel in figures()["figure6"].panels[1::2]:  # the others are of training
        runs = {curve.label: results.of(curve.run)[0] for curve in panel.curves}
        shorter = [runs[f"TCT from {rounds} % of stage 1"].curves("test")[1] for rounds in (20, 40, 60)]
        tct = [f"{100 * dict(points)[100]:.1f}" for points in shorter]
        stage1, _ = runs["TCT from 100 % of stage 1"].curves("test")
        baselines = [stage1, *(runs[name].curves("test")[1] for name in ("FedProx", "SCAFFOLD"))]
        others = [f"{100 * dict(points)[100]:.1f}" for points in baselines]
        most = max(value for points in baselines for number, value in points if number <= 100)
        for told in (*tct, *others, f"{100 * most:.1f} %"):
            assert told in findings().partition("## Figure 6")[2], told


def test_how_much_sooner_silos_are_ready_for_conjugate_gradients_is_what_was_measured() -> None:
    (ready,) = [row for row in record("bench-cpu.json")["rows"] if row["what"].startswith("ready for conjugate")]
    assert "silos of 5,000" in ready["what"]
    page = " ".join((DOCS / "choose.md").read_text(encoding="utf-8").split())
    assert f"With 5,000 samples per silo, this is {ready['plain'] / ready['ours']:.1f} times as fast" in page


def test_what_a_deployment_costs_is_what_was_measured() -> None:
    rounds, alone, wire, whole = record("bench-deployment.json")["rows"]
    sizes, told = wire["detail"], whole["detail"]
    sentences = [
        f"takes {rounds['ours']:.1f} s, of which {rounds['floor']:.2f} s are local work",
        f"and {rounds['plain']:.1f} s with Flower's own SuperNodes",
        f"takes {whole['ours']:.0f} s with stage 2 in one round",
        f"and {whole['plain']:.0f} s with {told['rounds']} rounds, {told['seconds_a_round']:.1f} s each",
        f"accuracy is {told['one_round_test_accuracy']:.1%} and {told['many_rounds_test_accuracy']:.1%}",
        f"{sizes['fp16_bytes_up'] / 1e6:.2f} MB a round instead of {sizes['fp32_bytes_up'] / 1e6:.2f} MB",
        f"FedAvg's accuracy after four rounds is the same ({sizes['fp16_test_accuracy']:.1%})",
        f"took {wire['ours']:.1f} s, against {wire['plain']:.1f} s in fp32",
    ]
    assert sizes["fp16_test_accuracy"] == sizes["fp32_test_accuracy"]
    sentences.append(f"With a single silo it takes {alone['ours']:.1f} s")
    for name in PARTS.values():
        cells = (f"{row['detail'][name]:.2f} s" for row in (rounds, alone))
        sentences.append(f"| {name.removeprefix('seconds ')} | {' | '.join(cells)} |")
    page = " ".join((DOCS / "deployment.md").read_text(encoding="utf-8").split())
    for sentence in sentences:
        assert sentence.replace("%", " %") in page
