"""A method's rounds of training: what it keeps is checked, what it leaves alone is sent once."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedtct.errors import FedtctError, listing
from fedtct.federation import Cost, Replies
from fedtct.history import State
from fedtct.models import Weights
from fedtct.rounds import Stage
from fedtct.tasks import Score
from fedtct.training import Frozen, apart, evaluate

if TYPE_CHECKING:
    from fedtct.stage1.base import Stage1


@dataclass
class Training(Stage):
    """Stage 1; where a part of the network alone is trained, the rest is the state's ``frozen``."""

    method: Stage1
    told: bool = False  # silos what is frozen

    name = "stage1"

    def weights(self) -> Weights:
        """The network's, after all rounds."""
        trained, frozen = apart(self.session.network, self.method.trainable, self.session.network.weights())
        start = self.method.start(trained)
        self._check(start, "start", "weights._asdict() with whatever else it holds")
        return self._whole(self.run(start | ({"frozen": frozen} if frozen else {})))

    def round(self, state: State, number: int) -> tuple[State, Replies]:
        """The method's own, after silos were told what is frozen."""
        telling = self._tell(state)
        after, replies = self._own_round(state, number)
        if not bool(after["parameters"].isfinite().all()):
            _warn_of_diverged(replies)
        if "frozen" not in state:
            return after, replies
        if number == 0:  # later, silos are told again because a run goes on: one that never stopped does not pay it
            replies = replace(replies, cost=telling + replies.cost)
        return after | {"frozen": state["frozen"]}, replies

    def evaluate(self, state: State) -> Replies | None:
        """With noise silos tell nothing about models; of features alone there is nothing to tell."""
        if self.method.noise or not self.method.learns_labels:
            return None
        return self.session.federation.ask("evaluate", self._whole(state)._asdict())

    def test(self, state: State) -> Score | None:
        """By the server's copy of the network."""
        session, network = self.session, self.session.network
        if session.test is None or not self.method.learns_labels:
            return None
        network.load(self._whole(state))
        network.module.eval()
        return evaluate(network, *session.test, session.spec.task.score)

    def _tell(self, state: State) -> Cost:
        """Rounds bring what is trained alone."""
        if "frozen" not in state or self.told:
            return Cost()
        self.told = True
        return self.session.federation.ask("freeze", state["frozen"]).cost

    def _whole(self, state: State) -> Weights:
        frozen = Frozen.told(self.session.network, state.get("frozen", {}))
        return frozen.whole(Weights(state["parameters"], state["buffers"]))

    def _own_round(self, state: State, number: int) -> tuple[State, Replies]:
        """A round as whoever wrote the method has it, checked."""
        found: object = self.method.round(self.session.federation, state, number)
        if not isinstance(found, tuple) or len(found) != 2:
            who = type(self.method).__name__
            raise FedtctError(f"{who}.round returns no pair: it needs the new state and the replies")
        self._check(found[0], "round", "replies.average('parameters') and replies.average('buffers'), say")
        return found

    def _check(self, state: State, made_by: str, advice: str) -> None:
        """Weights that are left out do not stay as they were: nobody wants running statistics of no data by mistake."""
        for name in Weights._fields:
            if name not in state:
                where = f"{type(self.method).__name__}.{made_by}"
                raise FedtctError(f"{where} returns a state without '{name}': it needs {advice}")


def _warn_of_diverged(replies: Replies) -> None:
    """Say whose training led to weights that are no numbers, if not everybody's: a single sample may do that to all."""
    weights = zip(replies.cost.silos, replies.values("parameters"), strict=False)
    diverged = [name for name, parameters in weights if not bool(parameters.isfinite().all())]
    if 0 < len(diverged) < len(replies.messages):
        warnings.warn(f"training diverged in {listing(diverged)} alone: look at the samples there", stacklevel=2)
