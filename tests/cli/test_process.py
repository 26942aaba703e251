"""The command as a process: how it is started, stopped and gone on with."""

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

OPTIONS = ["--limit", "300", "--silos", "4", "--method", "fedavg", "--rounds", "60", "--local-epochs", "2"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def test_ctrl_c_leaves_a_run_that_can_be_resumed(tmp_path: Path) -> None:
    def fedtct(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "fedtct", "run", *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True, env=ENVIRONMENT)

    process = fedtct(*OPTIONS, "--out", "a")
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
    assert out.splitlines()[-1] == "everything is in a"
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
