"""What a federation over Flower costs: seconds a round beyond the local work, whole runs, and bytes on the wire.

A SuperLink and four SuperNodes on loopback, with TLS and node keys, on digits: python -m benchmarks.deployment
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.rows import RESULTS, Record, Row, show
from fedtct import LocalFederation
from fedtct.deploy.app_folder import RUN, make_app
from fedtct.deploy.demo import write_npz
from fedtct.deploy.local import LocalDeployment, replace_text
from fedtct.history import History
from fedtct.runs.config import RunConfig
from fedtct.runs.jobs import prepare
from fedtct.runs.metrics import read_rows
from fedtct.runs.settings import HOLDOUT

SILOS, SEED = 4, 0
SETTINGS = {
    "dataset": "digits",
    "split": "classes:2",
    "silos": SILOS,
    "model": "mlp",
    "p": 5000,
    "d": 1024,
    "seed": SEED,
}
FEDAVG = {"method": "fedavg", "rounds": [4]}
RIDGE = {"method": "tct", "rounds": [1, 1], "stage2": "ridge"}
SAID = re.compile(r"INFO (\S+ \S+): +(Receiving|Received|Sending|Sent)\b(: train)?")  # by Flower, in a silo's log
WRITTEN = "%Y-%m-%d %H:%M:%S,%f"
PARTS = {  # of a round for a silo, by what its log says at the beginning
    "Receiving": "seconds to fetch a question",
    "Received": "to answer it",
    "Sending": "to send the reply",
    "Sent": "until the next question",
}


def main() -> None:
    """Run everything and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="of iterative stage 2")
    parser.add_argument("--out", type=Path, default=RESULTS / "bench-deployment.json")
    options = parser.parse_args()
    scaffold = {"method": "tct", "rounds": [1, options.rounds], "stage2": "scaffold"}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        local = median(row.seconds for row in bench.here(FEDAVG) if row.round)  # before anything else is running
        with bench.deploy(FlowersSuperNodes, "plain"):
            plain = bench.seconds_a_round()
        with bench.deploy(LocalDeployment, "ours"):
            rows = [bench.round_row(plain, local), bench.wire_row(), bench.stage2_row(scaffold)]
        with bench.deploy(LocalDeployment, "alone", silos=1):
            rows.insert(1, bench.alone_row())
    show(rows, "A federation over Flower")
    record = Record.here(
        "python -m benchmarks.deployment" + (f" --rounds {options.rounds}" if options.rounds != 100 else ""),
        rows,
        machine={"load before": round(bench.load, 1)},
        configuration={"shared": SETTINGS, "a round": FEDAVG, "one round": RIDGE, "many rounds": scaffold},
    )
    record.write(options.out)


class FlowersSuperNodes(LocalDeployment):
    """Silos that answer as Flower's own program does; everything else is as it is."""

    def _start(self, command: list[str], folder: Path, log: str) -> "subprocess.Popen[bytes]":
        ours = [sys.executable, "-m", "fedtct.deploy.supernode"]
        if command[: len(ours)] == ours:
            command = ["flower-supernode", *command[len(ours) :]]
        return super()._start(command, folder, log)


class Bench:
    """Silos with their data, and what was measured with them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.load = folder, os.getloadavg()[0]
        self.job = prepare(RunConfig.of(**SETTINGS))
        self.data = {
            f"silo-{number}": str(write_npz(folder / f"{number}.npz", silo.x, silo.y))
            for number, silo in enumerate(self.job.silos)
        }
        assert self.job.test is not None
        self.test = write_npz(folder / "test.npz", *self.job.test)
        self.runs = 0

    def deploy(self, kind: type[LocalDeployment], name: str, silos: int = SILOS) -> LocalDeployment:
        """A deployment for the runs that follow."""
        data = dict(list(self.data.items())[:silos])
        self.deployment = kind(self.folder / name, data)
        for silo in data:  # they train on all samples, as here
            replace_text(self.deployment.silo_file(silo), f"# holdout = {HOLDOUT}", "holdout = 0")
        return self.deployment

    def over_flower(self, settings: dict[str, Any], wire: str = "fp32") -> tuple[History, float]:
        """A run over the deployment: its rows, and the seconds from the command to its end."""
        self.runs += 1
        out, app = self.folder / f"run-{self.runs}", make_app(self.folder / f"app-{self.runs}")
        server = {"out": str(out), "test": str(self.test), "num_classes": 10, "wire": wire}
        (app / RUN).write_text(
            toml(SETTINGS | {"silos": self.deployment.silos} | settings) + "[server]\n" + toml(server)
        )
        start = time.perf_counter()
        assert self.deployment.run(app, {}, lambda line: print(line, flush=True))
        return read_rows(out), time.perf_counter() - start

    def here(self, settings: dict[str, Any]) -> History:
        """The same run in this process."""
        config = RunConfig.of(**SETTINGS | settings, device="cpu")
        return config.build(10).fit(LocalFederation(self.job.silos, "cpu"), test=self.job.test).history

    def seconds_a_round(self) -> float:
        """Of FedAvg over the deployment."""
        self.full, _ = self.over_flower(FEDAVG)
        return median(row.seconds for row in self.full if row.round)

    def parts(self) -> dict[str, float]:
        """What a round of training is spent with, as the logs of the silos say: medians over rounds and silos."""
        logs = [self.deployment.folder / silo / "supernode.log" for silo in self.deployment.nodes]
        found = [part for log in logs for part in spent(log.read_text(encoding="utf-8"))]
        return {name: median(seconds for part, seconds in found if part == name) for name in PARTS.values()}

    def round_row(self, plain: float, local: float) -> Row:
        """A round of FedAvg, of which ``local`` seconds are the work of all silos, which share this machine."""
        ours = self.seconds_a_round()
        parts = self.parts()
        return Row(
            part="a round",
            what=f"FedAvg, {SILOS} silos",
            unit="s",
            ours=ours,
            plain=plain,
            plain_is="Flower's own SuperNodes",
            floor=local,
            bound="local work: the same rounds in one process",
            detail={"overhead_seconds": ours - local} | parts,
        )

    def alone_row(self) -> Row:
        """A round of FedAvg with a single silo: what is left where nobody shares the SuperLink and the processors."""
        ours = self.seconds_a_round()
        return Row("a round", "FedAvg, 1 silo", "s", ours, detail=self.parts())

    def wire_row(self) -> Row:
        """Half precision on the wire: bytes and accuracy."""
        half, _ = self.over_flower(FEDAVG, wire="fp16")
        detail = {
            f"{wire}_{name}": getattr(rows[-1], name)
            for wire, rows in (("fp32", self.full), ("fp16", half))
            for name in ("bytes_up", "bytes_down", "test_accuracy")
        }
        ours, plain = (median(row.seconds for row in rows if row.round) for rows in (half, self.full))
        return Row("wire", "fp16", "s", ours, plain=plain, plain_is="fp32", detail=detail)

    def stage2_row(self, scaffold: dict[str, Any]) -> Row:
        """TCT from its command to its end: one round of sums against many rounds."""
        one, seconds = self.over_flower(RIDGE)
        assert self.deployment.link
        before = processor_seconds(self.deployment.link.pid)
        many, plain = self.over_flower(scaffold)
        link, rounds = processor_seconds(self.deployment.link.pid) - before, scaffold["rounds"][1]
        return Row(
            part="whole run",
            what="TCT, stage 2 in one round",
            unit="s",
            ours=seconds,
            plain=plain,
            plain_is=f"stage 2 in {rounds} rounds",
            detail={
                "rounds": rounds,
                "the SuperLink's processor seconds in the long run": link,
                "one_round_test_accuracy": one[-1].test_accuracy,
                "many_rounds_test_accuracy": many[-1].test_accuracy,
                "seconds_a_round": median(row.seconds for row in many if row.stage == "stage2" and row.round),
            },
        )


def spent(log: str) -> Iterator[tuple[str, float]]:
    """The parts of a silo's rounds of training by its log, each with its seconds."""
    trains = False
    for (begin, what, train), (end, _, _) in pairwise(SAID.findall(log)):
        trains = bool(train) if what == "Receiving" else trains
        if trains:
            seconds = datetime.strptime(end, WRITTEN) - datetime.strptime(begin, WRITTEN)
            yield PARTS[what], seconds.total_seconds()


def processor_seconds(process: int) -> float:
    """How long a process has computed, with all its threads."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def toml(values: dict[str, Any]) -> str:
    """Plain values, a line each."""
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())


if __name__ == "__main__":
    main()
