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
LOCK_SECONDS = 60.0  # far more than another process that answers for this silo needs

Ledger = dict[str, dict[str, float]]  # by run, the noise of each release by a digest of its key


class Refusal(FedtctError):
    """A refusal that does not depend on the samples, so that the server may be told why."""


@dataclass(frozen=True)
class Budget:
    """What a silo is willing to spend of its samples' privacy, and the folder where it records what it has spent."""

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
        if question == "train":  # a correction's memory of the samples would be in the update, unbounded
            bounded = not message["evaluate"] and message["correction"] == "none"
        else:
            bounded = question == "sums" and message["bounded"]
        if not bounded or not is_noised(message):
            raise Refusal(
                f"this silo answers only with differential privacy (epsilon in its silo.toml), and '{question}' came "
                "without it: set epsilon in run.toml"
            )

    def check_network(self, spec: NetworkSpec) -> None:
        """Refuse a network if the mere fact that it fits, or does not, would tell something of the samples."""
        if spec.task != NUMBERED or spec.num_classes < 2 or spec.inputs.table or spec.inputs.dtype == torch.int64:
            raise Refusal("this silo answers only with differential privacy, and only about arrays with labels from 0")

    def spend(self, run: str, key: bytes, noise: float) -> None:
        """Record a release before it leaves, under the key of its noise; refused if too little is left for it."""
        name = hashlib.sha256(key).hexdigest()[:16]  # the key itself would give the noise away
        with self._ledger() as ledger:
            if name not in ledger.setdefault(run, {}):
                self._check_room(ledger, noise**-2)
                ledger[run][name] = noise
                write_json(self.folder / SPENT, ledger)

    def spent(self) -> float:
        """The ε that all releases of this silo so far come to."""
        with self._ledger() as ledger:
            return epsilon_of(math.sqrt(_squared_mu(ledger)), self.delta)

    def _check_plan(self, run: str, noise: float, releases: int) -> None:
        """Refuse a run for which too little is left; what it has spent already, if it goes on, counts for it."""
        with self._ledger() as ledger:
            self._check_room(ledger, releases * noise**-2 - _squared_mu({run: ledger.get(run, {})}))

    def _check_room(self, ledger: Ledger, more: float) -> None:
        spent = _squared_mu(ledger)
        if spent + more > (1 + ROUNDING) * mu_of(self.epsilon, self.delta) ** 2:
            before, after = (epsilon_of(math.sqrt(squared), self.delta) for squared in (spent, spent + more))
            raise Refusal(
                f"this silo has spent ε = {before:.3g} in all runs so far; this run would make it {after:.3g}, but its "
                f"limit is {self.epsilon:g} at δ = {self.delta:g} (epsilon in its silo.toml): set a smaller "
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
        raise FedtctError(f"{SPENT} is damaged: restore it from a copy; without it the count would start at zero")
    return sum(noise**-2 for noise in noises)
