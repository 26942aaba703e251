"""A federation over a Flower grid: silos elsewhere, each question a message, silos that may be late, gone or wrong."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from flwr.app import Message as FlowerMessage
from flwr.serverapp import Grid
from torch import Tensor

import fedtct
from fedtct.agreement import misfit, novelties
from fedtct.errors import FedtctError
from fedtct.federation.base import Cost, Federation, Replies
from fedtct.federation.checks import flaw
from fedtct.federation.exchange import Exchange, Terms
from fedtct.federation.roster import Roster
from fedtct.federation.sizes import sent_bytes
from fedtct.federation.wire import (
    CHANGED,
    ERROR,
    FORGET,
    FORGOT,
    OTHER_DATA,
    PREPARATION,
    REMEMBERED,
    SILO,
    TOLD_BEFORE,
    UNPREPARED,
    VERSION,
    Envelope,
    halves,
    network_text,
    pack,
    seal,
    unpack,
)
from fedtct.models import NetworkSpec
from fedtct.seeds import digest
from fedtct.silo import Message
from fedtct.tangent import feature_count

POLL_SECONDS, PAUSE_SECONDS = 0.3, 3.0
FORGET_SECONDS = 30.0  # at most, to confirm that what was kept for a run is removed: all else is done by then
SPARE_SECONDS = 30.0  # after which Flower drops a question that nobody waits for any more
NEVER = -1


class FlowerFederation(Federation):
    """Silos behind a Flower grid. A round takes those that answer; ``note`` is told who did, who did not and why.

    ``warn`` is told of a silo that does not answer as soon as that is known. ``own_model`` is the module:function that
    makes the model, on every machine, where it is no name of fedtct's. ``keys`` tells whose key a node has.
    """

    begins_anew = True  # one that is missing may never come back

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
        self.warn, self.roster = warn, Roster(keys)
        self._plan = plan or {}  # what a run will spend of silos' privacy: they refuse before it begins
        self._describe: Message = {}  # how silos are asked what they hold
        self._spec: NetworkSpec | None = None
        self._network = ""
        self._prepared: dict[str, Message] = {}
        self._tags = {question: "" for question in PREPARATION}
        self._position = 0  # rounds so far
        self._since = 0  # what silos remember of rounds before this one no longer holds
        self._counted: dict[str, int] = {}  # the last round that a silo took part in
        self._answered: set[str] = set()  # who did, when last asked
        self._unfit: dict[str, str] = {}  # who came since and cannot take part, and why
        self._told: set[str] = set()  # what was warned of since

    def __len__(self) -> int:
        return len(self.roster.seats)

    def expect(self, silos: Mapping[str, int]) -> None:
        """Those who began the run keep their seats."""
        self.roster.samples = dict(silos) | self.roster.samples
        self.roster.seat(self.roster.seats, {name: seat for seat, name in enumerate(silos)})

    def leave_out(self, reasons: Mapping[str, str]) -> None:
        """As in any round of a run, the others go on if they are enough."""
        if len(self.roster.seats) - len(reasons) < self.terms.min_silos:
            super().leave_out(reasons)
        for name, reason in reasons.items():
            self._tell(f"{name} cannot go on with this run: {reason}")
            self.roster.refuse(name, reason)

    def use(self, spec: NetworkSpec) -> None:
        """The network goes out with every question: the process that answers knows nothing yet."""
        if not isinstance(spec.model, str) and not self.own_model:
            raise FedtctError("across machines a model must have a name: one of fedtct's, or module:function")
        self._spec, self._network = spec, network_text(spec, self.own_model)

    def ask(self, question: str, message: Message) -> Replies:
        """One round, with the bytes that were handed to Flower and that came from it."""
        start = time.perf_counter()
        done = self._round(question, message)
        names = sorted(done.replies, key=lambda name: self.roster.seats[name])
        cost = Cost.of(done.down, {name: done.up[name] for name in names}, time.perf_counter() - start)
        total = sum(self.roster.samples.get(name, 0) for name in self.roster.seats)
        return Replies([done.replies[name] for name in names], cost, total)

    def close(self) -> None:
        """The run is over: silos remove what they kept for it. One that is not there removes it when it is old."""
        self._exchange(FORGET, {}, list(self.grid.get_node_ids()), self.terms.min_silos)

    def snapshot(self) -> dict[str, Tensor]:
        """Silos keep their memory; the server keeps which rounds it is of, and who sits where."""
        numbers = {"position": self._position, "since": self._since}
        seats = {f"seat/{name}": seat for name, seat in self.roster.seats.items()}
        samples = {f"samples/{name}": count for name, count in self.roster.samples.items()}
        counted = {f"counted/{name}": position for name, position in self._counted.items()}
        return {key: torch.tensor(value) for key, value in (numbers | seats | samples | counted).items()}

    def restore(self, snapshot: dict[str, Tensor]) -> None:
        """Go on after a snapshot; an empty one means that nothing is remembered."""
        values = {key: int(value) for key, value in snapshot.items()}
        self._position = values.get("position", self._position)
        self._since = values.get("since", self._position)
        self._counted = _under("counted/", values)
        self.roster.samples = _under("samples/", values) | self.roster.samples
        self.roster.seat(self.roster.seats, _under("seat/", values) or self.roster.seats)

    def _round(self, question: str, message: Message) -> Exchange:
        self._told.clear()
        if question == "describe":
            self._describe = message | self._plan
            return self._gather()
        if question in PREPARATION:
            before = self._tags["moments"] if question == "normalise" else self._network
            self._tags[question], self._prepared[question] = digest(message, before), message
        if question == "freeze":
            self._prepared[question] = message
        done = self._collect(question, message)
        if question in REMEMBERED:
            self._move_on(set(done.replies), done.forgot, message["correction"])
        return done

    # Who is there

    def _gather(self) -> Exchange:
        """Wait for as many silos as there should be, ask what they hold and give them seats.

        One that tells why it cannot take part is not asked again; others begin without it if they are enough.
        """
        start, found, terms = time.monotonic(), Exchange(), self.terms
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
        self._record("describe", found, time.monotonic() - start)
        self._check_count("describe", found)
        if found.stated:
            self._tell(f"the others go on without {', '.join(sorted(found.stated))}")
        self.roster.seat(found.replies, {})
        self._answered = set(found.replies)
        return found

    def _nodes(self) -> list[int]:
        """The nodes that are there and known; newcomers are asked what they hold first."""
        self.roster.see(self.grid.get_node_ids())
        self._unfit = {}
        if strangers := self.roster.strangers():
            arrived = self._exchange("describe", self._describe, strangers)
            spec = self._spec
            assert spec is not None
            for name, reply in arrived.replies.items():
                if reason := misfit(reply, spec.inputs, spec.task, spec.num_classes):
                    self._fail(arrived, name, "describe", reason)
                    self.roster.refuse(name, reason)
                    continue
                for novelty in novelties(reply, spec.inputs):
                    self._tell(f"{name}: {novelty}")
            self.roster.seat(arrived.replies.keys() - arrived.failures.keys(), self.roster.seats)
            self._record("describe", arrived, 0.0)
            self._unfit = arrived.failures
        return self.roster.present()

    # Asking

    def _collect(self, question: str, message: Message) -> Exchange:
        """Replies of at least ``min_silos`` silos; while there are fewer the others are asked again.

        But for those that told why they cannot answer: asked again, they would tell the same.
        """
        start, end, done = time.monotonic(), 0.0, Exchange()
        while True:
            settled = done.replies.keys() | done.stated.keys()
            nodes = [node for node in self._nodes() if self.roster.name(node) not in settled]
            enough = self.terms.min_silos - len(done.replies)
            if question in PREPARATION:  # statistics are taken once and hold for all: late is better than left out
                enough = max(enough, sum(self.roster.name(node) in self._answered for node in nodes))
            done = done.then(self._ask_prepared(question, message, nodes, enough))
            for name in self.roster.seats.keys() - done.replies.keys() - done.failures.keys():
                self._fail(done, name, question, self._unfit.get(name, self.roster.why_absent(name)))
            end = end or time.monotonic() + self.terms.wait
            hopeless = len(self.roster.seats.keys() - done.stated.keys()) < self.terms.min_silos
            if len(done.replies) >= self.terms.min_silos or hopeless or time.monotonic() > end:
                break
            self._wait_for(self.terms.min_silos, done)
        self._answered = set(done.replies)
        self._record(question, done, time.monotonic() - start)
        self._check_count(question, done)
        return done

    def _ask_prepared(self, question: str, message: Message, nodes: list[int], enough: int) -> Exchange:
        """Ask; a silo that lacks features or weights that the question is about is told of them, and asked again."""
        done = self._exchange(question, message, nodes, enough)
        if not done.unprepared:
            return done
        again = [node for node in nodes if self.roster.name(node) in done.unprepared]
        for earlier in TOLD_BEFORE.get(question, PREPARATION):
            if earlier in self._prepared and earlier != question:
                done = done.then(self._exchange(earlier, self._prepared[earlier], again).without_replies())
        last = self._exchange(question, message, again)
        for name in last.unprepared:
            reason = done.failures.get(name, "it does not have what the question is about, though it was told")
            self._fail(last, name, question, reason)
        return done.then(last)

    def _exchange(self, question: str, message: Message, nodes: Sequence[int], enough: int | None = None) -> Exchange:
        """Send a question to nodes and take in what they reply in time; after ``enough`` answers time is short."""
        done, terms = Exchange(), self.terms
        sent = [self._question(question, message, node) for node in nodes]
        pushed = self.grid.push_messages(sent) if sent else []
        pending = {key: node for key, node in zip(pushed, nodes, strict=False) if key}
        for node, content in zip(nodes, sent, strict=True):
            done.down[self.roster.name(node)] = sent_bytes(content.content)
            if node not in pending.values():
                self._fail(done, self.roster.name(node), question, "Flower did not take the question: its log says why")
        limit = min(terms.round_timeout, FORGET_SECONDS) if question == FORGET else terms.round_timeout
        start, end = time.monotonic(), time.monotonic() + limit
        while pending and time.monotonic() < end:
            arrived = list(self.grid.pull_messages(list(pending)))
            for reply in arrived:
                self._take(done, pending.pop(reply.metadata.reply_to_message_id), reply, question, message)
                if self.on_reply and question != FORGET:
                    self.on_reply(question, len(done.replies), len(nodes))
            if terms.grace is not None and enough is not None and arrived and len(done.replies) >= enough:
                end, enough = min(end, time.monotonic() + terms.grace), None
            if pending and not arrived:
                time.sleep(POLL_SECONDS)
        late = f"no answer within {round(time.monotonic() - start, 1):g} s"
        for node in pending.values():
            self._fail(done, self.roster.name(node), question, late)
        return done

    def _question(self, question: str, message: Message, node: int) -> FlowerMessage:
        name = self.roster.name(node)
        counted = self._counted.get(name, NEVER)
        envelope = Envelope(
            question=question,
            run=self.run,
            seat=self.roster.seats.get(name, 0),
            position=self._position,
            last=counted if counted >= self._since else NEVER,
            network=self._network,
            recipe=self._tags["moments"],
            features=self._tags["normalise"],
            half=self.terms.half and halves(question, message),
        )
        content = pack(message, seal(envelope) | {VERSION: fedtct.__version__}, envelope.half)
        kind = "train" if question == "train" else "query"
        return FlowerMessage(content, node, kind, ttl=self.terms.round_timeout + SPARE_SECONDS)

    def _take(self, done: Exchange, node: int, reply: FlowerMessage, question: str, asked: Message) -> None:
        """Sort a reply in: an answer, a silo that must be prepared first, or a failure."""
        called, known = self.roster.name(node), self.roster.knows(node)
        if reply.has_error():
            self._fail(done, called, question, f"Flower says: {reply.error.reason or reply.error.code}")
            return
        try:
            message, own = unpack(reply.content)
            name = str(own[SILO])
        except Exception as error:  # whatever it is that a silo sent
            reason = f"its reply cannot be read ({type(error).__name__}): does it run fedtct {fedtct.__version__}?"
            self._fail(done, called, question, reason, node)
            return
        reason = self._objection(node, question, asked, message, own)
        if known:
            name = called
        elif reason and self.roster.taken(name, node):
            name = f"{name} ({called})"
        done.down[name], done.up[name] = done.down.pop(called, 0), sent_bytes(reply.content)
        if own.get(CHANGED):
            self._tell(f"{name}: {OTHER_DATA}")
        if reason:
            self._fail(done, name, question, reason, node)
        elif own.get(UNPREPARED):
            done.unprepared.add(name)
        else:
            done.replies[name] = message
            done.forgot |= {name} if own.get(FORGOT) else set()

    def _objection(self, node: int, question: str, asked: Message, message: Message, own: dict[str, Any]) -> str:
        """Why a reply is no answer, as the silo says or as is found here; empty if it is one.

        Once it is known who a silo is, its node answers for no other.
        """
        name, called = str(own[SILO]), self.roster.name(node)
        if (version := own.get(VERSION, "of an older version")) != fedtct.__version__:
            return f"it runs fedtct {version}, the server {fedtct.__version__}: they must be the same"
        if self.roster.knows(node) and name != called:
            return f"it calls itself '{name}': a silo keeps the name that its key was made for, for the whole run"
        if ERROR in own or own.get(UNPREPARED):
            return str(own.get(ERROR, ""))
        spec = self._spec
        features = min(asked["p"], feature_count(spec)) if spec and "p" in asked else 0
        samples = self.roster.samples.get(called)  # as its silo described them last
        if reason := flaw(question, asked, message, spec.num_classes if spec else 0, features, samples):
            return reason
        return self.roster.introduce(node, name, message["n"]) if question == "describe" else ""

    def _fail(self, done: Exchange, silo: str, question: str, reason: str, node: int | None = None) -> None:
        """A silo does not answer, or its node states why it cannot. It is said at once: others may take their time."""
        reason = reason.removeprefix(f"{silo}: ")
        done.failures[silo] = reason
        if node is not None:
            done.stated[silo] = reason
            done.cannot.add(node)
        self._tell(f"{silo} did not answer '{question}': {reason}")

    def _wait_for(self, needed: int, done: Exchange) -> None:
        """Silos are missing: say so, once for each number of them, and give them a moment."""
        count, who = len(done.replies), f": {', '.join(sorted(done.replies))}" if done.replies else ""
        self._tell(f"{count} of {needed} silos have answered{who}; waiting for more, {self.terms.wait:g} s at most")
        time.sleep(PAUSE_SECONDS)

    def _tell(self, text: str) -> None:
        """Warn of something, once a round."""
        if text not in self._told:
            self._told.add(text)
            self.warn(text)

    def _check_count(self, question: str, done: Exchange) -> None:
        least = self.terms.min_silos
        if len(done.replies) < least:
            reasons = "".join(f"; {silo}: {reason}" for silo, reason in done.failures.items())
            begun = "What was reached is saved: resume the run when they are back."
            again = f"Start the run again when {'that is put right' if done.stated else 'they are there'}."
            todo = again if question == "describe" else begun
            raise FedtctError(
                f"{len(done.replies)} silos answered '{question}', at least {least} must{reasons}. {todo}"
            )

    # After a round

    def _move_on(self, present: set[str], forgot: set[str], correction: str) -> None:
        """SCAFFOLD's corrections sum to zero over those who made them: when one is missing or lost, all begin anew."""
        if forgot and correction == "feddyn":
            raise FedtctError(
                f"{min(forgot)} has lost its part of FedDyn's sum of gradients: its cache was removed or damaged. "
                "Put the cache back and resume the run, or begin a new one"
            )
        before = {name for name, position in self._counted.items() if position == self._position - 1}
        self._counted |= dict.fromkeys(present, self._position)
        self._position += 1
        if correction == "scaffold" and (before - present or forgot):
            self._since = self._position

    def _record(self, question: str, done: Exchange, seconds: float) -> None:
        self.note(
            {
                "question": question,
                "position": self._position,
                "seconds": round(seconds, 3),
                "bytes_down": done.down,
                "bytes_up": done.up,
                "missing": done.failures,
                "forgot": sorted(done.forgot),
            }
        )


def _under(prefix: str, values: dict[str, int]) -> dict[str, int]:
    return {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
