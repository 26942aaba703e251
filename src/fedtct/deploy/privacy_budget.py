"""A silo's own limit on what it tells about its samples, in all runs together and whatever a server asks for.

Gaussian releases add up: one with noise σ takes 1/σ² of μ², and μ says which ε all of them come to (see
fedtct.privacy). What was spent is written to a file before the reply leaves. A question that is asked again gets the
same reply, which tells nothing new and costs nothing.
"""

import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from fedtct.errors import FedtctError
from fedtct.federation.flower.wire import FORGET
from fedtct.files import read_json, write_json
from fedtct.models import NetworkSpec
from fedtct.privacy import epsilon_of, is_noised, mu_of
from fedtct.questions import Message
from fedtct.runs.lock import hold, release
from fedtct.tasks import NUMBERED

SPENT = "privacy-spent.json"
ROUNDING = 1e-9
LOCK_SECONDS = 60.0  # another process that answers for this silo needs far less

Ledger = dict[str, dict[str, float]]  # of runs: the noise of each release


class Refusal(FedtctError):
    """What a silo does not answer, whatever its samples are: a server may know why."""


@dataclass(frozen=True)
class Budget:
    """What a silo is willing to spend, and the folder where it takes down what it has."""

    epsilon: float
    delta: float
    folder: Path

    def check(self, run: str, question: str, message: Message) -> None:
        """Refuse what is not differentially private, and a run that would spend more than is left."""
        if question in ("freeze", FORGET):  # their replies are empty
            return
        if question == "describe" and message.get("private"):
            self._check_plan(run, message.get("planned_noise", math.inf), message.get("planned_releases", 0))
            return
        if question == "train":  # what a correction remembers of the samples would be in the update unseen
            bounded = not message["evaluate"] and message["correction"] == "none"
        else:
            bounded = question == "sums" and message["bounded"]
        if not bounded or not is_noised(message):
            raise Refusal(
                f"this silo answers with differential privacy alone (epsilon in its silo.toml), and '{question}' came "
                "without: set epsilon in run.toml"
            )

    def check_network(self, spec: NetworkSpec) -> None:
        """Refuse a network of which whether it can be used would tell something of the samples."""
        if spec.task != NUMBERED or spec.num_classes < 2 or spec.inputs.table or spec.inputs.dtype == torch.int64:
            raise Refusal("this silo answers with differential privacy alone, and about arrays with labels from 0")

    def spend(self, run: str, key: bytes, noise: float) -> None:
        """Take down a release, by what its noise is drawn from, before it leaves; refused if nothing is left for it."""
        name = hashlib.sha256(key).hexdigest()[:16]  # the key itself would give the noise away
        with self._ledger() as ledger:
            if name not in ledger.setdefault(run, {}):
                self._check_room(ledger, noise**-2)
                ledger[run][name] = noise
                write_json(self.folder / SPENT, ledger)

    def spent(self) -> float:
        """The ε of all that this silo has told so far."""
        with self._ledger() as ledger:
            return epsilon_of(math.sqrt(_squared_mu(ledger)), self.delta)

    def _check_plan(self, run: str, noise: float, releases: int) -> None:
        """A run that goes on has spent a part of what it will."""
        with self._ledger() as ledger:
            self._check_room(ledger, releases * noise**-2 - _squared_mu({run: ledger.get(run, {})}))

    def _check_room(self, ledger: Ledger, more: float) -> None:
        spent = _squared_mu(ledger)
        if spent + more > (1 + ROUNDING) * mu_of(self.epsilon, self.delta) ** 2:
            before, after = (epsilon_of(math.sqrt(squared), self.delta) for squared in (spent, spent + more))
            raise Refusal(
                f"this silo has spent ε = {before:.3g} in all runs so far, this one would make it {after:.3g}, and its "
                f"own limit is {self.epsilon:g} at δ = {self.delta:g} (epsilon in its silo.toml): set a smaller "
                "epsilon in run.toml"
            )

    @contextmanager
    def _ledger(self) -> Iterator[Ledger]:
        hold(self.folder, LOCK_SECONDS)
        try:
            file = self.folder / SPENT
            yield read_json(file) if file.exists() else {}
        finally:
            release(self.folder)


def _squared_mu(ledger: Ledger) -> float:
    noises = [noise for releases in ledger.values() for noise in releases.values()]
    if not all(isinstance(noise, float | int) and noise > 0 for noise in noises):
        raise FedtctError(f"{SPENT} is damaged: take it from a copy; without it the count would begin anew")
    return sum(noise**-2 for noise in noises)
