"""A federation over a Flower grid: silos elsewhere, each question a message, silos that may be late, gone or wrong."""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from flwr.app import Message as FlowerMessage
from flwr.serverapp import Grid
from torch import Tensor

from fedtct.agreement import misfit
from fedtct.errors import FedtctError
from fedtct.federation.base import Cost, Federation, Replies
from fedtct.federation.wire import (
    ERROR,
    FORGET,
    PREPARATION,
    REMEMBERED,
    SILO,
    UNPREPARED,
    Envelope,
    pack,
    seal,
    unpack,
    weigh,
)
from fedtct.models import NetworkSpec
from fedtct.seeds import digest
from fedtct.silo import Message

POLL_SECONDS, PAUSE_SECONDS = 0.3, 3.0


@dataclass(frozen=True)
class Terms:
    """What makes a round count. Seconds are as long as it takes at most."""

    silos: int = 1  # that a run waits for at its start
    min_silos: int = 1  # with fewer a round is not over
    round_timeout: float = 600.0  # for a silo to answer
    wait: float = 600.0  # for silos to come, or to come back
    half: bool = False  # in rounds, weights travel as float16

    def __post_init__(self) -> None:
        if not 1 <= self.min_silos <= self.silos:
            raise FedtctError(f"min_silos must be from 1 to the number of silos, {self.silos}: it is {self.min_silos}")
        if self.round_timeout <= 0 or self.wait < 0:
            raise FedtctError("round_timeout must be positive and wait not negative")


@dataclass
class Exchange:
    """What came of asking some nodes, by silo: replies, why there was none, bytes down and up."""

    replies: dict[str, Message] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    stated: dict[str, str] = field(default_factory=dict)  # of the failures, those that a silo itself tells of
    unprepared: list[int] = field(default_factory=list)
    down: dict[str, int] = field(default_factory=dict)
    up: dict[str, int] = field(default_factory=dict)


class FlowerFederation(Federation):
    """Silos behind a Flower grid.

    A silo is known by its name: it may restart, and be another node afterwards. Its seat, a number, is its place among
    the names. A round takes those silos that answer; ``note`` is told who did, who did not and why.
    """

    def __init__(
        self, grid: Grid, run: str, terms: Terms, note: Callable[[dict[str, Any]], None] = lambda record: None
    ) -> None:
        self.grid, self.run, self.terms, self.note = grid, run, terms, note
        self.seats: dict[str, int] = {}
        self._names: dict[int, str] = {}  # of nodes
        self._online: set[int] = set()
        self._refused: set[int] = set()  # nodes whose data does not fit
        self._describe: Message = {}  # how silos are asked what they hold
        self._spec: NetworkSpec | None = None
        self._network = ""
        self._prepared: dict[str, Message] = {}
        self._tags = {question: "" for question in PREPARATION}
        self._position, self._since = 0, 0
        self._present: set[str] = set()
        self._traffic = (0, 0)

    def __len__(self) -> int:
        return len(self.seats)

    def use(self, spec: NetworkSpec) -> None:
        """The network goes out with every question: the process that answers knows nothing yet."""
        if not isinstance(spec.model, str):
            raise FedtctError("across machines a model must have a name: give one of fedtct's, not an nn.Module")
        self._spec, self._network = spec, json.dumps(spec.record())

    def ask(self, question: str, message: Message) -> Replies:
        """One round, with the bytes that were handed to Flower and that came from it, for the mean silo."""
        start = time.perf_counter()
        messages = self.deliver(question, message)
        down, up = self._traffic
        return Replies(messages, Cost(down, up, time.perf_counter() - start))

    def deliver(self, question: str, message: Message) -> list[Message]:
        """Ask the silos that are there until enough have answered."""
        if question in PREPARATION:
            before = self._tags["moments"] if question == "normalise" else self._network
            self._tags[question], self._prepared[question] = digest(message, before), message
        if question == "describe":
            self._describe = message
        replies = self._gather() if question == "describe" else self._collect(question, message)
        if question in REMEMBERED:
            self._move_on(set(replies), scaffold=message["correction"] == "scaffold")
        return [replies[name] for name in sorted(replies, key=lambda name: self.seats[name])]

    def close(self) -> None:
        """The run is over: silos remove what they kept for it. One that is not there removes it when it is old."""
        self._exchange(FORGET, {}, self._nodes())

    def snapshot(self) -> dict[str, Tensor]:
        """Silos keep their memory; the server keeps which rounds it is of, and who sits where."""
        numbers = {"position": self._position, "since": self._since}
        seats = {f"seat/{name}": seat for name, seat in self.seats.items()}
        present = {f"present/{name}": 1 for name in self._present}
        return {key: torch.tensor(value) for key, value in (numbers | seats | present).items()}

    def restore(self, snapshot: dict[str, Tensor]) -> None:
        """Go on after a snapshot; an empty one means that nothing is remembered."""
        values = {key: int(value) for key, value in snapshot.items()}
        self._position = values.get("position", self._position)
        self._since = values.get("since", self._position)
        self._present = {key.removeprefix("present/") for key in values if key.startswith("present/")}
        seats = {key.removeprefix("seat/"): seat for key, seat in values.items() if key.startswith("seat/")}
        self._seat(self.seats, seats or self.seats)

    # Who is there

    def _gather(self) -> dict[str, Message]:
        """Wait for as many silos as there should be, ask what they hold and give them seats."""
        deadline, found = time.monotonic() + self.terms.wait, Exchange()
        self._names = {}
        while len(found.replies) < self.terms.silos:
            nodes = [node for node in self._there() if node not in self._names]
            found = _join(found, self._exchange("describe", self._describe, nodes)) if nodes else found
            if found.stated or time.monotonic() > deadline:
                break
            if len(found.replies) < self.terms.silos:
                time.sleep(PAUSE_SECONDS)
        if found.stated:  # what a silo says about itself now will not change: better stop than train without it
            raise FedtctError("; ".join(f"{silo}: {reason}" for silo, reason in found.stated.items()))
        self._check_count("describe", found)
        self._seat(found.replies, {})
        self._record("describe", found, 0.0)
        return {name: reply | {"name": name} for name, reply in found.replies.items()}

    def _nodes(self) -> list[int]:
        """The nodes that are there and known; newcomers are asked what they hold first."""
        there = self._there()
        new = [node for node in there if node not in self._names and node not in self._refused]
        if new:
            arrived = self._exchange("describe", self._describe, new)
            for name, reply in arrived.replies.items():
                if reason := self._misfit(reply):
                    arrived.failures[name] = reason
                    self._refused |= {node for node in new if self._names.pop(node, "") == name}
            self._seat([name for name in arrived.replies if name not in arrived.failures], self.seats)
            self._record("describe", arrived, 0.0)
        return [node for node in there if self._names.get(node) in self.seats]

    def _there(self) -> list[int]:
        """The nodes that are connected; one that was refused and left may try again."""
        there = list(self.grid.get_node_ids())
        self._online, self._refused = set(there), self._refused & set(there)
        return there

    def _misfit(self, reply: Message) -> str:
        """Why a newcomer cannot join; empty if it can."""
        assert self._spec is not None
        return misfit(reply, self._spec)

    def _seat(self, names: Iterable[str], seats: dict[str, int]) -> None:
        """Seats by name; those taken stay, newcomers get the next."""
        self.seats = dict(seats)
        for name in sorted(set(names) - set(seats), key=_natural):
            self.seats[name] = len(self.seats)

    # Asking

    def _collect(self, question: str, message: Message) -> dict[str, Message]:
        """Replies of at least ``min_silos`` silos; while there are fewer the others are asked again."""
        start, done = time.monotonic(), Exchange()
        while True:
            nodes = [node for node in self._nodes() if self._names[node] not in done.replies]
            done = _join(done, self._ask_prepared(question, message, nodes))
            if len(done.replies) >= self.terms.min_silos:
                break
            if time.monotonic() > start + self.terms.wait + self.terms.round_timeout:
                self._check_count(question, done)
            time.sleep(PAUSE_SECONDS)
        for name in self.seats.keys() - done.replies.keys() - done.failures.keys():
            done.failures[name] = "not connected"
        self._record(question, done, time.monotonic() - start)
        return done.replies

    def _ask_prepared(self, question: str, message: Message, nodes: list[int]) -> Exchange:
        """Ask; a silo that lacks the features the question is about is told how to build them, and asked again."""
        done = self._exchange(question, message, nodes)
        if not done.unprepared:
            return done
        again = done.unprepared
        for earlier in PREPARATION:
            if earlier in self._prepared and earlier != question:
                done = _join(done, self._exchange(earlier, self._prepared[earlier], again), replies=False)
        return _join(done, self._exchange(question, message, again))

    def _exchange(self, question: str, message: Message, nodes: Sequence[int]) -> Exchange:
        """Send a question to nodes and take in what they reply in time."""
        done = Exchange()
        sent = [self._question(question, message, node) for node in nodes]
        pushed = self.grid.push_messages(sent) if sent else []
        pending = {key: node for key, node in zip(pushed, nodes, strict=False) if key}
        for node, content in zip(nodes, sent, strict=True):
            done.down[self._name(node)] = weigh(content.content)
        end = time.monotonic() + self.terms.round_timeout
        while pending and time.monotonic() < end:
            arrived = list(self.grid.pull_messages(list(pending)))
            for reply in arrived:
                self._take(done, pending.pop(reply.metadata.reply_to_message_id), reply, question)
                if self.on_reply:
                    self.on_reply(question, len(done.replies), len(nodes))
            if pending and not arrived:
                time.sleep(POLL_SECONDS)
        seconds = self.terms.round_timeout
        done.failures |= {self._name(node): f"no answer within {seconds:g} s" for node in pending.values()}
        return done

    def _question(self, question: str, message: Message, node: int) -> FlowerMessage:
        name = self._names.get(node, "")
        envelope = Envelope(
            question=question,
            run=self.run,
            seat=self.seats.get(name, 0),
            position=self._position,
            since=self._since,
            network=self._network,
            recipe=self._tags["moments"],
            features=self._tags["normalise"],
            half=self.terms.half and question in REMEMBERED,
        )
        content = pack(message, seal(envelope), envelope.half)
        kind = "train" if question == "train" else "query"  # Flower's own mods look at training alone
        return FlowerMessage(content, node, kind, ttl=self.terms.round_timeout)

    def _take(self, done: Exchange, node: int, reply: FlowerMessage, question: str) -> None:
        """Sort a reply in: an answer, a silo that must be prepared first, or a failure."""
        if reply.has_error():
            done.failures[self._name(node)] = f"Flower says: {reply.error.reason or reply.error.code}"
            return
        message, own = unpack(reply.content)
        name, called = own[SILO], self._name(node)
        if question == "describe" and ERROR not in own:
            if any(other == name and n != node and n in self._online for n, other in self._names.items()):
                own[ERROR] = "another silo has this name: every silo needs one of its own"
            else:  # a silo that restarted may be a new node: the old one is gone
                self._names = {n: other for n, other in self._names.items() if other != name} | {node: name}
        done.down[name], done.up[name] = done.down.pop(called, 0), weigh(reply.content)
        if own.get(UNPREPARED):
            done.unprepared.append(node)
        elif ERROR in own:
            who = name if name not in done.replies else f"{name} ({called})"
            done.failures[who] = done.stated[who] = own[ERROR]
        else:
            done.replies[name] = message

    def _name(self, node: int) -> str:
        return self._names.get(node, f"node {node}")

    def _check_count(self, question: str, done: Exchange) -> None:
        least = self.terms.min_silos
        if len(done.replies) < least:
            reasons = "".join(f"; {silo}: {reason}" for silo, reason in done.failures.items())
            raise FedtctError(
                f"{len(done.replies)} silos answered '{question}', at least {least} must{reasons}. "
                "What was reached is saved: resume the run when they are back."
            )

    # After a round

    def _move_on(self, present: set[str], scaffold: bool) -> None:
        """SCAFFOLD's corrections sum to zero over those who made them: when one is missing, they begin anew."""
        self._position += 1
        if scaffold and self._present - present:
            self._since = self._position
        self._present = present

    def _record(self, question: str, done: Exchange, seconds: float) -> None:
        count = max(1, len(done.replies))
        self._traffic = (
            sum(done.down.get(name, 0) for name in done.replies) // count,
            sum(done.up.get(name, 0) for name in done.replies) // count,
        )
        self.note(
            {
                "question": question,
                "position": self._position,
                "seconds": round(seconds, 3),
                "bytes_down": done.down,
                "bytes_up": done.up,
                "missing": done.failures,
            }
        )


def _join(one: Exchange, two: Exchange, *, replies: bool = True) -> Exchange:
    """Both together; a silo that answered has not failed."""
    answers = one.replies | two.replies if replies else one.replies
    failures = {k: v for k, v in (one.failures | two.failures).items() if k not in answers}
    down, up = dict(one.down), dict(one.up)
    for name in two.down:
        down[name] = down.get(name, 0) + two.down[name]
        up[name] = up.get(name, 0) + two.up.get(name, 0)
    return Exchange(answers, failures, one.stated | two.stated, [], down, up)


def _natural(name: str) -> tuple[str, int]:
    """Names that end in numbers in the order of these: silo-2 before silo-10."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0)
