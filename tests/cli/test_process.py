"""The command as a process: how it is started, stopped and gone on with."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

OPTIONS = ["--limit", "300", "--silos", "4", "--method", "fedavg", "--rounds", "60", "--local-epochs", "2"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def listen_to_ctrl_c() -> None:
    """A shell's background jobs ignore it, and so would what they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_leaves_a_run_that_can_be_resumed(tmp_path: Path) -> None:
    def fedtct(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "fedtct", "run", *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True, env=ENVIRONMENT, preexec_fn=listen_to_ctrl_c
        )

    # Rounds long enough that there is time to stop it, however busy the machine is.
    process = fedtct(*OPTIONS[:-1], "30", "--out", "a")
    metrics, deadline = tmp_path / "a" / "metrics.jsonl", time.monotonic() + 120
    while not (metrics.is_file() and metrics.read_bytes().count(b"\n") > 3):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "fedtct: stopped; go on with `fedtct run --resume a`" in err
    assert "Traceback" not in err
    assert out == ""
    process = fedtct("--resume", "a")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert out.splitlines()[-1] == "everything is in a: look at a/report.html"
    assert metrics.read_bytes().count(b"\n") == 61


def test_on_a_terminal_bars_show_rounds_and_accuracies(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    environment = ENVIRONMENT | {"TERM": "xterm", "COLUMNS": "120"}
    command = [sys.executable, "-m", "fedtct", "run", *OPTIONS, "--out", "a"]
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
    assert b"60/60 rounds" in shown
    assert b"test " in shown
    assert b"stage 1" in shown
    assert "fedavg" in out
    assert "rounds test" not in out


def test_help_does_not_wait_for_torch() -> None:
    program = """
import importlib.util, sys, types
package = types.ModuleType("fedtct")
package.__path__ = importlib.util.find_spec("fedtct").submodule_search_locations
sys.modules["fedtct"] = package  # the commands alone, without the names that the package offers to Python
from fedtct.cli import main
for words in (["--help"], ["run", "--help"], ["compare", "--help"], ["demo", "--help"], ["data", "--help"]):
    assert main(words) == 0
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL, timeout=60)


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
