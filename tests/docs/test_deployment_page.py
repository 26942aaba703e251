"""The walk through a deployment, every command as printed: four machines are four folders on loopback."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from doc_helpers import ROOT, commands

pytest.importorskip("flwr")

import fedtct
from fedtct.deploy.processes import free_port

PAGE = ROOT / "docs" / "deployment.md"
ADDRESS = "fl.example.org:8000"  # "put 127.0.0.1:8000 in its place", says the page; the port may be taken
TRUSTED, SERVER, SILOS = "trusted", "server", ("a", "b")
LIMIT = 400.0


class Machines:
    """Folders that commands are typed in, each command a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.address = folder, f"127.0.0.1:{free_port()}"
        self.up: list[subprocess.Popen[bytes]] = []
        for name in (TRUSTED, SERVER, *SILOS):
            (folder / name).mkdir()

    def type(self, machine: str, words: list[str]) -> "subprocess.Popen[bytes]":
        """Start a command; what it says goes to a file."""
        words = [word.replace(ADDRESS, self.address) for word in words]
        with self.log(machine, words[1]).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "fedtct", *words], cwd=self.folder / machine, stdout=log, stderr=log
            )
        self.up.append(process)
        return process

    def do(self, machine: str, words: list[str]) -> str:
        """Run a command to its end, which must be good; returns what it said."""
        assert self.type(machine, words).wait(LIMIT) == 0, self.log(machine, words[1]).read_text()
        return self.log(machine, words[1]).read_text()

    def log(self, machine: str, command: str) -> Path:
        return self.folder / machine / f"{command}.log"

    def until(self, machine: str, command: str, text: str) -> None:
        deadline = time.monotonic() + LIMIT
        while text not in self.log(machine, command).read_text():
            assert self.up[-1].poll() is None, self.log(machine, command).read_text()
            assert time.monotonic() < deadline, self.log(machine, command).read_text()
            time.sleep(0.2)

    def switch_off(self) -> None:
        for process in reversed(self.up):
            process.terminate()
        for process in self.up:
            process.wait(60)


@pytest.fixture
def machines(tmp_path):
    found = Machines(tmp_path)
    yield found
    found.switch_off()


def deal_digits(machines: Machines) -> None:
    data = fedtct.load_dataset("digits")
    for name, part in zip(SILOS, fedtct.partition(data.train.y, 2, "classes:5", seed=0), strict=True):
        np.savez(machines.folder / name / "keys" / name / "data.npz", x=data.train.x[part], y=data.train.y[part])


@pytest.mark.slow  # two or three minutes: ten rounds
def test_the_commands_of_the_page_run_as_printed(machines):
    printed = commands(PAGE, "sh")
    words = {tuple(line[1:2] + [w for w in line if w == "--dry-run"]): line for line in printed}
    assert list(words) == [
        ("up",),
        ("keys",),
        ("server",),
        ("check",),
        ("silo",),
        ("init",),
        ("run", "--dry-run"),
        ("run",),
    ]

    machines.do(TRUSTED, words[("keys",)])
    for name in (SERVER, *SILOS):  # "goes to the server", "goes to that silo"
        shutil.copytree(machines.folder / TRUSTED / "keys" / name, machines.folder / name / "keys" / name)
    deal_digits(machines)

    machines.type(SERVER, words[("server",)])
    machines.until(SERVER, "server", "the server is up")
    for name in SILOS:
        check, silo = ([w.replace("keys/a/", f"keys/{name}/") for w in words[of]] for of in (("check",), ("silo",)))
        assert "WRONG" not in machines.do(name, check)
        machines.type(name, silo)

    machines.do(SERVER, words[("init",)])
    assert "parameters float32" in machines.do(SERVER, words[("run", "--dry-run")])
    run = machines.type(SERVER, words[("run",)])
    folder = machines.folder / SERVER / "runs" / "deployed"
    while not (folder / "checkpoints" / "stage1.safetensors").exists():
        assert run.poll() is None, machines.log(SERVER, "run").read_text()
        time.sleep(0.2)
    run.send_signal(signal.SIGINT)
    assert run.wait(LIMIT) == 130
    resume = "fedtct deploy run app --server keys/server --resume runs/deployed"
    assert f"fedtct: stopped; resume with `{resume}`" in machines.log(SERVER, "run").read_text()
    assert f"`{resume}`" in PAGE.read_text(encoding="utf-8")

    assert "everything is in runs/deployed" in machines.do(SERVER, resume.split()[1:])
    assert os.path.exists(folder / "report.html")
    test = fedtct.load_dataset("digits").test
    assert fedtct.Classifier.load(folder / "model").score(*test) > 0.9
    assert not list(machines.folder.glob("[ab]/keys/*/cache/fedtct-runs/*/*"))
