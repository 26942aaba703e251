"""Questions as messages over a Flower grid: sent to nodes; their replies awaited, checked and sorted."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flwr.app import Message as FlowerMessage
from flwr.app import RecordDict
from flwr.serverapp import Grid

import fedtct
from fedtct.federation.flower.checks import flaw
from fedtct.federation.flower.exchange import Exchange, Terms
from fedtct.federation.flower.roster import Roster
from fedtct.federation.flower.wire import (
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
    pack,
    seal,
    sent_bytes,
    unpack,
)
from fedtct.models import NetworkSpec
from fedtct.questions import Message
from fedtct.tangent import feature_count

POLL_SECONDS = 0.3
FORGET_SECONDS = 30.0  # at most, for silos to confirm that they removed what they kept for a run
SPARE_SECONDS = 30.0  # Flower keeps a question for so much longer than its replies are waited for


@dataclass(frozen=True)
class Letter:
    """A question on its way: its message, where the run stands, and what replies are checked by."""

    message: Message
    envelope: Envelope  # without each silo's own seat and last round
    last: Mapping[str, int]  # the round that each silo goes on from; others begin from nothing
    spec: NetworkSpec | None  # the network's, once there is one

    @property
    def question(self) -> str:
        """What is asked."""
        return self.envelope.question

    def flaw(self, reply: Message, samples: int | None, held_out: int | None) -> str:
        """Why the reply of a silo with so many samples cannot be used; empty if it can."""
        asked, spec = self.message, self.spec
        features = min(asked["p"], feature_count(spec)) if spec and "p" in asked else 0
        outputs = spec.num_classes if spec else 0
        return flaw(self.question, asked, reply, outputs, features, samples=samples, held_out=held_out)


class Post:
    """Takes questions to nodes. ``heard`` is called after every reply, ``warn`` for every silo that gives none."""

    def __init__(
        self,
        grid: Grid,
        terms: Terms,
        roster: Roster,
        heard: Callable[[str, int, int], None],
        warn: Callable[[str], None],
    ) -> None:
        self.grid, self.terms, self.roster, self.heard, self.warn = grid, terms, roster, heard, warn
        self._told: set[str] = set()  # the warnings of this round
        self._uncounted: dict[int, str] = {}  # nodes' answers that did not count, and why: told next time
        self._changed: set[str] = set()  # silos that were warned of because their data changed

    def exchange(self, letter: Letter, nodes: Sequence[int], enough: int | None = None) -> Exchange:
        """Send a question to nodes and collect what they reply in time, which ends sooner after ``enough`` replies."""
        done, terms, ends = Exchange(letter.question), self.terms, letter.question == FORGET
        pending = self._send(done, letter, nodes)
        limit = min(terms.round_timeout, FORGET_SECONDS) if ends else terms.round_timeout
        start, end = time.monotonic(), time.monotonic() + limit
        while pending and time.monotonic() < end:
            arrived = list(self.grid.pull_messages(list(pending)))
            for reply in arrived:
                self._take(done, letter, pending.pop(reply.metadata.reply_to_message_id), reply)
                if not ends:
                    self.heard(letter.question, len(done.replies), len(nodes))
            if terms.grace is not None and enough is not None and arrived and len(done.replies) >= enough:
                end, enough = min(end, time.monotonic() + terms.grace), None
            if pending and not arrived:
                time.sleep(POLL_SECONDS)
        late = f"no answer within {round(time.monotonic() - start, 1):g} s"
        for node in pending.values():
            self.tell(done.fail(self.roster.name(node), late))
            self._uncounted[node] = f"{letter.envelope.asked}: {late}"
        return done

    def begin_round(self) -> None:
        """Forget this round's warnings, so that the next one may give them again."""
        self._told.clear()

    def tell(self, text: str) -> None:
        """Warn of something, once a round."""
        if text not in self._told:
            self._told.add(text)
            self.warn(text)

    def _send(self, done: Exchange, letter: Letter, nodes: Sequence[int]) -> dict[str, int]:
        """Hand a question to Flower, with an envelope for each node. Returns the nodes by the ids of their messages.

        One by one: Flower announces messages before their parts, and a node that asks for a part too soon loses time.
        """
        content = pack(letter.message, {VERSION: fedtct.__version__}, letter.envelope.fp16)
        pending: dict[str, int] = {}
        for node in nodes:
            message = self._addressed(letter, content, node)
            done.down[self.roster.name(node)] = sent_bytes(message.content)
            if pushed := [key for key in self.grid.push_messages([message]) if key]:
                pending |= dict.fromkeys(pushed, node)
            else:
                self.tell(done.fail(self.roster.name(node), "Flower did not accept the question: its log says why"))
        return pending

    def _addressed(self, letter: Letter, content: RecordDict, node: int) -> FlowerMessage:
        name, own = self.roster.name(node), letter.envelope
        own = replace(own, seat=self.roster.seats.get(name, own.seat), last=letter.last.get(name, own.last))
        own = replace(own, uncounted=self._uncounted.pop(node, ""))
        kind = "train" if letter.question == "train" else "query"
        return FlowerMessage(addressed(content, seal(own)), node, kind, ttl=self.terms.round_timeout + SPARE_SECONDS)

    def _take(self, done: Exchange, letter: Letter, node: int, reply: FlowerMessage) -> None:
        """Sort a reply: it is an answer, or the silo must be prepared first, or it failed."""
        called, known = self.roster.name(node), self.roster.knows(node)
        if reply.has_error():
            self.tell(done.fail(called, f"Flower says: {reply.error.reason or reply.error.code}"))
            return
        try:
            message, own = unpack(reply.content)
            name = str(own[SILO])
            reason = self._objection(letter, node, message, own)
        except Exception as error:  # a silo may send anything
            reason = f"its reply cannot be read ({type(error).__name__}): does it run fedtct {fedtct.__version__}?"
            self.tell(done.fail(called, reason, node))
            self._uncounted[node] = f"{letter.envelope.asked}: {reason}"
            return
        if letter.question == "describe" and not reason and not own.get(UNPREPARED):
            reason = self.roster.introduce(node, name, message["n"], message["held"])
        if known:
            name = called
        elif reason and self.roster.taken(name, node):
            name = f"{name} ({called})"
        done.down[name], done.up[name] = done.down.pop(called, 0), sent_bytes(reply.content)
        if own.get(CHANGED) and name not in self._changed:
            self._changed.add(name)
            self.warn(f"{name}: {OTHER_DATA}")
        if reason:
            self.tell(done.fail(name, reason, node))
            if ERROR not in own:  # else the silo knows that it could not answer
                self._uncounted[node] = f"{letter.envelope.asked}: {reason}"
        elif own.get(UNPREPARED):
            done.unprepared.add(name)
        else:
            done.replies[name] = message
            done.forgot |= {name} if own.get(FORGOT) else set()

    def _objection(self, letter: Letter, node: int, message: Message, own: dict[str, Any]) -> str:
        """Why a reply is no answer, as the silo states or as is found here; empty if it is one.

        Once it is known which silo a node belongs to, the node answers for no other.
        """
        name, called = str(own[SILO]), self.roster.name(node)
        if (version := own.get(VERSION, "of no version")) != fedtct.__version__:
            return f"it runs fedtct {version}, the server {fedtct.__version__}: they must be the same"
        if self.roster.knows(node) and name != called:
            return f"it calls itself '{name}': a silo must keep the name that its key was made for during the whole run"
        if ERROR in own or own.get(UNPREPARED):
            return str(own.get(ERROR, ""))
        return letter.flaw(message, self.roster.samples.get(called), self.roster.held_out.get(called))
