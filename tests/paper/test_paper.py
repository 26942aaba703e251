"""The whole evaluation, end to end at scale tiny: no table and no figure can rot."""

import contextlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

import fedtct
from fedtct.cli.paper import parts
from fedtct.errors import FedtctError
from fedtct.paper import runner as module
from fedtct.paper.figures import FASHION, figures, train
from fedtct.paper.folder import OutOfTime
from fedtct.paper.order import by_value
from fedtct.paper.protocol import SCALES, STAGE1_IS, Retrain, Tangent, Train
from fedtct.paper.report import draw_panel, page, write_report
from fedtct.paper.results import Result, Results
from fedtct.paper.runner import Runner
from fedtct.paper.tables import TITLES, cells
from fedtct.report.looks import COLOURS
from fedtct.runs.environment import git_commit
from fedtct.runs.folder import RunFolder

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.xdist_group("paper")  # they share one costly fixture


def all_runs():
    shown = [cell.run for cell in cells()]
    shown += [curve.run for figure in figures().values() for panel in figure.panels for curve in panel.curves]
    return list(dict.fromkeys(shown))


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paper")
    runner = Runner(folder / "state", folder / "results", scale="tiny")
    runner.run(all_runs())
    return folder, runner


def test_the_evaluation_is_the_papers():
    sizes = {table: len(cells(table)) for table in TITLES}
    assert sizes == dict(zip(TITLES, (12, 51, 12, 8, 16, 4, 16, 16, 16), strict=True))
    assert [len(figure.panels) for figure in figures().values()] == [2, 3, 3, 3, 2, 4, 4]


@pytest.mark.parametrize(
    ("losses", "diverged"), [((0.9, 0.1), False), ((0.9, 1e34), True), ((0.9, None), True), ((), True)]
)
def test_stage2_that_ends_worse_than_it_began_has_diverged(losses, diverged):
    rows = [{"stage": "stage1", "round": 100, "train_loss": 0.01}]
    rows += [{"stage": "stage2", "round": n} | ({} if x is None else {"train_loss": x}) for n, x in enumerate(losses)]
    record = {"top1_percent": 50.0 if losses else None, "rows": rows}
    assert Result("full", 0, record).diverged is diverged


def test_stage_1_is_fedavg_at_another_scale(tmp_path):
    lengths = dict.fromkeys(("stage1", "stage2", "grid", "central"), 0) | {"name": ""}
    for tct, fedavg in STAGE1_IS.items():
        longer, shorter = SCALES[tct], SCALES[fedavg]
        assert replace(longer, **lengths, rounds=longer.stage1) == replace(shorter, **lengths)

    split = "dirichlet:0.5"
    fedavg, tct = train(FASHION, split), Tangent(train(FASHION, split))
    whole = Results(ROOT / "results" / "paper").of(fedavg)[0]
    shutil.copy(ROOT / "results" / "paper" / f"{tct.name}-full-seed0.json", tmp_path)
    (half,) = Results(tmp_path).of(fedavg)
    assert half.scale == "half"
    assert half.record["rows"] == whole.record["rows"][:101]  # both were written by runs
    assert half.accuracy() == pytest.approx(100 * whole.record["rows"][100]["test_accuracy"])
    assert Results(tmp_path).of(replace(fedavg, rates=(0.1,)))
    assert not Results(tmp_path).of(replace(fedavg, rates=(0.01,)))
    assert not Results(tmp_path).of(replace(fedavg, method="fedprox"))


def test_names_tell_runs_apart():
    runs = all_runs()
    assert len({run.name for run in runs}) == len(runs)
    keys = [(cell.table, cell.key) for cell in cells()]
    assert len(set(keys)) == len(keys)


def test_everything_once_and_the_most_valuable_first():
    order = by_value()
    assert len(order) == len(set(order))
    assert set(order) == set(all_runs())
    place = {run: index for index, run in enumerate(order)}
    last_of_fashion = max(place[run] for run in order if run.name.startswith("fashion-mnist"))
    assert last_of_fashion < min(place[run] for run in order if run.name.startswith("cifar"))
    for run in order:
        if isinstance(run, Tangent) and Tangent(run.network) in place:
            assert place[Tangent(run.network)] <= place[run]
    for network in {run.network for run in order if isinstance(run, Tangent)}:
        tangents = [place[run] for run in order if isinstance(run, Tangent) and run.network == network]
        others = [place[network]] if network.dataset == "fashion-mnist" and network in place else []
        assert max(tangents) - min(tangents) + 1 <= len(tangents) + len(others)  # while its weights are at hand


def test_settings_in_notes_are_understood():
    rates = {cell.run.lr for cell in cells("table8")}
    assert sorted(rates) == pytest.approx([10**-5.5, 1e-5, 10**-4.5, 1e-4])
    assert {cell.run.steps for cell in cells("table9")} == {50, 100, 500, 1000}
    fedadam = {cell.run.rates[0] for cell in cells("table7") if isinstance(cell.run, Train)}
    assert sorted(fedadam) == pytest.approx([1e-3, 10**-2.5, 1e-2, 10**-1.5])


def test_every_run_has_a_result(done):
    _, runner = done
    for run in all_runs():
        record = json.loads(runner.result(run).read_text())
        assert record["run"] == run.name
        assert record["commit"] == git_commit(Path(fedtct.__file__))
        assert record["rows"]
        assert record["top1_percent"] is not None or "refused" in record


def test_stage_2_goes_on_from_fedavg(done):
    _, runner = done
    network = Train("cifar10", "resnet18-bn", "random", "classes:2", "fedavg")
    for share in (0.0, 1.0):
        rows = json.loads(runner.result(Tangent(network, share=share)).read_text())["rows"]
        stage1 = [row for row in rows if row["stage"] == "stage1"]
        fedavg = json.loads(runner.result(network).read_text())["rows"]
        assert len(stage1) == round(share * 2) + 1
        keys = ("round", "train_accuracy", "test_accuracy")
        assert [[r[k] for k in keys] for r in stage1] == [[r[k] for k in keys] for r in fedavg[: len(stage1)]]
        assert [row["round"] for row in rows if row["stage"] == "stage2"] == [0, 1, 2]


def test_one_set_of_features_serves_all_ways_of_stage_2(done):
    """The same run alone, in a folder of its own, ends the same."""
    folder, runner = done
    network = Train("cifar10", "resnet18-bn", "random", "classes:2", "fedavg")
    run = Tangent(network, steps=100)
    alone = Runner(folder / "alone", folder / "alone-results", scale="tiny")
    alone.run([run])

    def metrics(which):
        rows = json.loads(which.result(run).read_text())["rows"]
        return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]

    assert metrics(alone) == metrics(runner)


def test_retraining_leaves_the_frozen_layers(done):
    _, runner = done
    record = json.loads(runner.result(next(r for r in all_runs() if isinstance(r, Retrain) and r.trained)).read_text())
    assert record["config"]["trainable"].startswith("last:")
    assert record["config"]["init_weights"]


def test_weights_to_retrain_are_found_though_the_model_was_left_elsewhere(done, tmp_path):
    """Of what is carried from machine to machine, a checkpoint is enough."""
    folder, runner = done
    run = next(r for r in all_runs() if isinstance(r, Retrain) and r.trained)
    shutil.copytree(folder / "state", tmp_path / "state")
    for path in (tmp_path / "state").iterdir():
        shutil.rmtree(path if run.name in path.name else path / "model", ignore_errors=True)
    again = Runner(tmp_path / "state", tmp_path / "results", scale="tiny")
    again.run([run])
    first, second = (json.loads(r.result(run).read_text())["top1_percent"] for r in (runner, again))
    assert first == second


@pytest.mark.usefixtures("empty_pictures")
def test_the_report_shows_everything(done, tmp_path):
    folder, _ = done
    write_report(Results(folder / "results"), tmp_path)
    text = (tmp_path / "results.md").read_text()
    assert "Not run yet" not in text
    pictures = [
        f"images/paper/{name}-{k}.svg" for name, figure in figures().items() for k in range(1, 1 + len(figure.panels))
    ]
    assert all((tmp_path / picture).is_file() and picture in text for picture in pictures)
    assert text.count("|  | tiny: 60 samples of digits, mlp |") >= 140  # beside no difference: it is other data
    assert "0 of 151 numbers" in text


def test_a_finding_stands_below_what_it_is_about(done):
    results = Results(done[0] / "results")
    text = page(results, "## Findings\n\nin short\n\n## Table 2\n\nof two\n\n## Figure 1\n\nof one\n")
    order = ["## Findings", "in short", "## Table 1", "## Table 2", "of two", "## Table 3", "## Figure 1", "of one"]
    places = [text.index(f"{part}\n" if part.islower() else part) for part in order]
    assert places == sorted(places)
    assert text.count("## Table 2") == 1
    with pytest.raises(FedtctError, match="'Table 10', which is not a table or figure"):
        page(results, "## Table 10\n\nof none\n")


def test_a_glance_counts_what_is_close():
    lines = page(Results(ROOT / "results" / "paper")).splitlines()
    of_table_6 = [float(line.split("|")[7]) for line in lines if "tct-one-round" in line]
    near, far = sum(abs(d) <= 2 for d in of_table_6), [sum(s * d > 2 for d in of_table_6) for s in (1, -1)]
    told = next(line for line in lines if line.startswith("| Table 6: "))
    assert told.split("|")[2:-1] == [f" {count} " for count in (4, len(of_table_6), near, *far)]


def test_curves_of_a_panel_can_be_told_apart(done):
    folder, _ = done
    results = Results(folder / "results")
    drawn = [(panel, Figure().add_subplot()) for figure in figures().values() for panel in figure.panels]
    for panel, axes in drawn:
        draw_panel(results, panel, axes)
        looks = [(line.get_linestyle(), line.get_color()) for line in axes.get_legend_handles_labels()[0]]
        assert len(looks) == len(set(looks))
    assert max(len(axes.get_legend_handles_labels()[0]) for _, axes in drawn) == len(COLOURS)


def test_a_curve_has_the_same_look_before_others_are_run(done, tmp_path):
    panel = next(panel for panel in figures()["figure2"].panels if panel.title == "SCAFFOLD")
    last = panel.curves[-1].run
    (tmp_path / "alone").mkdir()
    shutil.copy(done[1].result(last), tmp_path / "alone")

    def look(folder):
        axes = Figure().add_subplot()
        draw_panel(Results(folder), panel, axes)
        line = axes.get_legend_handles_labels()[0][-1]
        return line.get_linestyle(), line.get_color()

    assert look(tmp_path / "alone") == look(done[0] / "results")


def test_out_of_time_after_every_round_is_as_never_stopped(tmp_path, done):
    _, finished = done
    run = Train("fashion-mnist", "simple-cnn", "random", "classes:2", "scaffold")
    sittings = 0
    while not (later := Runner(tmp_path / "s", tmp_path / "r", scale="tiny", minutes=0)).result(run).is_file():
        sittings += 1
        with contextlib.suppress(OutOfTime):
            later.run([run])
    assert sittings > SCALES["tiny"].rounds

    def curve(runner):
        return [row["test_accuracy"] for row in json.loads(runner.result(run).read_text())["rows"]]

    assert curve(later) == curve(finished)


@pytest.mark.parametrize(
    ("option", "recorded", "label"),
    [
        ({"grid_rounds": 1}, {"grid_rounds": 1}, "tiny: 60 samples of digits, mlp, rate after 1 rounds"),
        ({"lr": 0.03}, {"lr_given": 0.03}, "tiny: 60 samples of digits, mlp, rate 0.03 given"),
        ({}, {"grid_rounds": 2}, "tiny: 60 samples of digits, mlp"),
    ],
    ids=["earlier", "given", "as the scale says"],
)
@pytest.mark.parametrize(("split", "method"), [("classes:2", "fedavg"), ("pooled", "centralized")])
def test_how_a_rate_was_chosen_is_told(option, recorded, label, split, method, tmp_path):
    run = Train("fashion-mnist", "simple-cnn", "random", split, method)
    runner = Runner(tmp_path / "s", tmp_path / "r", scale="tiny", **option)
    runner.run([run])
    record = json.loads(runner.result(run).read_text())
    assert recorded.items() <= record.items()
    assert record["config"]["lr"] == option.get("lr", record["config"]["lr"])
    assert record["config"]["holdout"] == (0 if "lr" in option else 0.1)
    assert [result.label for result in Results(tmp_path / "r").of(run)] == [label]


def test_a_given_rate_is_not_taken_where_there_is_no_choice(tmp_path):
    run = Train("fashion-mnist", "simple-cnn", "random", "classes:2", "fedavg", rates=(0.01,))
    runner = Runner(tmp_path / "s", tmp_path / "r", scale="tiny", lr=0.03)
    runner.run([run])
    assert json.loads(runner.result(run).read_text())["config"]["lr"] == 0.01


def test_runs_with_other_settings_are_not_gone_on_with(tmp_path, monkeypatch):
    run = Train("fashion-mnist", "simple-cnn", "random", "classes:2", "fedavg", rates=(0.01,))
    Runner(tmp_path / "s", tmp_path / "r", scale="tiny").run([run])
    monkeypatch.setattr(module, "HOLDOUT", 0.2)
    with pytest.raises(FedtctError, match="is a run with another holdout: remove it, or give another --state"):
        Runner(tmp_path / "s", tmp_path / "other", scale="tiny").run([run])


def test_a_rate_that_was_given_finds_no_weights_of_another(tmp_path):
    run = Tangent(Train("fashion-mnist", "simple-cnn", "random", "classes:2", "fedavg"))
    for number, lr in enumerate((0.03, 0.01)):
        runner = Runner(tmp_path / "s", tmp_path / f"{number}", scale="tiny", lr=lr)
        runner.run([run])
        assert json.loads(runner.result(run).read_text())["config"]["lr"] == lr


def test_unknown_names_are_refused(tmp_path):
    with pytest.raises(FedtctError, match="there is no 'table10'"):
        parts("table10")
    with pytest.raises(FedtctError, match="unknown scale"):
        Runner(tmp_path, tmp_path, scale="huge")


def test_the_page_in_the_docs_is_made_from_the_results(tmp_path):
    """If this fails: fedtct paper report."""
    results = ROOT / "results"
    for path in write_report(Results(results / "paper"), tmp_path, (results / "findings.md").read_text()):
        if path.suffix != ".png":  # how text is rasterised may differ from machine to machine
            assert path.read_bytes() == (ROOT / "docs" / path.relative_to(tmp_path)).read_bytes(), path.name


@pytest.mark.parametrize("where", ["after a checkpoint", "before stage 2"])
def test_a_stop_at_the_worst_moment_loses_nothing(where, tmp_path, monkeypatch):
    network = Train("cifar10", "resnet18-bn", "random", "classes:2", "fedavg")
    run = Tangent(replace(network, rates=(0.1,)), share=0.5)
    runner = Runner(tmp_path / "state", tmp_path / "results", scale="tiny")
    stops = iter([KeyboardInterrupt])
    save, write = RunFolder.save, module.write_text

    def stopped_save(self, stage, checkpoint):
        save(self, stage, checkpoint)
        if where == "after a checkpoint" and (stage, checkpoint.round) == ("stage1", 1):
            for stop in stops:
                raise stop

    def stopped_write(path, text):
        if where == "before stage 2" and path.name == "metrics.jsonl":
            for stop in stops:
                raise stop
        write(path, text)

    monkeypatch.setattr(RunFolder, "save", stopped_save)
    monkeypatch.setattr(module, "write_text", stopped_write)
    with pytest.raises(KeyboardInterrupt):
        runner.run([run])
    runner.run([run])
    rows = json.loads(runner.result(run).read_text())["rows"]
    assert [(row["stage"], row["round"]) for row in rows if row["stage"] != "convexify"] == [
        ("stage1", 0),
        ("stage1", 1),
        ("stage2", 0),
        ("stage2", 1),
        ("stage2", 2),
    ]
