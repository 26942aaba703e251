"""A silo's answer to one question of a deployed run: its data and what its cache holds go in, the reply comes out.

Every question finds a new process, so what the silo must remember is in the cache before and after.
"""

import hashlib
import json
import logging
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedtct.deploy.cache import DataMarks, RunCache
from fedtct.deploy.privacy_budget import Budget
from fedtct.digests import digest
from fedtct.errors import FedtctError
from fedtct.federation.flower.wire import CHANGED, FORGET, FORGOT, OTHER_DATA, OWN_MODEL, Envelope, fixed_buffers
from fedtct.federation.local import LocalFederation
from fedtct.hardware.devices import pick_device
from fedtct.importing import import_function
from fedtct.models import NetworkSpec
from fedtct.privacy import AddNoise
from fedtct.questions import Message, about
from fedtct.seated_silo import SeatedSilo
from fedtct.silo import Silo, SiloData
from fedtct.training.corrections import REMEMBERING


@dataclass(frozen=True)
class SiloSetup:
    """What a process must know to answer for a silo: its name, how to load its data, where to keep things."""

    name: str
    load: Callable[[], Silo]
    cache: Path
    cache_bytes: int
    device: str = "auto"
    precision: str = "auto"
    secret: str = ""  # what noise is drawn with
    budget: Budget | None = None  # of privacy; without one the server decides how much noise replies have
    fingerprint: Callable[[], str] = str  # of the data's content; empty if unknown
    glance: Callable[[], str] = str  # of the files' sizes and times: while it is the same, so is the fingerprint
    keeps_samples: bool = False  # in the cache, because reading them takes long
    app: Callable[[], Path] = Path.cwd  # the folder of the app that came with the run
    installed_models: bool = False  # whether a server's message may call any installed module, not only that app
    say: Callable[[str], None] = logging.getLogger(__name__).info  # for whoever looks after it


class Unprepared(Exception):
    """The silo lacks the features or the weights that a question is about: the server must tell it of them first."""


def respond(setup: SiloSetup, envelope: Envelope, message: Message, add_noise: AddNoise) -> Message:
    """Answer a question with the data and the cache, and keep in the cache what the next question will need."""
    if not re.fullmatch(r"\w{1,64}", envelope.run):  # it names a folder
        raise FedtctError(f"'{envelope.run}' is not a valid name for a run")
    cache = RunCache(setup.cache, envelope.run, setup.cache_bytes)
    question = envelope.question
    if question == FORGET:
        cache.forget()
        return {}
    data = cache.data(setup.glance(), setup.fingerprint)
    if data.is_other and (data.now != data.before or question == "describe"):
        warnings.warn(OTHER_DATA, stacklevel=2)
    notes = {CHANGED: True} if data.is_other and not setup.budget else {}
    if kept := _kept_answer(cache, envelope, data):
        return kept | notes
    silo = _seated(setup, _samples(setup, cache, data), envelope, add_noise)
    federation = LocalFederation([silo], silo.device, precision=setup.precision)
    if envelope.network and question != "describe":  # the server says whether the data fits
        federation.use(_network(json.loads(envelope.network), setup))
    if "moments" in about(question).rests_on:
        _take_features(silo, cache, envelope, data)
    if message.get("frozen"):
        _take_frozen(silo, cache, message)
    forgot = bool(about(question).memory) and not _take_memory(silo, cache, envelope, message)
    (answer,) = federation.deliver(question, message)
    _keep(silo, cache, envelope, data, message, answer)
    return answer | notes | ({FORGOT: True} if forgot else {})


def _samples(setup: SiloSetup, cache: RunCache, data: DataMarks) -> SiloData:
    """The silo's data: from the cache if reading the files takes long, else from the files."""
    if not setup.keeps_samples:
        return setup.load()
    if kept := cache.samples(data.now):
        return SiloData(setup.name, *kept)
    silo = setup.load()
    if data.now and setup.glance() == data.glance:  # else files changed while they were read
        cache.keep_samples(silo.parts(), data.now)
    return silo


def _seated(setup: SiloSetup, silo: SiloData, envelope: Envelope, add_noise: AddNoise) -> SeatedSilo:
    """The silo at the place that the server gives it; one with a budget is charged for each noisy reply."""
    device, secret = pick_device(setup.device), _secret(setup, envelope)
    spend = partial(setup.budget.spend, envelope.run) if setup.budget else None
    return SeatedSilo(silo, envelope.seat, device, secret=secret, add_noise=add_noise, spend=spend)


def _network(record: dict[str, Any], setup: SiloSetup) -> NetworkSpec:
    """The network that a question is about; one that is not fedtct's is made by code that came with the run."""
    own = record[OWN_MODEL]
    build = import_function(own, setup.app(), installed=setup.installed_models) if own else None
    spec = replace(NetworkSpec.from_record(record, build), fixed=fixed_buffers(record))
    if setup.budget:
        setup.budget.check_network(spec)
    return spec


def _secret(setup: SiloSetup, envelope: Envelope) -> str:
    """What noise is drawn with: it differs from run to run and by network; empty in a simulation."""
    network = hashlib.sha256(envelope.network.encode()).hexdigest()
    return setup.secret and f"{setup.secret}/{envelope.run}/{network}"


def _kept_answer(cache: RunCache, envelope: Envelope, data: DataMarks) -> Message:
    """The answer that was given when the features were built, if they are in the cache already; else empty."""
    question = envelope.question
    tensors, which = cache.features() if about(question).builds_features else ({}, {})
    if not which or which["recipe"] != envelope.recipe or which["data"] != data.now:
        return {}
    if question == "moments":
        return {"n": int(tensors["n"]), "mean": tensors["mean"], "m2": tensors["m2"]}
    if which.get("features") == envelope.features:
        return {"n": int(tensors["n"]), "largest_eigenvalue": float(tensors["eigenvalues"][-1])}
    return {}


def _take_features(silo: SeatedSilo, cache: RunCache, envelope: Envelope, data: DataMarks) -> None:
    tensors, which = cache.features()
    raw = which.get("features", "") == ""
    if which.get("recipe") != envelope.recipe or (raw and envelope.question != "normalise"):
        raise Unprepared
    if not raw and which["features"] != envelope.features:
        cache.drop_features()  # normalised in another way, and the raw ones are gone
        raise Unprepared
    if not _made_of(silo, data).items() <= which.items():  # rows would be paired with the answers of others
        if which["data"] == data.now:  # it is not known yet: data that a function makes has no fingerprint
            warnings.warn(OTHER_DATA, stacklevel=2)
        cache.drop_all_of_the_data()
        raise Unprepared
    silo.take_features(tensors)


def _made_of(silo: SeatedSilo, data: DataMarks) -> dict[str, str]:
    """Digests of what features are made for: the data, and the answers in the order of its samples."""
    return {"data": data.now, "answers": digest({"y": silo.y, "held_y": silo.held_y})}


def _take_frozen(silo: SeatedSilo, cache: RunCache, message: Message) -> None:
    """Give the silo its frozen weights back, if they are those that the question names."""
    told = cache.frozen() | {"trainable": message["trainable"]}
    if digest(told) != message["frozen"]:
        raise Unprepared
    silo.freeze({name: v.to(silo.device) if isinstance(v, Tensor) else v for name, v in told.items()})


def _take_memory(silo: SeatedSilo, cache: RunCache, envelope: Envelope, message: Message) -> bool:
    """Give the silo back what it remembered after its last round. Returns whether all is there that should be."""
    stage = about(envelope.question).memory
    memory = cache.memory(envelope.last).get(stage, {})
    silo.memory = {stage: {name: value.to(silo.device) for name, value in memory.items()}}
    return bool(memory) or envelope.last < 0 or message["correction"] not in REMEMBERING


def _keep(
    silo: SeatedSilo, cache: RunCache, envelope: Envelope, data: DataMarks, message: Message, answer: Message
) -> None:
    question = envelope.question
    if question == "freeze":
        cache.keep_frozen({name: value for name, value in message.items() if isinstance(value, Tensor)})
    if about(question).memory:
        cache.remember(envelope.position, silo.memory, envelope.last)
    if question == "moments":
        statistics = {"n": torch.tensor(answer["n"]), "mean": answer["mean"], "m2": answer["m2"]}
        cache.keep_features(silo.features() | statistics, {"recipe": envelope.recipe} | _made_of(silo, data))
    if question == "normalise":
        raw, _ = cache.features()
        statistics = {key: raw[key] for key in ("n", "mean", "m2")}
        which = {"recipe": envelope.recipe, "features": envelope.features}
        cache.keep_features(silo.features() | statistics, which | _made_of(silo, data))
