"""Questions as messages over a Flower grid: sent to nodes, waited for, and sorted in."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from flwr.app import Message as FlowerMessage
from flwr.app import RecordDict
from flwr.serverapp import Grid

import fedtct
from fedtct.errors import one_line
from fedtct.federation.checks import flaw
from fedtct.federation.exchange import Exchange, Terms
from fedtct.federation.roster import Roster
from fedtct.federation.sizes import sent_bytes
from fedtct.federation.standing import Standing
from fedtct.federation.wire import (
    CHANGED,
    ERROR,
    FORGET,
    FORGOT,
    OTHER_DATA,
    SILO,
    UNPREPARED,
    VERSION,
    Envelope,
    addressed,
    fits_fp16,
    pack,
    seal,
    unpack,
)
from fedtct.models import NetworkSpec
from fedtct.silo import Message
from fedtct.tangent import feature_count

POLL_SECONDS = 0.3
MOST_SAID = 1000  # letters of what a silo says went wrong
FORGET_SECONDS = 30.0  # at most, to confirm that what was kept for a run is removed: all else is done by then
SPARE_SECONDS = 30.0  # after which Flower drops a question that nobody waits for any more


class Post:
    """Takes questions to nodes. ``heard`` is told of every answer, ``warn`` of every silo that gives none."""

    def __init__(
        self,
        grid: Grid,
        run: str,
        terms: Terms,
        roster: Roster,
        standing: Standing,
        heard: Callable[[str, int, int], None],
        warn: Callable[[str], None],
    ) -> None:
        self.grid, self.run, self.terms, self.roster, self.standing = grid, run, terms, roster, standing
        self.heard, self.warn = heard, warn
        self.spec: NetworkSpec | None = None
        self.network = ""  # goes out with every question: the process that answers knows nothing yet
        self.tags = {"moments": "", "normalise": ""}  # the names of features that questions are about
        self._told: set[str] = set()  # what was warned of since the round began

    def exchange(self, question: str, message: Message, nodes: Sequence[int], enough: int | None = None) -> Exchange:
        """Send a question to nodes and take in what they reply in time; after ``enough`` answers time is short."""
        done, terms = Exchange(), self.terms
        fp16 = terms.fp16 and fits_fp16(question, message)
        content = pack(message, {VERSION: fedtct.__version__}, fp16)
        sent = [self._question(question, content, fp16, node) for node in nodes]
        pushed = self.grid.push_messages(sent) if sent else []
        pending = {key: node for key, node in zip(pushed, nodes, strict=False) if key}
        for node, letter in zip(nodes, sent, strict=True):
            done.down[self.roster.name(node)] = sent_bytes(letter.content)
            if node not in pending.values():
                self.fail(done, self.roster.name(node), question, "Flower did not take the question: its log says why")
        limit = min(terms.round_timeout, FORGET_SECONDS) if question == FORGET else terms.round_timeout
        start, end = time.monotonic(), time.monotonic() + limit
        while pending and time.monotonic() < end:
            arrived = list(self.grid.pull_messages(list(pending)))
            for reply in arrived:
                self._take(done, pending.pop(reply.metadata.reply_to_message_id), reply, question, message)
                if question != FORGET:
                    self.heard(question, len(done.replies), len(nodes))
            if terms.grace is not None and enough is not None and arrived and len(done.replies) >= enough:
                end, enough = min(end, time.monotonic() + terms.grace), None
            if pending and not arrived:
                time.sleep(POLL_SECONDS)
        late = f"no answer within {round(time.monotonic() - start, 1):g} s"
        for node in pending.values():
            self.fail(done, self.roster.name(node), question, late)
        return done

    def fail(self, done: Exchange, silo: str, question: str, reason: str, node: int | None = None) -> None:
        """A silo does not answer, or its node states why it cannot. It is said at once: others may take their time."""
        reason = one_line(reason.removeprefix(f"{silo}: "), MOST_SAID)
        done.failures[silo] = reason
        if node is not None:
            done.stated[silo] = reason
            done.cannot.add(node)
        self.tell(f"{silo} did not answer '{question}': {reason}")

    def begin_round(self) -> None:
        """What was warned of may be warned of again."""
        self._told.clear()

    def tell(self, text: str) -> None:
        """Warn of something, once a round."""
        if text not in self._told:
            self._told.add(text)
            self.warn(text)

    def _question(self, question: str, content: RecordDict, fp16: bool, node: int) -> FlowerMessage:
        name = self.roster.name(node)
        envelope = Envelope(
            question=question,
            run=self.run,
            seat=self.roster.seats.get(name, 0),
            position=self.standing.position,
            last=self.standing.last(name),
            network=self.network,
            recipe=self.tags["moments"],
            features=self.tags["normalise"],
            fp16=fp16,
        )
        kind = "train" if question == "train" else "query"
        return FlowerMessage(
            addressed(content, seal(envelope)), node, kind, ttl=self.terms.round_timeout + SPARE_SECONDS
        )

    def _take(self, done: Exchange, node: int, reply: FlowerMessage, question: str, asked: Message) -> None:
        """Sort a reply in: an answer, a silo that must be prepared first, or a failure."""
        called, known = self.roster.name(node), self.roster.knows(node)
        if reply.has_error():
            self.fail(done, called, question, f"Flower says: {reply.error.reason or reply.error.code}")
            return
        try:
            message, own = unpack(reply.content)
            name = str(own[SILO])
            reason = self._objection(node, question, asked, message, own)
        except Exception as error:  # whatever it is that a silo sent
            reason = f"its reply cannot be read ({type(error).__name__}): does it run fedtct {fedtct.__version__}?"
            self.fail(done, called, question, reason, node)
            return
        if question == "describe" and not reason and not own.get(UNPREPARED):
            reason = self.roster.introduce(node, name, message["n"], message["held"])
        if known:
            name = called
        elif reason and self.roster.taken(name, node):
            name = f"{name} ({called})"
        done.down[name], done.up[name] = done.down.pop(called, 0), sent_bytes(reply.content)
        if own.get(CHANGED):
            self.tell(f"{name}: {OTHER_DATA}")
        if reason:
            self.fail(done, name, question, reason, node)
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
        if (version := own.get(VERSION, "of no version")) != fedtct.__version__:
            return f"it runs fedtct {version}, the server {fedtct.__version__}: they must be the same"
        if self.roster.knows(node) and name != called:
            return f"it calls itself '{name}': a silo keeps the name that its key was made for, for the whole run"
        if ERROR in own or own.get(UNPREPARED):
            return str(own.get(ERROR, ""))
        spec = self.spec
        features = min(asked["p"], feature_count(spec)) if spec and "p" in asked else 0
        told = {"samples": self.roster.samples.get(called), "held_out": self.roster.held_out.get(called)}
        return flaw(question, asked, message, spec.num_classes if spec else 0, features, **told)
