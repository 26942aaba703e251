"""A federation over a Flower grid: silos on other machines, which may be late, absent or wrong."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from flwr.serverapp import Grid
from torch import Tensor

from fedtct.agreement import misfit, novelties
from fedtct.digests import digest
from fedtct.errors import FedtctError
from fedtct.federation.base import Cost, Federation, Replies
from fedtct.federation.flower.exchange import Exchange, Terms
from fedtct.federation.flower.post import Letter, Post
from fedtct.federation.flower.roster import Roster
from fedtct.federation.flower.standing import Standing, as_tensors, under
from fedtct.federation.flower.wire import FORGET, Envelope, fits_fp16, network_text
from fedtct.models import NetworkSpec
from fedtct.questions import Message, about

PAUSE_SECONDS = 3.0


class FlowerFederation(Federation):
    """Silos behind a Flower grid. A round counts if enough of them answer.

    - ``run``: the name under which silos keep what they remember of this run
    - ``note``: told of every round: who answered, who did not and why
    - ``own_model``: the module:function that makes the model on every machine, if it is not one of fedtct's
    - ``warn``: told of a silo that does not answer as soon as that is known
    - ``keys``: the silo that each node's key was made for, as far as that is known
    - ``plan``: what a run will spend of silos' privacy, so that they can refuse before it begins
    """

    begins_anew = True  # a silo that is missing may never come back

    def __init__(
        self,
        grid: Grid,
        run: str,
        terms: Terms,
        note: Callable[[dict[str, Any]], None] = lambda record: None,
        own_model: str = "",
        warn: Callable[[str], None] = lambda text: None,
        keys: Mapping[int, str] | None = None,
        plan: Message | None = None,
    ) -> None:
        self.grid, self.run, self.terms, self.note, self.own_model = grid, run, terms, note, own_model
        self.roster, self.standing = Roster(keys), Standing()
        self.post = Post(grid, terms, self.roster, self._heard, warn)
        self._spec: NetworkSpec | None = None
        self._network = ""  # sent with every question, because a new process answers it
        self._tags = {"moments": "", "normalise": ""}  # names of raw and normalised features, by content
        self._plan = plan or {}
        self._describe: Message = {}  # the question that silos are asked first
        self._prepared: dict[str, Message] = {}  # questions that later ones rest on, for silos that missed them
        self._answered: set[str] = set()  # silos that answered the last question
        self._unfit: dict[str, str] = {}  # silos that came later and cannot take part, and why

    def __len__(self) -> int:
        return len(self.roster.seats)

    def expect(self, silos: Mapping[str, int]) -> None:
        """The silos that the run began with keep their seats."""
        self.roster.samples = dict(silos) | self.roster.samples
        self.roster.seat(self.roster.seats, {name: seat for seat, name in enumerate(silos)})

    def leave_out(self, reasons: Mapping[str, str]) -> None:
        """The others go on, if they are enough for a round."""
        if len(self.roster.seats) - len(reasons) < self.terms.min_silos:
            super().leave_out(reasons)
        for name, reason in reasons.items():
            self.post.tell(f"{name} cannot continue this run: {reason}")
            self.roster.refuse(name, reason)

    def use(self, spec: NetworkSpec) -> None:
        """The network that questions are about from now on."""
        if not isinstance(spec.model, str) and not self.own_model:
            raise FedtctError("across machines a model must have a name: one of fedtct's, or module:function")
        self._spec, self._network = spec, network_text(spec, self.own_model)

    def ask(self, question: str, message: Message) -> Replies:
        """One round, with the bytes that were handed to Flower and that came from it."""
        start = time.perf_counter()
        done = self._round(question, message)
        names = sorted(done.replies, key=lambda name: self.roster.seats[name])
        cost = Cost.of(done.down, {name: done.up[name] for name in names}, time.perf_counter() - start, len(self))
        total = sum(self.roster.samples.get(name, 0) for name in self.roster.seats)
        return Replies([done.replies[name] for name in names], cost, total)

    def close(self) -> None:
        """Tell silos that the run is over: they remove what they kept for it. Absent ones do so when it is old."""
        self._exchange(FORGET, {}, list(self.grid.get_node_ids()), self.terms.min_silos)

    def snapshot(self) -> dict[str, Tensor]:
        """Of which rounds silos remember something, who has which seat, and samples; silos keep the memory itself."""
        seats = {f"seat/{name}": seat for name, seat in self.roster.seats.items()}
        samples = {f"samples/{name}": count for name, count in self.roster.samples.items()}
        return self.standing.snapshot() | as_tensors(seats | samples)

    def restore(self, snapshot: dict[str, Tensor]) -> None:
        """Go on after a snapshot; an empty one means that nothing is remembered."""
        self.standing.restore(snapshot)
        self.roster.samples = under("samples/", snapshot) | self.roster.samples
        self.roster.seat(self.roster.seats, under("seat/", snapshot) or self.roster.seats)

    def _heard(self, question: str, replies: int, silos: int) -> None:
        if self.on_reply:
            self.on_reply(question, replies, silos)

    def _round(self, question: str, message: Message) -> Exchange:
        self.post.begin_round()
        if question == "describe":
            self._describe = message | self._plan
            return self._gather()
        if about(question).builds_features:
            before = self._tags["moments"] if question == "normalise" else self._network
            self._tags[question], self._prepared[question] = digest(message, before), message
        if question == "freeze":
            self._prepared[question] = message
        done = self._collect(question, message)
        if about(question).memory:
            self.standing.move_on(set(done.replies), done.forgot, message["correction"])
        return done

    # Who is there

    def _gather(self) -> Exchange:
        """Wait for as many silos as there should be, ask what they hold and give them seats.

        A silo that states why it cannot take part is not asked again; the others begin without it if they are enough.
        """
        start, found, terms = time.monotonic(), Exchange("describe"), self.terms
        self.roster.forget_names()
        while len(found.replies) + len(found.stated) < terms.silos:
            self.roster.see(self.grid.get_node_ids())
            nodes = [node for node in self.roster.strangers() if node not in found.cannot]
            found = found.then(self._exchange("describe", self._describe, nodes))
            hopeless = terms.silos - len(found.stated) < terms.min_silos
            if hopeless or time.monotonic() > start + terms.wait:
                break
            if len(found.replies) + len(found.stated) < terms.silos:
                self._wait_for(terms.silos, found)
        self._record(found, time.monotonic() - start)
        self._check_count(found)
        if found.stated:
            self.post.tell(f"the others continue without {', '.join(sorted(found.stated))}")
        self.roster.seat(found.replies, {})
        self._answered = set(found.replies)
        return found

    def _nodes(self) -> list[int]:
        """The connected nodes of silos that take part; newcomers are first asked what they hold."""
        self.roster.see(self.grid.get_node_ids())
        self._unfit = {}
        if strangers := self.roster.strangers():
            arrived, spec = self._exchange("describe", self._describe, strangers), self._spec
            assert spec is not None
            for name, reply in arrived.replies.items():
                if reason := misfit(reply, spec.inputs, spec.task, spec.num_classes):
                    self.post.tell(arrived.fail(name, reason))
                    self.roster.refuse(name, reason)
                    continue
                for novelty in novelties(reply, spec.inputs):
                    self.post.tell(f"{name}: {novelty}")
            self.roster.seat(arrived.replies.keys() - arrived.failures.keys(), self.roster.seats)
            self._record(arrived, 0.0)
            self._unfit = arrived.failures
        return self.roster.present()

    # Asking

    def _collect(self, question: str, message: Message) -> Exchange:
        """Replies of at least ``min_silos`` silos; while there are fewer, the others are asked again.

        Silos that state why they cannot answer are not: they would state it again.
        """
        start, end, done = time.monotonic(), 0.0, Exchange(question)
        while True:
            settled = done.replies.keys() | done.stated.keys()
            nodes = [node for node in self._nodes() if self.roster.name(node) not in settled]
            enough = self.terms.min_silos - len(done.replies)
            if about(question).builds_features:  # for statistics that hold for the whole run: wait for all
                enough = max(enough, sum(self.roster.name(node) in self._answered for node in nodes))
            done = done.then(self._ask_prepared(question, message, nodes, enough))
            for name in self.roster.seats.keys() - done.replies.keys() - done.failures.keys():
                self.post.tell(done.fail(name, self._unfit.get(name, self.roster.why_absent(name))))
            end = end or time.monotonic() + self.terms.wait
            hopeless = len(self.roster.seats.keys() - done.stated.keys()) < self.terms.min_silos
            if len(done.replies) >= self.terms.min_silos or hopeless or time.monotonic() > end:
                break
            self._wait_for(self.terms.min_silos, done)
        self._answered = set(done.replies)
        self._record(done, time.monotonic() - start)
        self._check_count(done)
        return done

    def _ask_prepared(self, question: str, message: Message, nodes: list[int], enough: int) -> Exchange:
        """Ask; silos that lack the features or weights that the question is about are told of them and asked again."""
        done = self._exchange(question, message, nodes, enough)
        if not done.unprepared:
            return done
        again = [node for node in nodes if self.roster.name(node) in done.unprepared]
        for earlier in about(question).rests_on:
            if earlier in self._prepared:
                done = done.then(self._exchange(earlier, self._prepared[earlier], again).without_replies())
        last = self._exchange(question, message, again)
        for name in last.unprepared:
            reason = done.failures.get(name, "it still lacks what the question is about, though it was sent")
            self.post.tell(last.fail(name, reason))
        return done.then(last)

    def _exchange(self, question: str, message: Message, nodes: list[int], enough: int | None = None) -> Exchange:
        """Send a question to nodes, with where the run stands, and collect their replies."""
        envelope = Envelope(
            question,
            self.run,
            position=self.standing.position,
            network=self._network,
            recipe=self._tags["moments"],
            features=self._tags["normalise"],
            fp16=self.terms.fp16 and fits_fp16(question, message),
        )
        return self.post.exchange(Letter(message, envelope, self.standing.last(), self._spec), nodes, enough)

    def _wait_for(self, needed: int, done: Exchange) -> None:
        """Say how many silos have answered so far, if it was not said before, and wait a moment."""
        count, who = len(done.replies), f": {', '.join(sorted(done.replies))}" if done.replies else ""
        self.post.tell(f"{count} of {needed} silos have answered{who}; waiting for more, {self.terms.wait:g} s at most")
        time.sleep(PAUSE_SECONDS)

    def _check_count(self, done: Exchange) -> None:
        least = self.terms.min_silos
        if len(done.replies) < least:
            reasons = "".join(f"; {silo}: {reason}" for silo, reason in done.failures.items())
            begun = "What is done is saved: resume the run when they are back."
            again = f"Start the run again when {'that is fixed' if done.stated else 'they are there'}."
            todo = again if done.question == "describe" else begun
            raise FedtctError(
                f"{len(done.replies)} silos answered '{done.question}', but at least {least} must{reasons}. {todo}"
            )

    def _record(self, done: Exchange, seconds: float) -> None:
        self.note(
            {
                "question": done.question,
                "position": self.standing.position,
                "seconds": round(seconds, 3),
                "bytes_down": done.down,
                "bytes_up": done.up,
                "missing": done.failures,
                "forgot": sorted(done.forgot),
            }
        )
