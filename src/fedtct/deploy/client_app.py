"""The Flower app of a silo: a question comes in, a fresh process answers it, an error becomes words for the server."""

import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.app import Message as FlowerMessage
from flwr.clientapp import ClientApp

import fedtct
from fedtct.deploy.answering import SiloSetup, Unprepared, respond
from fedtct.deploy.local_dp import with_flowers_noise
from fedtct.deploy.log_lines import say, warnings_said
from fedtct.deploy.privacy_budget import Refusal
from fedtct.deploy.silo_config import SiloConfig
from fedtct.errors import FedtctError
from fedtct.federation.flower.wire import ERROR, SILO, UNPREPARED, VERSION, pack, unpack, unseal

log = logging.getLogger(__name__)
UNTOLD = "it could not answer; it answers only with differential privacy, so only its own log says why"


def client_app(setup_of: Callable[[Context], SiloSetup]) -> ClientApp:
    """A Flower app for the silo that a context stands for."""
    app = ClientApp()

    def handle(message: FlowerMessage, context: Context) -> FlowerMessage:
        try:
            setup = setup_of(context)
        except Exception as error:  # Flower would send its text
            _log(error, "this silo cannot answer")
            raise FedtctError(told(error)) from None
        return FlowerMessage(reply(message, context, setup), reply_to=message)

    app.train()(handle)
    app.query()(handle)
    return app


def deployed_silo(context: Context) -> SiloSetup:
    """The silo that this SuperNode was started for, as its silo.toml tells."""
    silo = SiloConfig.read(str(context.node_config["silo"]))
    return SiloSetup(
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


def reply(message: FlowerMessage, context: Context, setup: SiloSetup) -> Any:
    """The answer to a message, or what went wrong in words; what others' errors say goes to the silo's log alone."""
    own: dict[str, Any] = {SILO: setup.name, VERSION: fedtct.__version__}
    start, fp16, asked = time.perf_counter(), False, "a question"
    try:
        question, rest = unpack(message.content)
        envelope = unseal(rest)
        fp16, asked = envelope.fp16, envelope.asked
        if envelope.uncounted:
            setup.say(f"{setup.name}: the server did not count its answer to {envelope.uncounted}")
        if setup.secret and question.get("noise"):
            envelope = replace(envelope, seat=0)  # a resumed run may deal seats anew: the answer must be the same
        if setup.budget:
            setup.budget.check(envelope.run, envelope.question, question)
        with warnings_said(setup.say):
            answer = respond(setup, envelope, question, partial(with_flowers_noise, message, context))
        setup.say(f"{setup.name} answered {asked} in {time.perf_counter() - start:.1f} s")
    except Unprepared:
        answer, own = {}, own | {UNPREPARED: True}
        setup.say(f"{setup.name} must first be told what {asked} is about")
    except Exception as error:
        _log(error, f"{setup.name} could not answer {asked}")
        # What an error says may depend on the samples, and no privacy was spent on it.
        secretive = setup.budget is not None and not isinstance(error, Refusal)
        answer, own = {}, own | {ERROR: UNTOLD if secretive else told(error)}
    return pack(answer, own, fp16)


def _log(error: Exception, what: str) -> None:
    """Log an error; of those that are not fedtct's own with a traceback."""
    strange = not isinstance(error, FedtctError) or error.__cause__ is not None
    log.error("%s: %s", what, error, exc_info=error if strange else None)


def told(error: Exception) -> str:
    """What the server is told of an error: the message if it is fedtct's, else only its type."""
    return error.shareable if isinstance(error, FedtctError) else f"{type(error).__name__}; the silo's log says more"
