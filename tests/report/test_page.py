"""The page: what it says about runs, how runs are told apart, and that looking changes nothing."""

import json
import re
import shlex
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedtct.cli import main
from fedtct.report.page import progress, silos, stage2, traffic, write_report
from fedtct.report.page.blocks import ACCURACY, FIELDS, R2, Chart, logarithmic, number
from fedtct.report.page.problems import arrange
from fedtct.report.page.reproduce import command
from fedtct.report.page.write import render, to_json
from fedtct.runs.compare import comparison
from fedtct.runs.config import RunConfig
from fedtct.runs.finding_types import DIVERGED, FORMS
from fedtct.runs.findings import find_all
from fedtct.runs.folder import RunFolder
from fedtct.runs.reading import read_runs
from fedtct.runs.summary import SILO_SAMPLES, Summary
from fedtct.runs.tables import table

pytestmark = pytest.mark.xdist_group("report")  # the runs are made once

RunWith = Callable[..., RunFolder]


def tree(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_the_page_has_everything_in_one_file(compared: Path) -> None:
    page = render(read_runs(compared))
    for text in (
        "FedAvg",
        "TCT",
        "Centralized",
        "digits, classes:4, 3 silos",
        "Test accuracy by megabyte",
        "Who holds",
    ):
        assert text in page
    for text in ("Who gains", "taken for", "Spectrum of each silo", "Distance to the pooled optimum", "git_commit"):
        assert text in page
    assert "fedtct run --dataset digits --split classes:4 --method tct" in page
    assert not [tag for tag in ("<link rel=stylesheet", "<script src", "<img") if tag in page]
    assert 1.5e6 < len(page) < 1.8e6


def test_what_each_silo_sent_and_received_is_what_was_counted(compared: Path) -> None:
    (run,) = [run for run in read_runs(compared) if run.config.method == "tct" and run.config.seed == 0]
    (problem,) = arrange([run])
    shown = traffic.section(problem)
    assert shown is not None
    received, sent, table = shown.blocks
    for chart, field in ((received, "silo_bytes_down"), (sent, "silo_bytes_up")):
        counted = zip(*(getattr(row, field) for row in run.history if row.silos), strict=True)
        drawn = chart.data[0]
        assert drawn["z"] == [pytest.approx([size / 1e6 for size in silo]) for silo in counted]
        assert drawn["colorscale"] == FIELDS
        assert (drawn["zmin"], drawn["zmax"]) == (0, max(map(max, drawn["z"])))
    totals = {row.cells[0]: row.cells[1:] for row in table.rows}
    rows = [row for row in run.history if row.silos]
    for k, name in enumerate(rows[0].silos):
        down, up = (sum(getattr(row, f"silo_bytes_{way}")[k] for row in rows) / 1e6 for way in ("down", "up"))
        assert list(totals[name]) == [str(len(rows)), f"{down:,.2f}", f"{up:,.2f}"]


def test_no_silo_alone_says_how_far_gradient_descent_may_step(compared: Path, run_with: RunWith) -> None:
    run = compared / "tct-classes4-seed0"
    for solver, wall in (("scaffold", True), ("gradient-descent", False), ("conjugate-gradient", False)):
        (problem,) = arrange([run_with(run, solver, stage2=solver)])
        shown = stage2.section(problem)
        assert shown is not None
        titles = {block.title: block for block in shown.blocks if isinstance(block, Chart)}
        assert ("How far steps are from diverging" in titles) == wall == ("would diverge." in shown.intro)
        drawn = titles["Spectrum of each silo’s Gram matrix"].data
        assert len(drawn) == problem.methods[0].config.silos + wall


def test_the_strength_of_ridge_lies_among_the_eigenvalues_that_it_is_added_to(tmp_path: Path) -> None:
    settings = {"limit": 150, "silos": 3, "rounds": (1, 1), "d": 50, "stage2": "ridge"}
    comparison(["tct"], ["classes:4"], [0], settings).execute(tmp_path / "runs", look=find_all)
    (problem,) = arrange(read_runs(tmp_path / "runs"))
    (_, _, found) = next(iter(problem.findings("stage2")))
    (chart,) = [block for block in stage2.section(problem).blocks if isinstance(block, Chart)]  # type: ignore[union-attr]
    _, line = chart.data
    assert line["y"] == [found["ridge"]] * 2
    assert line["text"][0].startswith("ridge ")


def test_of_several_methods_the_mean_silo_is_shown(compared: Path) -> None:
    (problem,) = arrange(read_runs(compared))
    shown = traffic.section(problem)
    assert shown is not None
    for chart, field in zip(shown.blocks, ("bytes_down", "bytes_up"), strict=True):
        for line in chart.data:  # type: ignore[union-attr]
            (method,) = [method for method in problem.methods if method.label == line["name"]]
            counted = [getattr(row, field) / 1e6 for row in method.runs[0].history if row.bytes_up]
            assert line["y"] == pytest.approx(counted, abs=1e-6)


def test_looking_at_a_run_changes_nothing(compared: Path, tmp_path: Path) -> None:
    shutil.copytree(compared, tmp_path / "runs")
    before = tree(tmp_path / "runs")
    write_report(read_runs(tmp_path / "runs"), tmp_path / "page.html")
    assert tree(tmp_path / "runs") == before


@pytest.mark.parametrize("name", FORMS)
def test_findings_of_another_form_are_left_out_and_named(
    name: str, compared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, page = tmp_path / "tct", tmp_path / "page.html"
    shutil.copytree(compared / "tct-classes4-seed0", run)
    file = run / "findings" / f"{name}.json"
    if name == DIVERGED:
        shutil.rmtree(run / "model")
        file.write_text('{"reason": "stage 1 diverged"}')
    assert main(["report", str(run), "--out", str(page)]) == 0
    assert capsys.readouterr().err == ""
    as_it_is, whole = page.read_text(), json.loads(file.read_text())
    of_another_version = [[], {}, {"ranks": 3}, {key: {"of": value} for key, value in whole.items()}]
    for found in of_another_version:
        file.write_text(json.dumps(found))
        warnings.resetwarnings()
        assert main(["report", str(run), "--out", str(page)]) == 0
        (line,) = capsys.readouterr().err.splitlines()
        assert line == f"fedtct: warning: {file} is damaged, or from another version of fedtct: it is ignored"
        file.unlink()
        assert main(["report", str(run), "--out", str(tmp_path / "without.html")]) == 0
        assert page.read_text() == (tmp_path / "without.html").read_text() != as_it_is


def test_a_run_that_goes_on_elsewhere_can_be_looked_at(compared: Path, tmp_path: Path) -> None:
    run = tmp_path / "tct"
    shutil.copytree(compared / "tct-classes4-seed0", run)
    shutil.rmtree(run / "model")
    shutil.rmtree(run / "findings")
    rows = (run / "metrics.jsonl").read_bytes()
    (run / "metrics.jsonl").write_bytes(rows[: rows.index(b"convexify")])  # in the middle of a line
    page = render(read_runs(run))
    assert f"fedtct run --resume {run} resumes it." in re.sub("<[^>]+>", "", page)
    assert "Class by class</h2>" in page
    assert "Not known: the run is not over yet." in page
    assert "How many of each class these are is not known: the run is not over yet" in page
    assert (run / "metrics.jsonl").read_bytes() == rows[: rows.index(b"convexify")]


def test_seeds_of_a_method_are_put_together(compared: Path) -> None:
    (problem,) = arrange(read_runs(compared))
    assert [(method.label, len(method.runs)) for method in problem.methods] == [
        ("FedAvg", 2),
        ("TCT", 2),
        ("Centralized", 2),
    ]


def test_runs_are_told_apart_by_what_differs(compared: Path, run_with: RunWith) -> None:
    tct = compared / "tct-classes4-seed0"
    runs = [run_with(tct, name, p=p) for name, p in (("a", 100), ("b", 200), ("c", 200))]
    (problem,) = arrange(runs)
    assert [method.label for method in problem.methods] == ["TCT (p 100)", "TCT (p 200) [b]", "TCT (p 200) [c]"]
    first, second = arrange([runs[0], run_with(tct, "d", split="iid", p=100)])
    assert (first.title, second.title) == ("digits, classes:4, 3 silos", "digits, iid, 3 silos")
    assert first.methods[0].label == second.methods[0].label == "TCT"
    own = {"data": "silos", "dataset": "silos", "split": "own", "limit": 0}
    others = [run_with(tct, name, **own, target=target) for name, target in (("e", "dose"), ("f", ""))]
    assert [problem.title for problem in arrange(others)] == [
        "silos, 3 silos, target dose",
        "silos, 3 silos, target none",
    ]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"method": "fedprox", "mu": 0.5, "dataset": "cifar10", "seed": 3},
        {"stage2": "ridge", "d": 77, "normalize": False, "rounds": (7, 1), "ridge": 0.25},
        {"lr": 1e-7, "split": "dirichlet:0.3", "holdout": 0.2, "patience": 4, "init_weights": "a file's name"},
    ],
)
def test_the_command_gives_the_same_configuration(settings: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    config = RunConfig.of(**settings)
    said: list[RunConfig] = []
    monkeypatch.setattr("fedtct.cli.run._execute", lambda folder, *rest: said.append(folder.config))
    assert main(shlex.split(command(config))[1:]) == 0
    assert said == [config]


@pytest.mark.parametrize(
    ("typed", "shown"),
    [("/usr/bin/fedtct run --seed 3", "fedtct run --seed 3"), ("/usr/bin/flwr-serverapp --token secret", None)],
)
def test_commands_of_fedtct_alone_are_shown(typed: str, shown: str | None, compared: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(next(compared.glob("fedavg*")), tmp_path / "run")
    sittings = json.loads((folder / "environment.json").read_text())
    (folder / "environment.json").write_text(json.dumps([sittings[0] | {"command": typed}]))
    page = render(read_runs(folder))
    assert f"command: {shown}" in page if shown else "command: " not in page
    assert "secret" not in page


@pytest.mark.parametrize(("worst", "outside"), [(-2.0, True), (-0.5, False), (None, False)])
def test_a_silo_that_the_chart_leaves_outside_is_told_of(worst: float | None, outside: bool) -> None:
    layout = silos._layout([{"x": [worst, 0.3]}], ["north", "south"], R2, "R²")
    assert ("below -1 is outside" in layout["xaxis"]["title"]["text"]) == outside


def test_numbers_and_axes_as_people_write_them() -> None:
    assert [number(v) for v in (0, 0.00129, 1550.2, 12, 3e-7, 1e9)] == ["0", "0.00129", "1,550", "12", "3·10⁻⁷", "10⁹"]
    assert ACCURACY.text(0.9667) == "96.7 %"
    assert [ACCURACY.difference(v) for v in (0.0123, -0.5, -0.00001, None)] == ["+1.2", "−50.0", "0.0", "–"]
    assert R2.text(-0.25) == "−0.250"
    for values in ([0.5, None], [-0.3, 0.9], [-0.01], [-50.0, None, -0.9]):
        low, high = R2.axis_for(values)["range"]
        assert all(low < value < high for value in values if value is not None and value > -1)
        assert -1.1 < low <= 0
    for values in (
        [0.9, 1.1],
        [3.0, 40.0],
        [1e-6, 1e6],
        [5.0],
        [None, 0.0, -1.0],
        [2.3, 2.31],
        [2.0, float("inf"), float("nan")],
    ):
        axis = logarithmic(values)
        low, high = (10**end for end in axis["range"])
        assert 2 <= sum(low <= mark <= high for mark in axis["tickvals"]) <= 9


def test_json_cannot_end_the_script_it_stands_in() -> None:
    assert "</script>" not in to_json({"a": ["</script>", float("nan"), 1 / 3]})
    assert to_json(1 / 3) == "0.33333"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "nowhere is not a run: there is no config.toml in it"),
        (["empty", "--out", "."], "is a folder"),
        (["begun"], "begun has no rounds yet"),
    ],
)
def test_bad_input_gets_a_clear_error(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "config.toml").write_text(RunConfig.of().to_toml())
    assert main(["report", *words]) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert out == ""
    assert not list(tmp_path.rglob("*.html"))


def test_a_run_that_is_named_twice_is_shown_once(compared: Path) -> None:
    runs = read_runs(compared, compared / "tct-classes4-seed0", compared / "../runs")
    assert len(runs) == len(read_runs(compared)) == 6


def test_only_a_report_is_written_over(compared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, thesis = tmp_path / "page.html", tmp_path / "thesis.html"
    thesis.write_text("mine")
    assert main(["report", str(compared), "--out", str(page)]) == 0
    assert main(["report", str(compared), "--out", str(page)]) == 0
    assert main(["report", str(compared), "--out", str(thesis)]) == 2
    assert "thesis.html exists and is not a report" in capsys.readouterr().err
    assert thesis.read_text() == "mine"
    assert main(["report", str(compared), "--out", str(thesis / "below.html")]) == 2
    message = capsys.readouterr().err
    assert message.startswith("fedtct: ")
    assert len(message.splitlines()) == 1


def test_several_runs_on_one_page(compared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [str(compared / f"{method}-classes4-seed0") for method in ("fedavg", "tct")]
    assert main(["report", *runs]) == 0
    assert main(["report", *runs]) == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["report-2.html", "report.html"]


def test_it_says_which_samples_are_a_silos_own_where_seeds_differ_in_that(tmp_path: Path) -> None:
    settings = {"silos": 10, "limit": 400, "rounds": 1, "local_epochs": 1, "holdout": 0.1}
    plan = comparison(["fedavg"], ["dirichlet:0.05"], [0, 1], settings)  # one of seed 0's silos is too small for it
    runs = plan.execute(tmp_path / "runs", look=find_all)
    assert [Summary.of(run).worst_silo_on for run in runs.values()] == ["test", "holdout"]
    assert [line.worst_silo_on for line in table(runs)] == ["test or holdout"]
    (problem,) = arrange(read_runs(tmp_path / "runs"))
    whose = f"is {SILO_SAMPLES['test']} or {SILO_SAMPLES['holdout']};"
    assert whose in silos.section(problem).intro


def test_what_is_dashed_ringed_or_wide_is_told_where_it_is_drawn(compared: Path, run_with: RunWith) -> None:
    def drawn(*runs: RunFolder) -> tuple[str, list[dict[str, Any]]]:
        (problem,) = arrange(runs)
        section = progress.section(problem)
        return section.intro, [trace for chart in section.blocks for trace in chart.data]

    begun = run_with(compared / "tct-classes4-seed0", "begun")
    rows = (begun.path / "metrics.jsonl").read_bytes()
    (begun.path / "metrics.jsonl").write_bytes(rows[: rows.index(b'{"stage": "convexify"')])
    intro, traces = drawn(RunFolder.read(begun.path))
    assert intro == "Stage 1 of TCT is dashed."
    assert {trace["line"]["dash"] for trace in traces if "dash" in trace.get("line", {})} == {"4px,3px"}
    assert not any(trace.get("marker", {}).get("color") == "@page" for trace in traces)

    intro, traces = drawn(*read_runs(*(compared / f"{method}-classes4-seed0" for method in ("fedavg", "tct"))))
    assert "dashed; stage 2 begins at the ring. A line is wider where others lie on it." in intro
    assert {trace["line"]["width"] for trace in traces if trace["name"] == "FedAvg" and trace["mode"] == "lines"} == {5}
    assert any(trace.get("marker", {}).get("color") == "@page" for trace in traces)

    intro, _ = drawn(*read_runs(compared / "fedavg-classes4-seed0"))
    assert intro == ""
