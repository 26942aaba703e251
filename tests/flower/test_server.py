"""The server's side of a deployment: its settings, and going on after a crash."""

import json
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from flower_helpers import InlineGrid, local, parts, write_npz
from PIL import Image

import fedtct
from fedtct.deploy.app_folder import RUN, make_app
from fedtct.deploy.server_app import serve
from fedtct.deploy.server_config import ServerConfig, read_run
from fedtct.federation.flower import post
from fedtct.federation.flower.wire import FORGET
from fedtct.report.page import silos
from fedtct.report.page.problems import arrange
from fedtct.runs.config import RunConfig
from fedtct.runs.folder import RunFolder
from fedtct.runs.saved import Saved, write_card
from fedtct.runs.settings import OWN_DEFAULTS
from fedtct.runs.toml import as_toml

pytestmark = pytest.mark.usefixtures("no_pauses")
SETTINGS = {"model": "mlp", "local_epochs": 1, "p": 300, "steps": 20, "silos": 4, "device": "cpu"}

HEAVY_BALL = """
import fedtct

class HeavyBall(fedtct.IterativeRegression):
    correction = "scaffold"

    def round(self, federation, state, number, lr):
        after, replies = super().round(federation, state, number, lr)
        v = 0.5 * state.get("v", 0.0) + after["w"] - state["w"]
        return {"w": state["w"] + v, "v": v}, replies
"""


class Crash(Exception):
    """The server's process ends, whatever it was doing."""


def crash_at(question: str, number: int, silo: int):
    """Raise when a silo is asked a question for the n-th time; those before it have answered by then."""

    def before(message):
        if grid_of[0].asked.count((silo, question)) == number:
            grid_of[0].before = lambda message: None
            raise Crash

    grid_of: list[InlineGrid] = []
    return before, grid_of


@pytest.mark.parametrize(
    ("method", "question", "number"),
    [
        ("scaffold", "train", 2),
        ("feddyn", "train", 3),
        ("tct", "normalise", 1),
        ("tct", "regress", 1),
        ("tct", "regress", 3),
        ("own", "regress", 3),
        ("private", "sums", 1),
    ],
)
def test_a_server_that_crashed_goes_on_and_ends_with_the_same_model(method, question, number, tmp_path, monkeypatch):
    settings = {"method": method, "rounds": (1, 4) if method == "tct" else (4,)}
    if method == "own":
        (tmp_path / "heavy.py").write_text(HEAVY_BALL)
        monkeypatch.syspath_prepend(tmp_path)
        settings = {"method": "tct", "rounds": (1, 4), "stage2": "heavy:HeavyBall"}
    if method == "private":
        settings = {"method": "tct", "rounds": (3, 1), "stage2": "ridge", "d": 100, "epsilon": 50.0}
    config = RunConfig.of(**SETTINGS, **settings)
    expected = config.build(10).fit(local(parts())).model
    grid = InlineGrid(tmp_path, parts())
    grid.before, known = crash_at(question, number, 102)
    known.append(grid)
    server = ServerConfig(out=str(tmp_path / "run"), round_timeout=1.0, wait=0.0, num_classes=10)
    with pytest.raises(Crash):
        serve(grid, config, server)
    moments = grid.asked.count((100, "moments"))
    fit = serve(grid, config, server, resume=str(tmp_path / "run"))
    for name, tensor in expected._tensors().items():
        torch.testing.assert_close(fit.model._tensors()[name], tensor, rtol=1e-5, atol=1e-6)
    assert not list(tmp_path.glob("cache*/*"))
    assert all(row.silos == ("s0", "s1", "s2", "s3") for row in fit.history if row.round)
    assert grid.asked.count((100, "moments")) <= moments + 1
    assert serve(grid, config, server, resume=str(tmp_path / "run")).model.kind == fit.model.kind


def test_a_server_that_crashed_when_all_was_done_has_silos_remove_what_they_kept_and_reports(tmp_path, capsys):
    grid = InlineGrid(tmp_path, parts())
    grid.before, known = crash_at("forget", 1, 100)
    known.append(grid)
    config = RunConfig.of(**SETTINGS, method="scaffold", rounds=(1,))
    server = ServerConfig(out=str(tmp_path / "run"), round_timeout=1.0, num_classes=10)
    with pytest.raises(Crash):
        serve(grid, config, server)
    assert list(tmp_path.glob("cache*/*"))
    (tmp_path / "run" / "report.html").unlink()  # it may have crashed before it was written, too
    capsys.readouterr()
    serve(grid, config, server, resume=str(tmp_path / "run"))
    assert not list(tmp_path.glob("cache*/*"))
    assert (tmp_path / "run" / "report.html").is_file()
    assert capsys.readouterr().out == f"fedtct: finished already: everything is in {tmp_path / 'run'}\n"


def test_a_silo_that_is_silent_at_the_end_delays_neither_the_report_nor_the_end_by_much(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(post, "FORGET_SECONDS", 0.2)
    grid, report = InlineGrid(tmp_path, parts()), tmp_path / "run" / "report.html"

    def before(message):
        if grid.asked[-1][1] == FORGET:
            assert report.is_file()
            grid.gone.add(103)

    grid.before = before
    config = RunConfig.of(**SETTINGS, method="scaffold", rounds=(1,))
    start = time.monotonic()
    serve(grid, config, ServerConfig(out=str(tmp_path / "run"), round_timeout=600.0))
    assert time.monotonic() < start + 60
    assert (103, FORGET) in grid.asked
    assert [path.parent.name for path in tmp_path.glob("cache*/*")] == ["cache3"]
    assert "s3 did not answer 'forget': no answer within 0.2 s" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("method", "question", "number"),
    [("fedavg", "train", 2), ("scaffold", "train", 3), ("tct", "regress", 1), ("tct", "regress", 3)],
)
def test_a_run_that_goes_on_without_a_silo_solves_the_same_problem(method, question, number, tmp_path):
    """Stopped and resumed, or never stopped: a silo that is missing from then on changes neither pixels' scale nor
    features'."""
    config = RunConfig.of(**SETTINGS, method=method, rounds=(1, 4) if method == "tct" else (4,))

    def leave(grid, stop):
        def before(message):
            if grid.asked.count((100, question)) == number:
                grid.before = lambda message: None
                grid.offline.add(103)
                if stop:
                    raise Crash

        return before

    fits = []
    for stop in (False, True):
        folder = tmp_path / f"stop-{stop}"
        grid = InlineGrid(folder, parts())
        grid.before = leave(grid, stop)
        server = ServerConfig(out=str(folder / "run"), min_silos=3, round_timeout=0.3, wait=0.0)
        if stop:
            with pytest.raises(Crash):
                serve(grid, config, server)
        fits.append(serve(grid, config, server, resume=server.out if stop else ""))
    never, again = fits
    assert again.model.spec.record() == never.model.spec.record()
    for name, tensor in never.model._tensors().items():
        torch.testing.assert_close(again.model._tensors()[name], tensor, rtol=1e-5, atol=1e-6)


def test_a_silo_whose_data_no_longer_fits_is_refused_when_the_run_goes_on(tmp_path):
    config = RunConfig.of(**SETTINGS, method="fedavg", rounds=(3,))
    grid = InlineGrid(tmp_path, parts())
    grid.before, known = crash_at("train", 2, 100)
    known.append(grid)
    server = ServerConfig(out=str(tmp_path / "run"), round_timeout=1.0, wait=0.0)
    with pytest.raises(Crash):
        serve(grid, config, server)
    x, y = parts()[1]
    grid.setups[101] = replace(grid.setups[101], load=lambda: fedtct.Silo(x, y + 9))
    with pytest.raises(fedtct.FedtctError, match=r"s1 cannot continue this run: it has label 1\d, but"):
        serve(grid, config, server, resume=server.out)
    grid.setups[103] = replace(grid.setups[103], load=lambda: fedtct.Silo(x[:0], y[:0]))
    with pytest.raises(fedtct.FedtctError, match="s3: silo is empty"):
        serve(grid, config, server, resume=server.out)
    with pytest.raises(fedtct.FedtctError, match=r"1 cannot continue .* it has label"):
        serve(grid, config, replace(server, min_silos=3), resume=server.out)
    with pytest.raises(fedtct.FedtctError, match="started with 10 classes, not 12"):
        serve(grid, config, replace(server, num_classes=12, min_silos=2), resume=server.out)
    fit = serve(grid, config, replace(server, min_silos=2), resume=server.out)  # as in any round, the others are enough
    assert fit.history[-1].silos == ("s0", "s2")
    notes = [json.loads(line) for line in (tmp_path / "run" / "silos.jsonl").read_text().splitlines()]
    missing = [note["missing"] for note in notes if note["question"] == "train"][-1]
    assert "it has label 1" in missing["s1"]
    assert missing["s3"].startswith("silo is empty")


def test_silos_keep_nothing_of_a_run_that_was_refused_at_its_beginning(tmp_path):
    data = parts()
    data[2] = (data[2][0][..., :7], data[2][1])
    grid, server = InlineGrid(tmp_path, data), ServerConfig(out=str(tmp_path / "run"), round_timeout=1.0, wait=0.0)
    with pytest.raises(fedtct.FedtctError, match="they must be alike"):
        serve(grid, RunConfig.of(**SETTINGS, method="fedavg", rounds=(1,)), server)
    assert not list(tmp_path.glob("cache*/*"))
    assert not (tmp_path / "run").exists()


def test_a_run_toml_is_checked(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('method = "fedavg"\nrounds = [2]\nsilos = 3\n[server]\nmin_silos = 2\nwire = "fp16"\n')
    config, server = read_run(file, {"out": "here"})
    assert (config.method, config.silos, server.min_silos, server.out) == ("fedavg", 3, 2, "here")
    assert server.terms(3).fp16
    assert (config.dataset, config.split) == ("silos' own data", "own")
    for text, message in {
        "[server]\nwaite = 3": "unknown setting 'waite': did you mean 'wait'",
        "round = [2]": "did you mean 'rounds'",
        "[server]\nwire = 'fp8'": "wire must be",
        "[server]\nout = 5": "out must be text in quotes, it is 5",
        "[server]\nround_timeout = '600'": "round_timeout must be a number",
        "[server]\nwait = nan": "wait must be a number",
        "[server]\nmin_silos = true": "min_silos must be a whole number",
        "silos = 3\n[server]\nmin_silos = 5": "min_silos must be from 1 to the number of silos, 3",
        "[server]\nnum_classes = -3": "num_classes must not be negative",
        "server = 3": "must be a table",
        "method = 'centralized'\nrounds = 3": "needs all data in one place",
        "method = 'fedavg'\nepsilon = 8.0": "set num_classes in",
        "model = 'nowhere:build'": "no nowhere:build to import",
        "method = 'tct'\nstage2 = 'nowhere:Solve'\nrounds = [1, 1]": "no nowhere:Solve to import",
        "rounds = [": "not valid TOML",
        "holdout = 0.0": "holdout belongs to each silo: set it in silo.toml",
        "data = 'patients.csv'": "data belongs to each silo",
        "group = 'patient'": "group belongs to each silo",
    }.items():
        file.write_text(text)
        with pytest.raises(fedtct.FedtctError, match=message):
            read_run(file)
    with pytest.raises(fedtct.FedtctError, match="cannot read"):
        read_run(tmp_path / "none.toml")


def test_what_a_run_toml_does_not_say_is_as_for_own_data_here_or_as_the_run_was_begun(tmp_path):
    app = make_app(tmp_path / "app")
    config, _ = read_run(app / RUN)
    assert {name: getattr(config, name) for name in OWN_DEFAULTS} == OWN_DEFAULTS
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text(replace(config, d=4096).to_toml())  # as was usual once
    assert read_run(app / RUN, resume=tmp_path / "run")[0] == replace(config, d=4096)
    assert read_run(app / RUN, {"d": 200}, resume=tmp_path / "run")[0] == replace(config, d=200)
    with pytest.raises(fedtct.FedtctError, match="is not a run"):
        read_run(app / RUN, resume=tmp_path / "none")


def test_settings_that_were_changed_are_refused_when_a_run_goes_on(tmp_path):
    config = RunConfig.of(**SETTINGS, method="fedavg", rounds=(2,))
    grid, server = InlineGrid(tmp_path, parts()), ServerConfig(out=str(tmp_path / "run"), round_timeout=1.0, wait=0.0)
    grid.before, known = crash_at("train", 1, 100)
    known.append(grid)
    with pytest.raises(Crash):
        serve(grid, config, server)
    with pytest.raises(fedtct.FedtctError, match=r"other settings: lr was 0\.1, now it is 0\.2"):
        serve(grid, replace(config, lr=0.2), server, resume=server.out)
    lines = [json.loads(line) for line in (tmp_path / "run" / "silos.jsonl").read_text().splitlines()]
    assert [line["question"] for line in lines] == ["describe"]  # it is asked before there is a folder
    assert serve(grid, config, replace(server, min_silos=2), resume=server.out).history[-1].round == 2
    lines = [json.loads(line) for line in (tmp_path / "run" / "silos.jsonl").read_text().splitlines()]
    assert [line["question"] for line in lines] == ["describe", "describe", "train", "train", "evaluate"]


def test_a_server_whose_test_data_is_another_when_the_run_goes_on_says_so(tmp_path):
    config = RunConfig.of(**SETTINGS, method="fedavg", rounds=(2,))
    file = write_npz(tmp_path / "test.npz", *parts()[0])
    server = ServerConfig(out=str(tmp_path / "run"), round_timeout=1.0, wait=0.0, num_classes=10, test=str(file))
    grid = InlineGrid(tmp_path, parts())
    grid.before, known = crash_at("train", 2, 100)
    known.append(grid)
    with pytest.raises(Crash):
        serve(grid, config, server)
    write_npz(file, *parts()[1])
    with pytest.warns(UserWarning, match="the files of the test data are not those that the run was started with"):
        serve(grid, config, server, resume=server.out)


def test_of_two_servers_with_one_new_folder_the_second_to_begin_is_refused(tmp_path):
    config = RunConfig.of(**SETTINGS, method="fedavg", rounds=(1,))
    server = ServerConfig(out=str(tmp_path / "run"), round_timeout=1.0, wait=0.0)
    slow = InlineGrid(tmp_path / "slow", parts())

    def other(message):
        slow.before = lambda message: None
        serve(InlineGrid(tmp_path / "fast", parts()), config, server)
        before.update(tree(tmp_path / "run"))

    slow.before, before = other, {}
    with pytest.raises(fedtct.FedtctError, match="exists: choose another folder"):
        serve(slow, config, server)
    assert tree(tmp_path / "run") == before
    assert not list(tmp_path.glob("slow/cache*/*"))


def tree(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_odd_about_the_servers_test_data_is_told_under_its_name(tmp_path, recwarn):
    def patients(towns):
        return pd.DataFrame({"age": range(12), "town": towns}), np.array(["ill", "well"] * 6)

    grid = InlineGrid(tmp_path, [patients(["Ulm", "Rom"] * 6)] * 2)
    x, y = patients(["Ulm", "Oslo"] * 6)
    x.assign(state=y).to_csv(tmp_path / "test.csv", index=False)
    settings = {"method": "fedavg", "rounds": 1, "silos": 2, "split": "own", "data": "elsewhere", "target": "state"}
    server = ServerConfig(out=str(tmp_path / "run"), round_timeout=1.0, test=str(tmp_path / "test.csv"))
    serve(grid, RunConfig.of(**settings), server)
    told = [str(warning.message) for warning in recwarn if "column 'town'" in str(warning.message)]
    assert told
    assert all(text.startswith("the test data: column") for text in told)


def test_the_servers_images_are_scaled_as_the_silos_are(tmp_path):
    """As on one machine: what silos have made their images to be is found when they agree, and told nowhere."""
    for number in range(4):
        (tmp_path / "test" / str(number % 2)).mkdir(parents=True, exist_ok=True)
        image = Image.new("RGB", (20 + number, 30), (60 * number, 0, 0))
        image.save(tmp_path / "test" / str(number % 2) / f"{number}.png")
    pixels = torch.randint(256, (20, 1, 8, 8), dtype=torch.uint8)
    grid = InlineGrid(tmp_path, [(pixels, np.array(["0", "1"] * 10))] * 2)
    server = ServerConfig(out=str(tmp_path / "run"), round_timeout=1.0, test=str(tmp_path / "test"))
    settings = {"method": "fedavg", "rounds": 1, "silos": 2, "split": "own", "data": "elsewhere"}
    fit = serve(grid, RunConfig.of(**settings), server)
    assert fit.history[-1].test_accuracy is not None


def test_test_data_that_is_not_there_is_refused_before_a_silo_is_asked(grid, tmp_path):
    server = ServerConfig(out=str(tmp_path / "run"), test=str(tmp_path / "none"))
    with pytest.raises(fedtct.FedtctError, match=r"test: there is no .*none"):
        serve(grid, RunConfig.of(**SETTINGS, method="fedavg", rounds=(1,)), server)
    assert {question for _, question in grid.asked} <= {FORGET}


def test_files_of_the_servers_are_found_from_the_app_folder(tmp_path):
    (tmp_path / "app" / "fedtct_app").mkdir(parents=True)
    file = tmp_path / "app" / "fedtct_app" / "run.toml"
    file.write_text('init_weights = "start.pt"\n[server]\ntest = "data/test.npz"\n')
    config, server = read_run(file)
    assert server.test == str(tmp_path / "app" / "data" / "test.npz")
    assert config.init_weights == str(tmp_path / "app" / "start.pt")
    assert read_run(file, {"test": "/elsewhere/test.npz"})[1].test == "/elsewhere/test.npz"


@pytest.mark.parametrize("stage2", ["scaffold", "ridge"])
def test_the_report_calls_silos_by_their_names(stage2, tmp_path):
    """Those who are there: one that leaves after stage 1 began is in none of its rows."""
    settings = SETTINGS | {"method": "tct", "rounds": [2, 1], "stage2": stage2, "d": 100}
    (tmp_path / "run.toml").write_text("".join(f"{name} = {as_toml(value)}\n" for name, value in settings.items()))
    config, _ = read_run(tmp_path / "run.toml")
    grid = InlineGrid(tmp_path, parts(), name="clinic-")
    grid.before = lambda message: grid.offline.update({101} if grid.asked.count((103, "train")) == 1 else ())
    run = tmp_path / "run"
    fit = serve(grid, config, ServerConfig(out=str(run), min_silos=3, round_timeout=1.0, num_classes=10))
    stayed = ("clinic-0", "clinic-2", "clinic-3")
    assert fit.history[-1].rated_by == stayed
    (problem,) = arrange([RunFolder.read(run)])
    assert problem.title == "silos' own data, 4 silos, 3 of them to the end"
    (chart, _) = silos.section(problem).blocks
    assert chart.layout["yaxis"]["ticktext"] == chart.data[0]["customdata"] == list(stayed)
    assert tuple(chart.data[0]["x"]) == fit.history[-1].silo_accuracies
    page = (run / "report.html").read_text()
    assert "clinic-3" in page
    assert "fedtct deploy run app" in page
    assert "% on the data that silos train on, not on new samples" in page  # these silos hold nothing out
    assert "fedtct compare" not in page  # nobody can pool what is elsewhere
    left = ", which made the model, ran without clinic-1."
    assert left in page
    card = write_card(Saved.load(run), "model")
    assert left in card
    assert "4 silos, 3 of them to the end" in card
    assert "| clinic-3 |" in card
    if stage2 == "scaffold":
        assert RunFolder.read(run).finding("stage2")["silos"] == list(stayed)
