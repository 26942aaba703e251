"""Answers begin warm: copies of a process that waits are as new processes, and it is gone when nobody needs it."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedtct.deploy import hand_over

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is copied")

WAITING = """
import atexit, json, os, signal, sys, threading, time
from fedtct.deploy import warm

seen = []

class Loaded:
    def __del__(self):
        print("freed")

def load():
    global loaded
    import numpy as np, torch
    loaded = Loaded()
    atexit.register(lambda: os.environ.get("ASKER") and print("done"))

    def program():
        if sys.argv[1] == "linger":
            print(os.getpid(), flush=True)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(600)
        seen.append(1)
        print(json.dumps({
            "words": sys.argv, "folder": os.getcwd(), "asker": os.environ["ASKER"], "seen": len(seen),
            "noise": np.random.normal(), "threads": threading.active_count(), "cuda": torch.cuda.is_initialized(),
        }))

    return program

warm.serve(load, int(sys.argv[1]))
"""


@pytest.fixture
def waiting(tmp_path, monkeypatch):
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / ("long" * 30)))  # longer than the name of a socket may be
    Path(os.environ["FLWR_HOME"]).mkdir()
    process = subprocess.Popen([sys.executable, "-c", WAITING, str(os.getpid())])
    until((Path(os.environ["FLWR_HOME"]) / hand_over.SOCKET).exists)
    yield process
    process.kill()
    process.wait()


def ask(*words: str, folder: Path, programs: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-IS", hand_over.__file__, str(programs), *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=os.environ | {"ASKER": words[0]})
    assert done.returncode == 0, done.stderr
    return done


def test_copies_are_as_new_processes(waiting, tmp_path):
    outputs = [ask(word, "--more", folder=tmp_path, programs=tmp_path).stdout.splitlines() for word in ("a", "b")]
    answers = [json.loads(output[0]) for output in outputs]
    for word, answer in zip(("a", "b"), answers, strict=True):
        assert answer["words"] == [hand_over.PROGRAM, word, "--more"]
        assert (answer["folder"], answer["asker"]) == (str(tmp_path), word)
        assert answer["seen"] == 1, "what a copy did reached the next"
        assert (answer["threads"], answer["cuda"]) == (1, False), "what is copied must be at rest"
    assert answers[0]["noise"] != answers[1]["noise"]


def test_a_copy_ends_as_a_process_does_but_frees_nothing(waiting, tmp_path):
    output = ask("a", folder=tmp_path, programs=tmp_path).stdout.splitlines()
    assert output[1:] == ["done"]  # what is to be done at the end is done and told, and no time is spent on freeing


def test_nobody_else_may_ask_for_a_copy(waiting):
    assert (Path(os.environ["FLWR_HOME"]) / hand_over.SOCKET).stat().st_mode & 0o077 == 0


def test_without_one_that_waits_it_is_the_program_itself(tmp_path, monkeypatch):
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    program = tmp_path / hand_over.PROGRAM
    program.write_text('#!/bin/sh\necho cold "$@" in $PWD\n')
    program.chmod(0o700)
    assert ask("a", folder=tmp_path, programs=tmp_path).stdout == f"cold a in {tmp_path}\n"


def test_it_is_gone_when_the_one_that_started_it_is(tmp_path):
    start = f"import os, subprocess, sys; subprocess.Popen([sys.executable, '-c', {WAITING!r}, str(os.getpid())])"
    environment = os.environ | {"FLWR_HOME": str(tmp_path)}
    # Its output is closed when the last process that has it ends.
    subprocess.run([sys.executable, "-c", start], env=environment, stdout=subprocess.PIPE, timeout=60)


def test_its_copies_are_gone_then_too_whatever_they_do(tmp_path):
    """One that answers, and one that was never told what to answer, as whoever asked was killed."""
    wait = f"subprocess.run([sys.executable, '-c', {WAITING!r}, str(os.getpid())])"
    environment = os.environ | {"FLWR_HOME": str(tmp_path), "ASKER": "a"}
    with subprocess.Popen([sys.executable, "-c", f"import os, subprocess, sys; {wait}"], env=environment) as parent:
        until((tmp_path / hand_over.SOCKET).exists)
        command = [sys.executable, "-IS", hand_over.__file__, str(tmp_path), "linger"]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, cwd=tmp_path) as asker:
            copy = Path("/proc") / asker.stdout.readline().decode().strip()
        warm = (copy / "stat").read_text().rpartition(")")[2].split()[1]
        with socket.socket(socket.AF_UNIX) as mute:
            mute.connect(os.path.relpath(tmp_path / hand_over.SOCKET))
            children = Path("/proc") / warm / "task" / warm / "children"
            until(lambda: len(children.read_text().split()) == 2)
            copies = [Path("/proc") / number for number in children.read_text().split()]
            assert copy in copies
            parent.kill()
            until(lambda: not any(process.exists() for process in copies))


def until(done, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)
