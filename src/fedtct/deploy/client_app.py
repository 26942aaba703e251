"""The Flower app of a silo: a question comes in, a fresh process answers it from the silo's data and its cache."""

import hashlib
import json
import logging
import os
import re
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context
from flwr.app import Message as FlowerMessage
from flwr.clientapp import ClientApp
from torch import Tensor

import fedtct
from fedtct.deploy.cache import DataMarks, RunCache
from fedtct.deploy.local_dp import with_flowers_noise
from fedtct.deploy.log_lines import say, warnings_said
from fedtct.deploy.privacy_budget import Budget, Refusal
from fedtct.deploy.silo_config import SiloConfig
from fedtct.errors import FedtctError
from fedtct.federation.flower.wire import (
    CHANGED,
    ERROR,
    FORGET,
    FORGOT,
    OTHER_DATA,
    OWN_MODEL,
    SILO,
    UNPREPARED,
    VERSION,
    Envelope,
    fixed_buffers,
    pack,
    unpack,
    unseal,
)
from fedtct.federation.local import LocalFederation
from fedtct.hardware.devices import pick_device
from fedtct.importing import import_function
from fedtct.models import NetworkSpec
from fedtct.privacy import AddNoise
from fedtct.questions import Message, about
from fedtct.seated_silo import SeatedSilo
from fedtct.seeds import digest
from fedtct.silo import Silo, SiloData
from fedtct.training.corrections import REMEMBERING

log = logging.getLogger(__name__)
UNTOLD = "it could not answer, and as it answers with differential privacy alone, only its own log says why"


@dataclass(frozen=True)
class Seat:
    """A silo as a process finds it: its name, how to load its data, and where it keeps things."""

    name: str
    load: Callable[[], Silo]
    cache: Path
    cache_bytes: int
    device: str = "auto"
    precision: str = "auto"
    secret: str = ""  # that noise is drawn with
    budget: Budget | None = None  # without one the server says how private replies are
    fingerprint: Callable[[], str] = str  # of its data, if it lies in files
    glance: Callable[[], str] = str  # of how these look from outside: as long as that holds, so does the fingerprint
    keeps_samples: bool = False  # since to read them takes long
    app: Callable[[], Path] = Path.cwd  # the folder of the app that came with the run
    installed_models: bool = False  # else a server's message can call what is in that app alone
    say: Callable[[str], None] = log.info  # for whoever looks after it


class Unprepared(Exception):
    """The silo lacks the features or the weights that a question is about: it must be told of them."""


def client_app(seat_of: Callable[[Context], Seat]) -> ClientApp:
    """A Flower app for the silo that a context stands for."""
    app = ClientApp()

    def handle(message: FlowerMessage, context: Context) -> FlowerMessage:
        try:
            seat = seat_of(context)
        except Exception as error:  # Flower would send its text
            _log(error, "this silo cannot answer")
            raise FedtctError(told(error)) from None
        return FlowerMessage(reply(message, context, seat), reply_to=message)

    app.train()(handle)
    app.query()(handle)
    return app


def deployed_silo(context: Context) -> Seat:
    """The silo that this SuperNode was started for, as its silo.toml tells."""
    silo = SiloConfig.read(str(context.node_config["silo"]))
    return Seat(
        name=silo.name,
        load=silo.load,
        cache=silo.runs(),
        cache_bytes=int(silo.cache_gb * 1e9),
        device=silo.device,
        precision=silo.precision,
        secret=silo.secret(),
        budget=silo.budget(),
        fingerprint=silo.fingerprint,
        glance=silo.glance,
        keeps_samples=silo.path(silo.data).is_dir(),
        app=_app_folder,
        say=say,
    )


def _app_folder() -> Path:
    """Where Flower put the app of this run: Python imports from there."""
    apps = Path(os.environ.get("FLWR_HOME", Path.home() / ".flwr"), "apps").absolute()
    return next((Path(path) for path in sys.path if Path(path).parent == apps), Path.cwd())


def reply(message: FlowerMessage, context: Context, seat: Seat) -> Any:
    """The answer to a message, or what went wrong in words; what errors of others say stays in the silo's log."""
    own: dict[str, Any] = {SILO: seat.name, VERSION: fedtct.__version__}
    start, fp16, asked = time.perf_counter(), False, "a question"
    try:
        question, rest = unpack(message.content)
        envelope = unseal(rest)
        fp16, asked = envelope.fp16, envelope.asked
        if envelope.uncounted:
            seat.say(f"{seat.name}: the server did not count its answer to {envelope.uncounted}")
        if seat.secret and question.get("noise"):
            envelope = replace(envelope, seat=0)  # a resumed run may deal seats anew: the answer must be the same
        if seat.budget:
            seat.budget.check(envelope.run, envelope.question, question)
        with warnings_said(seat.say):
            answer = respond(seat, envelope, question, partial(with_flowers_noise, message, context))
        seat.say(f"{seat.name} answered {asked} in {time.perf_counter() - start:.1f} s")
    except Unprepared:
        answer, own = {}, own | {UNPREPARED: True}
        seat.say(f"{seat.name} is to be told first what {asked} is about")
    except Exception as error:
        _log(error, f"{seat.name} could not answer {asked}")
        # An error may depend on the samples, and costs nothing.
        secretive = seat.budget is not None and not isinstance(error, Refusal)
        answer, own = {}, own | {ERROR: UNTOLD if secretive else told(error)}
    return pack(answer, own, fp16)


def _log(error: Exception, what: str) -> None:
    """What fedtct says is enough; of others' errors one wants to know where they come from."""
    strange = not isinstance(error, FedtctError) or error.__cause__ is not None
    log.error("%s: %s", what, error, exc_info=error if strange else None)


def told(error: Exception) -> str:
    """What the server is told of an error: what fedtct says, and of others' their kind."""
    return error.shareable if isinstance(error, FedtctError) else f"{type(error).__name__}; the silo's log says more"


def respond(seat: Seat, envelope: Envelope, message: Message, add_noise: AddNoise) -> Message:
    """Answer with what the cache holds, and keep what the next question will need."""
    if not re.fullmatch(r"\w{1,64}", envelope.run):  # it names a folder
        raise FedtctError(f"'{envelope.run}' is no name of a run")
    cache = RunCache(seat.cache, envelope.run, seat.cache_bytes)
    question = envelope.question
    if question == FORGET:
        cache.forget()
        return {}
    data = cache.data(seat.glance(), seat.fingerprint)
    if data.is_other and (data.now != data.before or question == "describe"):
        warnings.warn(OTHER_DATA, stacklevel=2)
    notes = {CHANGED: True} if data.is_other and not seat.budget else {}
    if kept := _kept_answer(cache, envelope, data):
        return kept | notes
    silo = _seated(seat, _samples(seat, cache, data), envelope, add_noise)
    federation = LocalFederation([silo], silo.device, precision=seat.precision)
    if envelope.network and question != "describe":  # whether its data fits is for the server to say
        federation.use(_network(json.loads(envelope.network), seat))
    if "moments" in about(question).rests_on:
        _take_features(silo, cache, envelope, data)
    if message.get("frozen"):
        _take_frozen(silo, cache, message)
    forgot = bool(about(question).memory) and not _take_memory(silo, cache, envelope, message)
    (answer,) = federation.deliver(question, message)
    _keep(silo, cache, envelope, data, message, answer)
    return answer | notes | ({FORGOT: True} if forgot else {})


def _samples(seat: Seat, cache: RunCache, data: DataMarks) -> SiloData:
    """The silo's data, as it was kept if it takes long to read."""
    if not seat.keeps_samples:
        return seat.load()
    if kept := cache.samples(data.now):
        return SiloData(seat.name, *kept)
    silo = seat.load()
    if data.now and seat.glance() == data.glance:  # else files changed as they were read
        cache.keep_samples(silo.parts(), data.now)
    return silo


def _seated(seat: Seat, silo: SiloData, envelope: Envelope, add_noise: AddNoise) -> SeatedSilo:
    """The silo at the place that the server gives it; one with a budget counts what it tells."""
    device, secret = pick_device(seat.device), _secret(seat, envelope)
    spend = partial(seat.budget.spend, envelope.run) if seat.budget else None
    return SeatedSilo(silo, envelope.seat, device, secret=secret, add_noise=add_noise, spend=spend)


def _network(record: dict[str, Any], seat: Seat) -> NetworkSpec:
    """The network that a question is about; a model of the federation's own is made by code that came with the run."""
    own = record[OWN_MODEL]
    build = import_function(own, seat.app(), installed=seat.installed_models) if own else None
    spec = replace(NetworkSpec.from_record(record, build), fixed=fixed_buffers(record))
    if seat.budget:
        seat.budget.check_network(spec)
    return spec


def _secret(seat: Seat, envelope: Envelope) -> str:
    """Noise differs from run to run, and with the network that is asked about. In a simulation the seed decides."""
    network = hashlib.sha256(envelope.network.encode()).hexdigest()
    return seat.secret and f"{seat.secret}/{envelope.run}/{network}"


def _kept_answer(cache: RunCache, envelope: Envelope, data: DataMarks) -> Message:
    """What was answered when the features were built, if they are there already; empty if they are not."""
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
        cache.drop_features()  # normalised in another way: the raw ones are gone
        raise Unprepared
    if not _made_of(silo, data).items() <= which.items():  # rows would be regressed on what is to be learnt of others
        if which["data"] == data.now:  # it is not known yet, as where a function makes them
            warnings.warn(OTHER_DATA, stacklevel=2)
        cache.drop_all_of_the_data()
        raise Unprepared
    silo.take_features(tensors)


def _made_of(silo: SeatedSilo, data: DataMarks) -> dict[str, str]:
    """Names for what features are made of: the data, and what is to be learnt of its samples, in their order."""
    return {"data": data.now, "answers": digest({"y": silo.y, "held_y": silo.held_y})}


def _take_frozen(silo: SeatedSilo, cache: RunCache, message: Message) -> None:
    """Bring back the weights that are not trained, if they are those that the question names."""
    told = cache.frozen() | {"trainable": message["trainable"]}
    if digest(told) != message["frozen"]:
        raise Unprepared
    silo.freeze({name: v.to(silo.device) if isinstance(v, Tensor) else v for name, v in told.items()})


def _take_memory(silo: SeatedSilo, cache: RunCache, envelope: Envelope, message: Message) -> bool:
    """Bring back what the silo remembered after the round before; whether all is there that should be."""
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
