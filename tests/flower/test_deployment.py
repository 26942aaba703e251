"""Real SuperLink and SuperNode processes on loopback, with TLS and node authentication."""

import json
import os
import signal
import ssl
import subprocess
import time
from dataclasses import replace
from http.client import HTTPSConnection
from pathlib import Path

import pytest
import torch
from flower_helpers import SILOS, local, parts, write_npz

import fedtct
from fedtct.deploy import processes
from fedtct.deploy.app_folder import RUN, make_app
from fedtct.deploy.check import check_silo
from fedtct.deploy.keys import make_keys
from fedtct.deploy.local import LocalDeployment
from fedtct.deploy.running import process_of
from fedtct.deploy.silo_config import SiloConfig
from fedtct.importing import import_function
from fedtct.runs.config import RunConfig
from fedtct.runs.metrics import read_rows
from fedtct.runs.settings import HOLDOUT

SETTINGS = {"model": "mlp", "local_epochs": 1, "p": 300, "steps": 20, "stage2": "scaffold", "seed": 0, "device": "cpu"}
CLIENT = Path("fedtct_app") / "client_app.py"
LIMIT = 240.0  # seconds for a run, on a slow and busy machine
four = pytest.mark.xdist_group("four silos")  # one federation serves these tests


def app_of(folder: Path, silos: int, server: dict[str, object], **settings: object) -> Path:
    app = make_app(folder)
    values = "".join(f"{k} = {json.dumps(v)}\n" for k, v in (SETTINGS | {"silos": silos} | settings).items())
    table = "".join(f"{k} = {json.dumps(v)}\n" for k, v in ({"round_timeout": 100, "wait": 60} | server).items())
    (app / RUN).write_text(f"{values}\n[server]\n{table}")
    return app


def data_of(folder: Path, silos: int) -> dict[str, str]:
    return {f"s{i}": str(write_npz(folder / f"s{i}.npz", x, y)) for i, (x, y) in enumerate(parts(silos))}


def until(done, process: subprocess.Popen[bytes], log: Path, seconds: float = LIMIT) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


def kill(process: subprocess.Popen[bytes]) -> None:
    """A power cut: the process and all it started, at once."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("four")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # many processes share the cores: threads would only wait
        with LocalDeployment(folder / "federation", data_of(folder, SILOS)) as running:
            yield running


@pytest.fixture
def intruders(deployment, tmp_path):
    """A SuperNode with a key of its own making, and one without TLS; both try while runs go on."""
    address = f"127.0.0.1:{deployment.port}"
    make_keys(tmp_path / "forged", ["s1"], address)
    forged = tmp_path / "forged" / "s1"
    (forged / "ca.crt").write_bytes((deployment.server / "ca.crt").read_bytes())
    wrong_key = processes.supernode(SiloConfig.read(forged / "silo.toml"), forged / "silo.toml", processes.free_port())
    plain = [wrong_key[0], "--insecure", "--superlink", address, "--port", str(processes.free_port())]
    started = {}
    for name, command in {"wrong key": wrong_key, "no TLS": [*plain, "--max-retries", "2"]}.items():
        log = (tmp_path / f"{name}.log").open("wb")
        where = processes.environment(tmp_path / name)
        started[name] = (
            subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=where),
            tmp_path / f"{name}.log",
        )
    yield started
    processes.stop([process for process, _ in started.values()])


def status(deployment, path: str, source: str) -> int:
    """What the server answers to somebody at another address of this machine, who need not be a silo."""
    context = ssl.create_default_context(cafile=deployment.server / "ca.crt")
    caller = HTTPSConnection("127.0.0.1", deployment.port, context=context, source_address=(source, 0))
    caller.request("POST", path)
    return caller.getresponse().status


def assert_same_model(deployment, app: Path, out: Path, settings: dict[str, object], go_on: bool = False) -> None:
    """Run over the deployment, or go on with a run that was stopped; in this process the model is the same."""
    said = []
    assert deployment.run(app, {"resume" if go_on else "out": str(out)}, said.append), said
    there = fedtct.Classifier.load(out / "model", device="cpu")
    here = RunConfig.of(**SETTINGS | settings).build(10).fit(local(parts(), HOLDOUT)).model
    for name, tensor in here._tensors().items():
        torch.testing.assert_close(there._tensors()[name], tensor, rtol=1e-5, atol=1e-5)
    answered = [json.loads(line) for line in (out / "silos.jsonl").read_text().splitlines()]
    assert all(set(line["bytes_up"]) == {"s0", "s1", "s2", "s3"} and not line["missing"] for line in answered)
    assert not list(deployment.folder.glob("s*/cache/fedtct-runs/*/*"))


@four
def test_the_same_run_gives_the_same_model_and_strangers_are_refused(deployment, intruders, tmp_path):
    settings = {"method": "fedavg", "rounds": [2]}
    app = app_of(tmp_path / "app", SILOS, {"num_classes": 10}, **settings)
    assert_same_model(deployment, app, tmp_path / "run", settings)
    for process, text in intruders.values():
        assert process.wait(LIMIT) != 0
        assert "SuperNode ID" not in text.read_text()
    for path in ("/v1/control/start-run", "/v1/control/register-node", "/v1/runtime/pull-app-inputs", "/docs"):
        assert status(deployment, path, "127.0.0.2") == 403
        assert status(deployment, path, "127.0.0.1") != 403
    assert status(deployment, "/v1/fleet/create-node", "127.0.0.2") != 403


@four
@pytest.mark.slow  # minutes on a slow machine
def test_a_server_that_was_killed_goes_on_to_the_same_model(deployment, tmp_path):
    settings = {"method": "tct", "rounds": [1, 1]}
    app = app_of(tmp_path / "app", SILOS, {"num_classes": 10}, **settings)
    log, out = tmp_path / "run.log", tmp_path / "run"
    run = deployment.submit(app, {"out": str(out)}, log)
    until((out / "checkpoints" / "stage1.safetensors").exists, run, log)
    kill(deployment.link)
    processes.stop([run])
    deployment.start_server()
    assert_same_model(deployment, app, out, settings, go_on=True)


def missing(run: Path, question: str) -> list[set[str]]:
    """Who did not answer, each time that a question was asked."""
    lines = (run / "silos.jsonl").read_text().splitlines() if (run / "silos.jsonl").is_file() else []
    return [set(line["missing"]) for line in map(json.loads, lines) if line["question"] == question]


HELD = '''"""The silos' app, in which silos wait before they answer, where there is a gate for them and the question."""

import time
from pathlib import Path

from flwr.clientapp import ClientApp

from fedtct.deploy.client_app import client_app, deployed_silo

app = ClientApp()
answer = client_app(deployed_silo)


@app.train()
@app.query()
def handle(message, context):
    gate = Path(context.node_config["silo"]).parent / message.content.config_records["config"]["fedtct.question"]
    if gate.is_dir():
        (gate / "asked").touch()
        while not (gate / "open").exists():
            time.sleep(0.1)
    return answer(message, context)
'''


def hold(deployment, silo: str, question: str) -> Path:
    """A silo will not answer a question before there is a file ``open`` here; ``asked`` tells that it was asked."""
    (gate := deployment.folder / silo / question).mkdir()
    return gate


@pytest.mark.slow  # minutes: Flower lets a silo that died in again when it has missed two heartbeats
@pytest.mark.xdist_group("dying")
def test_a_silo_that_died_comes_back(tmp_path):
    """It dies while it prepares its features, is gone on without, and is told how to prepare them when it is back."""
    settings = {"method": "tct", "rounds": [1, 8], "stage2_lr": 0.01}  # the largest step may not be safe for all
    app = app_of(tmp_path / "app", 3, {"min_silos": 2, "grace": 30}, **settings)
    (app / CLIENT).write_text(HELD)
    log, out = tmp_path / "run.log", tmp_path / "run"
    with LocalDeployment(tmp_path / "federation", data_of(tmp_path, 3)) as running:
        gate = hold(running, "s2", "normalise")
        run = running.submit(app, {"out": str(out)}, log)
        until((gate / "asked").exists, run, log)
        kill(running.nodes["s2"])
        until(lambda: missing(out, "regress"), run, log)
        (gate / "open").touch()
        running.start_silo("s2")
        until(lambda: missing(out, "regress")[-1] == set(), run, log)
        run.wait(LIMIT)
    assert missing(out, "normalise") == missing(out, "regress")[:1] == [{"s2"}]
    rows = [row for row in read_rows(out) if row.stage == "stage2"]
    assert rows[-1].silos == rows[-1].rated_by == ("s0", "s1", "s2")
    assert rows[-1].train_loss < rows[1].train_loss


@four
@pytest.mark.slow  # half a minute each
@pytest.mark.parametrize(
    "settings",
    [
        {"method": "fedprox", "rounds": [2]},
        {"method": "scaffold", "rounds": [3]},
        {"method": "feddyn", "rounds": [3]},
        {"method": "fedadam", "rounds": [2]},
        {"method": "fedavg-last-layer", "rounds": [2]},
        {"method": "tct", "rounds": [1, 3]},
        {"method": "tct", "rounds": [1, 2], "stage2": "fedavg"},
        {"method": "tct", "rounds": [1, 2], "stage2": "gradient-descent"},
        {"method": "tct", "rounds": [1, 4], "stage2": "conjugate-gradient", "pretext": "rotations"},
        {"method": "tct", "rounds": [1, 1], "stage2": "ridge", "d": 200},
    ],
    ids=lambda settings: "-".join([settings["method"], settings.get("stage2", "")]),
)
def test_every_other_method_too(settings, deployment, tmp_path):
    app = app_of(tmp_path / "app", SILOS, {"num_classes": 10}, **settings)
    assert_same_model(deployment, app, tmp_path / "run", settings)


OWN_MODEL = """from torch import nn

def build(shape, outputs):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.GroupNorm(4, 16), nn.ReLU(), nn.Linear(16, outputs))
"""
OWN_METHOD = """import fedtct


class Halved(fedtct.FedAvg):
    def round(self, federation, state, number):
        after, replies = super().round(federation, state, number)
        return after | {"parameters": (state["parameters"] + after["parameters"]) / 2}, replies
"""


@four
@pytest.mark.slow  # half a minute; the same is tested without processes
def test_a_model_of_ones_own_in_the_app_folder(deployment, tmp_path):
    app = app_of(tmp_path / "app", SILOS, {}, method="fedavg", rounds=[1], model="fedtct_app.model:build")
    (app / "fedtct_app" / "model.py").write_text(OWN_MODEL)
    out, said = tmp_path / "run", []
    assert deployment.run(app, {"out": str(out)}, said.append), said
    build = import_function("model:build", app / "fedtct_app")
    there = fedtct.Classifier.load(out / "model", model=build, device="cpu")
    settings = SETTINGS | {"method": "fedavg", "rounds": [1]}
    here = replace(RunConfig.of(**settings).build(10), model=build).fit(local(parts(), HOLDOUT)).model
    torch.testing.assert_close(there._tensors()["parameters"], here._tensors()["parameters"], rtol=1e-5, atol=1e-5)


@four
@pytest.mark.slow
def test_a_method_of_ones_own_in_the_app_folder(deployment, tmp_path):
    app = app_of(tmp_path / "app", SILOS, {}, method="fedtct_app.method:Halved", rounds=[2])
    (app / "fedtct_app" / "method.py").write_text(OWN_METHOD)
    out, said = tmp_path / "run", []
    assert deployment.run(app, {"out": str(out)}, said.append), said
    there = fedtct.Classifier.load(out / "model", device="cpu")
    usual = RunConfig.of(**SETTINGS | {"method": "fedavg", "rounds": [2]}).build(10)
    halved = import_function("method:Halved", app / "fedtct_app")(**vars(usual))
    here, other = (method.fit(local(parts(), HOLDOUT)).model._tensors()["parameters"] for method in (halved, usual))
    torch.testing.assert_close(there._tensors()["parameters"], here, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(here, other, atol=1e-3)


@four
@pytest.mark.slow  # half a minute; the same is tested without processes
def test_a_silo_with_data_of_another_shape_is_named_at_the_server(deployment, tmp_path):
    file, (x, y) = deployment.silo_file("s3"), parts()[3]
    before = file.read_text()
    odd = write_npz(tmp_path / "odd.npz", x[..., :7], y)
    file.write_text(before.replace("s3.npz", "odd.npz").replace(str(deployment.folder.parent / "odd.npz"), str(odd)))
    said = []
    try:
        app = app_of(tmp_path / "app", SILOS, {}, method="fedavg", rounds=[1])
        assert not deployment.run(app, {"out": str(tmp_path / "run")}, said.append)
    finally:
        file.write_text(before)
    reason = (
        "samples have shape (1, 8, 8) in s0, s1, s2 and (1, 8, 7) in s3: they must be alike; for folders of images set "
        "image_size (--image-size in a command)"
    )
    assert said[-1] == f"fedtct: stopped: {reason}"
    assert said[:-1] == ["fedtct: warning: labels go up to 9, but no silo has 7, 8, which cannot be learnt"]
    assert not (tmp_path / "run").exists()


@pytest.mark.slow  # Flower takes a minute to notice who died; test_grid_absences.py has the same without processes
@four  # the silos that die in it stay dead: after it comes only what needs none of them
def test_silos_that_die_are_gone_on_without(deployment, tmp_path):
    """One in stage 1 and one in stage 2, each while it works on an answer; none of the others answers before that."""
    app = app_of(
        tmp_path / "app", SILOS, {"min_silos": 2, "grace": 1}, method="tct", rounds=[1, 1], stage2="ridge", d=200
    )
    (app / CLIENT).write_text(HELD)
    log, out = tmp_path / "run.log", tmp_path / "run"
    dying = {"train": "s3", "sums": "s2"}
    gates = {(silo, question): hold(deployment, silo, question) for question in dying for silo in deployment.nodes}
    run = deployment.submit(app, {"out": str(out)}, log)
    for question, victim in dying.items():
        until((gates[victim, question] / "asked").exists, run, log)
        kill(deployment.nodes[victim])
        for silo in deployment.nodes.keys() - {victim}:
            (gates[silo, question] / "open").touch()
    run.wait(LIMIT)
    assert fedtct.Classifier.load(out / "model", device="cpu").kind == "tangent", log.read_text()
    rows = [row for row in read_rows(out) if row.round]
    assert [row.stage for row in rows] == ["stage1", "stage2"]
    assert {"s0", "s1", "s2"} >= set(rows[0].silos)
    assert rows[1].silos == rows[1].rated_by == ("s0", "s1")
    assert all("s3" in silos for silos in missing(out, "train") + missing(out, "evaluate"))
    assert missing(out, "sums") == missing(out, "assess") == [{"s2", "s3"}]


@four
def test_check_tells_in_words_what_is_right_and_what_is_not(deployment, tmp_path):
    """Of a silo that runs; of one that is let in; then of one with another CA, a key nobody knows, and no server."""
    address = f"127.0.0.1:{deployment.port}"
    until(lambda: process_of(deployment.folder / "s0" / "flwr"), deployment.link, deployment.server / "superlink.log")
    findings = list(check_silo(deployment.silo_file("s0")))
    assert all(finding.right for finding in findings), findings
    assert findings[-1].text == f"trust: this silo is running (process {os.getpid()}): the server has let it in"
    processes.stop([deployment.nodes["s0"]])
    findings = list(check_silo(deployment.silo_file("s0")))
    assert all(finding.right for finding in findings), findings
    assert [finding.text.split(":")[0] for finding in findings] == ["data", "key", "server", "TLS", "trust"]
    make_keys(tmp_path / "forged", ["s1"], address)
    forged = tmp_path / "forged" / "s1"
    write_npz(forged / "data.npz", *parts()[0])
    assert [finding.right for finding in check_silo(forged / "silo.toml")] == [True, True, True, False]
    (forged / "ca.crt").write_bytes((deployment.server / "ca.crt").read_bytes())
    (forged / "s1.key").chmod(0o644)
    assert [finding.right for finding in check_silo(forged / "silo.toml")] == [True, False, True, True]
    (forged / "s1.key").chmod(0o600)
    findings = list(check_silo(forged / "silo.toml"))
    assert [finding.right for finding in findings] == [True, True, True, True, False]
    assert "does not let this silo in" in findings[-1].text
    text = (forged / "silo.toml").read_text()
    (forged / "silo.toml").write_text(text.replace('name = "s1"', 'name = "s2"'))
    findings = list(check_silo(forged / "silo.toml"))
    assert [finding.right for finding in findings] == [True, False, True, True]
    assert findings[1].text == "key: s1.key was made for s1, but this silo's name is s2: fix name in silo.toml"
    text = text.replace(address, f"127.0.0.1:{processes.free_port()}")
    (forged / "silo.toml").write_text(text)
    (forged / "data.npz").unlink()
    assert [finding.right for finding in check_silo(forged / "silo.toml")] == [False, True, False]
