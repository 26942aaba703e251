"""The command as a process: how it is started, stopped and gone on with."""

import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fedtct.cli import main

OPTIONS = ["--limit", "300", "--silos", "4", "--method", "fedavg", "--rounds", "60", "--local-epochs", "2"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def listen_to_ctrl_c() -> None:
    """A shell's background jobs ignore it, and so would what they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(folder: Path, *words: str, program: Sequence[str] = ("-m", "fedtct")) -> subprocess.Popen[str]:
    command, pipe = [sys.executable, *program, *words], subprocess.PIPE
    return subprocess.Popen(
        command, cwd=folder, stdout=pipe, stderr=pipe, text=True, env=ENVIRONMENT, preexec_fn=listen_to_ctrl_c
    )


def wait_until(process: subprocess.Popen[str], true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def tree(folder: Path, pattern: str) -> dict[Path, int]:
    return {file: file.stat().st_mtime_ns for file in folder.glob(pattern)}


def test_ctrl_c_leaves_a_run_that_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Rounds long enough that there is time to stop it, however busy the machine is.
    process = start(tmp_path, "run", *OPTIONS, "--rounds", "12", "--local-epochs", "20", "--out", "a b")
    metrics = tmp_path / "a b" / "metrics.jsonl"
    wait_until(process, lambda: metrics.is_file() and metrics.read_bytes().count(b"\n") > 3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "fedtct: stopped; resume with `fedtct run --resume 'a b'`" in err
    assert "Traceback" not in err
    assert out == ""
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--resume", "a b"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "everything is in a b: look at a b/report.html"
    assert metrics.read_bytes().count(b"\n") == 13


# A command to stop, the file that shows that it is at work, and the command that it says goes on with it.
STOPPED = {
    "compare": (
        ["compare", *OPTIONS[:4], "--methods", "fedavg,scaffold", "--rounds", "40", "--out", "c d"],
        "c d/*/metrics.jsonl",
    ),
    "demo": (["demo", "--out", "c d"], "c d/*/metrics.jsonl"),
    "paper run": (
        ["paper", "run", "table2", "--only", "fashion-mnist/classes:2/", "--scale", "tiny"],
        "runs/**/metrics.jsonl",
    ),
}
GO_ON = dict.fromkeys(("compare", "demo"), "fedtct compare --resume 'c d'")


@pytest.mark.parametrize("name", [pytest.param("compare", marks=pytest.mark.slow), "demo", "paper run"])
def test_ctrl_c_says_how_to_go_on_and_that_works(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words, at_work = STOPPED[name]
    process = start(tmp_path, *words)
    wait_until(process, lambda: any(tmp_path.glob(at_work)))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    go_on = GO_ON.get(name, shlex.join(["fedtct", *words]))
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1] == f"fedtct: stopped; resume with `{go_on}`"
    if name == "demo":
        return  # what goes on is a comparison like the other, and takes a minute
    done = tree(tmp_path, "**/model/model.safetensors")
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(go_on)[1:]) == 0
    assert tree(tmp_path, "**/model/model.safetensors").items() >= done.items()


OVER = {
    "compare": (["compare", "--methods", "fedavg,scaffold"], "scaffold"),
    "run": (["run", "--method", "fedavg", "--lr", "0.1,1e-6", "--holdout", "0.2"], "lr-0.1 (chosen)"),
}


@pytest.mark.parametrize("command", ["run", pytest.param("compare", marks=pytest.mark.slow)])
def test_what_is_over_is_shown_where_nothing_can_be_written(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words, shown = OVER[command]
    monkeypatch.chdir(tmp_path)
    assert main([*words, *OPTIONS[:4], "--split", "iid", "--rounds", "1", "--out", "c"]) == 0
    first = capsys.readouterr().out
    assert shown in first
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    process = start(tmp_path, command, "--resume", "c", program=("-c", WITHOUT_FILES))
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (0, first), err
    assert "the report was not written again: c/" in err
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


# A folder that may only be read does not stop root; that no file may have a byte in it does.
WITHOUT_FILES = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
from fedtct.cli import main
sys.exit(main())
"""


SLOW_SITE = """
import sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from fedtct.cli import main
from fedtct.data.dataset_files import DataFile, md5
from fedtct.data.layouts import FASHION_MNIST, LAYOUTS

fetching, data, pause = import_module("fedtct.data.fetch"), bytes(range(256)) * 4096, float(sys.argv[1])
file = DataFile("FashionMNIST/raw/images", len(data), md5(data))
LAYOUTS["fashion-mnist"] = (FASHION_MNIST._replace(train=(file,), test=()),)

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        start = int((self.headers["Range"] or "bytes=0-")[6:-1])
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        for at in range(start, len(data), 1 << 18):
            self.wfile.write(data[at : at + (1 << 18)])
            time.sleep(pause)
        print("sent from", start, flush=True)

    def log_message(self, *arguments):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}/images"
fetching.SOURCES["fashion-mnist"] = (fetching.Download(url, len(data), md5(data), (file,)),)
sys.exit(main(["data", "fetch", "fashion-mnist", "--data-dir", "right here"]))
"""


def test_ctrl_c_keeps_what_was_downloaded(tmp_path: Path) -> None:
    part = tmp_path / "right here" / "FashionMNIST" / "raw" / "images.part"
    process = start(tmp_path, "60", program=["-c", SLOW_SITE])
    wait_until(process, lambda: part.is_file() and part.stat().st_size > 0)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert (
        err.splitlines()[-1] == "fedtct: stopped; resume with `fedtct data fetch fashion-mnist --data-dir 'right here'`"
    )
    there = part.stat().st_size
    process = start(tmp_path, "0", program=["-c", SLOW_SITE])
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert f"sent from {there}" in out
    assert (part.parent / "images").read_bytes() == bytes(range(256)) * 4096


def test_on_a_terminal_bars_show_rounds_and_accuracies(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    environment = ENVIRONMENT | {"TERM": "xterm", "COLUMNS": "120"}
    command = [sys.executable, "-m", "fedtct", "run", *OPTIONS, "--rounds", "12", "--out", "a"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
        assert process.stdout is not None
        out = process.stdout.read().decode()
    os.close(ours)
    assert process.returncode == 0
    assert b"12/12 rounds" in shown
    assert b"test " in shown
    assert b"stage 1" in shown
    assert "fedavg" in out
    assert "rounds test" not in out


@pytest.mark.slow
def test_the_demo_shows_what_tct_is_for(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fedtct", "demo", "--json"]
    result = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    answer = json.loads(result.stdout)
    assert answer["folder"] == "runs/demo"
    accuracy = {(line["split"], line["method"]): line["test_accuracy"] for line in answer["table"]}
    assert len(accuracy) == 8
    for split in ("classes:1", "classes:2"):
        assert accuracy[split, "tct"] > accuracy[split, "fedavg"] + 0.02
        assert accuracy[split, "tct"] > accuracy[split, "centralized"] - 0.02
    pictures = [file.suffix for file in (tmp_path / "runs" / "demo" / "plots").rglob("*.*")]
    assert pictures.count(".png") == pictures.count(".svg") == 4


@pytest.mark.parametrize(
    ("given", "spins"),
    [({}, "10000"), ({"GOMP_SPINCOUNT": "5"}, "5"), ({"OMP_WAIT_POLICY": "active"}, None)],
    ids=["nothing said", "spins said", "policy said"],
)
def test_how_threads_wait_is_for_the_user_to_say(
    given: dict[str, str], spins: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, "")  # put back afterwards
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert main(["--version"]) == 0
    assert os.environ.get("GOMP_SPINCOUNT") == spins
