"""fedtct deploy on the command line: what it writes, and what it says when something is wrong."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedtct.cli import deploy, main
from fedtct.deploy import check, processes
from fedtct.deploy.app_folder import RUN, make_app
from fedtct.deploy.keys import make_keys
from fedtct.deploy.server_config import read_run
from fedtct.deploy.silo_config import SiloConfig
from fedtct.runs.config import RunConfig
from fedtct.runs.execute import execute
from fedtct.runs.folder import RunFolder

WITHOUT_FLOWER = """
import sys, importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "flwr" else find(name, *rest)
sys.modules["flwr"] = None
import fedtct
from fedtct.cli import deploy, main
sys.exit(main(sys.argv[1:]))
"""


def test_keys_and_init_make_what_they_say(tmp_path, capsys):
    assert main(["deploy", "keys", str(tmp_path / "keys"), "--silos", "a, b", "--server", "host:8000"]) == 0
    assert f"{tmp_path}/keys/a/silo.toml" in capsys.readouterr().out
    assert main(["deploy", "keys", str(tmp_path / "keys"), "--renew"]) == 0
    assert f"{tmp_path}/keys/server/server.crt" in capsys.readouterr().out
    assert main(["deploy", "init", str(tmp_path / "app"), "--silos", "2"]) == 0
    assert "\nsilos = 2  " in (tmp_path / "app" / "fedtct_app" / "run.toml").read_text()
    files = {str(path.relative_to(tmp_path / "app")) for path in (tmp_path / "app").rglob("*") if path.is_file()}
    app = {f"fedtct_app/{name}" for name in ("__init__.py", "server_app.py", "client_app.py", "run.toml")}
    assert files == {"pyproject.toml", "README.md"} | app


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("keys keys --silos a,a", "a name of its own"),
        ("keys keys --silos a --server nowhere", "HOST:PORT"),
        ("keys keys", "a name of its own"),
        ("keys keys --renew", "lacks ca.key or server/address"),
        ("keys keys --renew --silos a", "add silos with another command"),
        ("check none.toml", "cannot read none.toml"),
        ("silo none.toml", "cannot read none.toml"),
        ("server none", "none/address is missing: make it with fedtct deploy keys"),
        ("run none", "cannot read none/fedtct_app/run.toml"),
        ("up --local 0", "at least one silo"),
        ("up --resume none", "was not made by fedtct deploy up"),
        ("up --resume none --local 2", "leave out other options"),
        ("init app --silos 0", "at least one silo"),
    ],
)
def test_bad_input_is_refused_in_a_line_and_leaves_nothing(command, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["deploy", *command.split()]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_an_app_folder_that_is_there_is_to_be_edited(tmp_path, capsys):
    app = make_app(tmp_path / "app")
    assert main(["deploy", "init", str(app)]) == 2
    assert capsys.readouterr().err == f"fedtct: {app} exists: edit {app / RUN}, or give another folder\n"


def test_an_app_folder_that_a_full_disk_does_not_take_is_not_left_in_parts(tmp_path, monkeypatch, capsys):
    def full(*words, **more):
        (tmp_path / "app" / "fedtct_app").mkdir(parents=True)
        raise shutil.Error([("from", "to", "No space left on device")])

    monkeypatch.setattr(shutil, "copytree", full)
    assert main(["deploy", "init", str(tmp_path / "app")]) == 2
    assert capsys.readouterr().err == f"fedtct: {tmp_path / 'app'} cannot be made: No space left on device\n"
    assert not list(tmp_path.iterdir())


def test_without_a_server_a_run_is_refused_in_a_line_that_says_how_to_start_one(tmp_path, capsys):
    server = tmp_path / "keys" / "server"
    port = processes.free_port()
    make_keys(tmp_path / "keys", ["a"], f"127.0.0.1:{port}")
    assert main(["deploy", "run", str(make_app(tmp_path / "app")), "--server", str(server)]) == 2
    told = f"no server listens on port {port}: start it with `fedtct deploy server {server}`"
    assert capsys.readouterr().err == f"fedtct: {told}\n"


@pytest.mark.parametrize("command", ["server keys", "run app --server keys"])
def test_the_folder_of_all_keys_is_not_that_of_the_server_which_is_named(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    make_keys(Path("keys"), ["a"], "127.0.0.1:8000")
    make_app(Path("app"))
    assert main(["deploy", *command.split()]) == 2
    assert capsys.readouterr().err == "fedtct: keys/address is missing: did you mean keys/server?\n"


def test_a_run_that_is_going_on_is_not_gone_on_with(tmp_path, monkeypatch, capsys):
    """What is waited for is said, and the refusal is all that follows it."""
    monkeypatch.setattr(processes, "ENDS_SECONDS", 0.1)
    monkeypatch.setattr(processes, "listens", lambda port: True)
    make_keys(tmp_path / "keys", ["a"], "127.0.0.1:8000")
    app, run = make_app(tmp_path / "app"), tmp_path / "run"
    run.mkdir()
    (run / "config.toml").write_text(read_run(app / RUN)[0].to_toml())
    with holding(run):
        command = ["deploy", "run", str(app), "--server", str(tmp_path / "keys" / "server"), "--resume", str(run)]
        assert main(command) == 2
    waits, refusal = capsys.readouterr().err.splitlines()
    assert waits.endswith(f"{run} is in use: waiting 0.1 s at most for the other process to end")
    assert refusal.startswith(f"fedtct: {run} is in use by another process: stop")


@contextlib.contextmanager
def holding(folder: Path):
    """Another process runs what is in a folder."""
    code = "import sys, pathlib; from fedtct.runs import lock; lock.hold(pathlib.Path(sys.argv[1]))"
    command = [sys.executable, "-c", f"{code}; print('held', flush=True); sys.stdin.read()", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield
        process.stdin.close()


def test_check_tells_of_a_certificate_that_is_not_there_whether_or_not_there_is_a_server(tmp_path):
    make_keys(tmp_path, ["a"], f"127.0.0.1:{processes.free_port()}")
    file = tmp_path / "a" / "silo.toml"
    (tmp_path / "a" / "ca.crt").write_text("no certificate")
    assert f"TLS: {tmp_path / 'a' / 'ca.crt'} is not a certificate" in [f.text for f in check.check_silo(file)][2]
    (tmp_path / "a" / "ca.crt").unlink()
    *_, certificate, server = check.check_silo(file)
    assert certificate.text.startswith(f"TLS: {tmp_path / 'a' / 'ca.crt'} is missing; ask")
    assert server.text.startswith("server: 127.0.0.1")
    assert not certificate.right
    assert not server.right


def test_a_server_is_not_said_to_be_up_where_another_is(tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        make_keys(tmp_path, ["a"], f"127.0.0.1:{port}")
        assert main(["deploy", "server", str(tmp_path / "server")]) == 2
    assert f"port {port} is in use already" in capsys.readouterr().err


def test_files_that_a_run_names_are_looked_for_before_it_starts(tmp_path, capsys):
    app = make_app(tmp_path / "app")
    text = (app / RUN).read_text().replace('test = ""', 'test = "none.npz"')
    (app / RUN).write_text(text)
    assert main(["deploy", "run", str(app)]) == 2
    assert f"{app / RUN} says test, but there is no {app / 'none.npz'}" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["check", "silo"])
def test_a_function_of_the_silos_own_that_fails_is_told_in_two_lines_at_most(command, tmp_path, capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, "ward", raising=False)
    (tmp_path / "ward.py").write_text('def samples():\n    return {}["age"]\n')
    (tmp_path / "silo.toml").write_text('name = "a"\ndata = "ward:samples"\nserver = "127.0.0.1:1"\n')
    assert main(["deploy", command, str(tmp_path / "silo.toml")]) == 2
    said = capsys.readouterr()
    assert "a: its data, ward:samples, cannot be loaded: KeyError: 'age'" in said.out + said.err
    assert len(said.err.splitlines()) == 1


def test_a_server_that_says_nothing_is_not_waited_for_for_ever(tmp_path, monkeypatch):
    silent = [sys.executable, "-c", "import time; print('connecting', flush=True); time.sleep(60)"]
    monkeypatch.setattr(check, "supernode", lambda silo, file, port: silent)
    monkeypatch.setattr(check, "TRUST_SECONDS", 0.3)
    start = time.monotonic()
    finding = check._be_trusted(SiloConfig("a", "data.npz", folder=tmp_path), tmp_path / "silo.toml")
    assert not finding.right
    assert "did not decide within 0.3 s" in finding.text
    assert time.monotonic() - start < 30


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_told_to_end_stops_its_run_and_says_how_to_go_on(
    number, tmp_path, monkeypatch, capsys, request
):
    before = signal.signal(number, signal.SIG_DFL)  # whoever started the tests may have it ignored, as nohup does
    request.addfinalizer(lambda: signal.signal(number, before))
    submitted = []
    monkeypatch.setattr(processes, "submit", lambda server, app, settings: submitted.append(settings) or [])
    app, run = make_app(tmp_path / "an app"), tmp_path / "a run"

    def begun_and_ended(*rest):
        run.mkdir()
        (run / "config.toml").touch()
        os.kill(os.getpid(), number)

    monkeypatch.setattr(processes, "follow", begun_and_ended)
    for file in (app / "start.pt", tmp_path / "test.npz"):
        file.touch()
    settings = f"rounds = [1, 1]\ninit_weights = 'start.pt'\n[server]\ntest = '{tmp_path / 'test.npz'}'\n"
    (app / RUN).write_text(settings)
    assert main(["deploy", "run", str(app), "--server", "keys/server", "--out", str(run)]) == 130
    assert f"deploy run '{app}' --server keys/server --resume '{run}'" in capsys.readouterr().err
    assert submitted == [{"out": str(run), "init_weights": str(app / "start.pt")}]


@pytest.mark.parametrize(("last", "code"), [("fedtct: stopped: a, b: other columns", 2), ("Flower fell over", 1)])
def test_what_the_server_refuses_is_bad_input_and_a_crash_is_none(last, code, tmp_path, monkeypatch, capsys):
    said = [sys.executable, "-c", f"print({last!r})"]
    monkeypatch.setattr(processes, "submit", lambda server, app, settings: said)
    app, run = make_app(tmp_path / "app"), tmp_path / "run"
    assert main(["deploy", "run", str(app), "--server", str(tmp_path), "--out", str(run)]) == code
    assert capsys.readouterr().err == f"{last}\n"


def test_ctrl_c_before_the_server_began_does_not_advise_to_go_on(tmp_path, monkeypatch, capsys):
    def interrupted(*rest):
        raise KeyboardInterrupt

    monkeypatch.setattr(processes, "submit", lambda server, app, settings: [])
    monkeypatch.setattr(processes, "follow", interrupted)
    app, run = make_app(tmp_path / "app"), tmp_path / "run"
    assert main(["deploy", "run", str(app), "--server", str(tmp_path), "--out", str(run)]) == 130
    assert capsys.readouterr().err == "fedtct: stopped; nothing was started: type the same command again\n"


def test_a_silo_is_not_started_twice(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(deploy, "ENDS_SECONDS", 0.0)
    (tmp_path / "silo.toml").write_text('name = "north"\ndata = "x.npz"')
    home = tmp_path / "flwr"
    home.mkdir()
    (home / "running").write_text("4711")
    code = "import pathlib, sys; from fedtct.runs.lock import hold; hold(pathlib.Path(sys.argv[1])); print(flush=True)"
    command = [sys.executable, "-c", f"{code}; input()", str(home)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        other.stdout.readline()
        assert main(["deploy", "silo", str(tmp_path / "silo.toml")]) == 2
        assert "fedtct: north is running already (process 4711): stop that process first" in capsys.readouterr().err
        other.stdin.close()
    assert main(["deploy", "silo", str(tmp_path / "silo.toml")]) == 2
    assert "x.npz" in capsys.readouterr().err  # it is let go on, and there is no such file


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process outlives one that is killed")
def test_a_command_that_is_killed_leaves_nothing_running():
    code = "import pathlib; from fedtct.deploy import processes; child = processes.start(['cat'], pathlib.Path())"
    command = [sys.executable, "-c", f"{code}; print(child.pid, flush=True); child.wait()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        child = Path("/proc") / parent.stdout.readline().strip()
        assert child.exists()
        parent.kill()
        deadline = time.monotonic() + 10
        while child.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not child.exists()


@pytest.mark.parametrize("words", ["deploy up", "run --engine flower --out run"])
def test_without_flower_everything_else_works_and_these_say_what_to_install(words, tmp_path):
    command = [sys.executable, "-c", WITHOUT_FLOWER, *words.split()]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (2, "fedtct: Flower is not installed: pip install 'fedtct[flower]'\n")


def test_up_starts_nothing_for_a_run_that_is_over(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(processes, "start", lambda *words, **more: pytest.fail("something was started"))
    config = RunConfig.of(limit=100, silos=2, split="iid", method="fedavg", rounds=1)
    execute(RunFolder.create(tmp_path / "demo" / "run", config))
    (tmp_path / "demo" / "run" / "report.html").touch()
    assert main(["deploy", "up", "--resume", str(tmp_path / "demo")]) == 0
    out, err = capsys.readouterr()
    assert f"{tmp_path / 'demo'} is finished already" in err
    assert f"everything is in {tmp_path / 'demo' / 'run'}" in " ".join(out.split())


@pytest.mark.slow  # a minute and a half: two starts of a federation
def test_up_stops_with_everything_it_started_and_goes_on(tmp_path):
    def up(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "fedtct", "deploy", "up", *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True, start_new_session=True)

    process = up("--local", "2", "--rounds", "2", "--out", "demo")
    first_round = tmp_path / "demo" / "run" / "checkpoints" / "stage1.safetensors"
    while not first_round.exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (130, "")
    assert err.endswith("fedtct: stopped; resume with `fedtct deploy up --resume demo`\n")
    wait_until_nothing_runs(tmp_path)
    begun = (tmp_path / "demo" / "run" / "metrics.jsonl").read_text()
    out, err = up("--resume", "demo").communicate(timeout=300)
    assert "everything is in" in out, err
    assert "round 2 of 2" in err
    assert (tmp_path / "demo" / "run" / "metrics.jsonl").read_text().startswith(begun)
    wait_until_nothing_runs(tmp_path)


def wait_until_nothing_runs(folder: Path) -> None:
    """Flower's apps end by themselves when they miss the process that started them, a few seconds later."""
    deadline = time.monotonic() + 60
    while left := [command for command in commands_running() if str(folder) in command]:
        assert time.monotonic() < deadline, left
        time.sleep(0.5)


def commands_running() -> list[str]:
    """The command line and environment of every process that can be looked at."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found.append((process / "cmdline").read_text(errors="replace") + (process / "environ").read_text())
    return found
