"""Whether a silo can take part: its data, its key, the way to the server, and whether each trusts the other."""

import json
import os
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from fedtct.answers import LABELS, NAMES
from fedtct.deploy.keys import split_address
from fedtct.deploy.privacy_budget import Budget
from fedtct.deploy.processes import environment, free_port, stop, supernode
from fedtct.deploy.running import LET_IN, process_of
from fedtct.deploy.silo_config import SiloConfig
from fedtct.errors import FedtctError, listing

SECONDS, TRUST_SECONDS = 10.0, 60.0  # to reach the server; for Flower to start and to be let in


class Verdict(NamedTuple):
    """What came of one check; checks that need one that failed are not made."""

    right: bool
    text: str


def check_silo(file: Path) -> Iterator[Verdict]:
    """All verdicts on a silo, in order."""
    silo = SiloConfig.read(file)
    yield _data(silo)
    if budget := silo.budget():
        yield _privacy(budget)
    key = _key(silo)
    yield key
    if flawed := _flawed_ca(silo):
        yield flawed
    reached = _reach(silo)
    yield reached
    if flawed or not reached.right:
        return
    trusted = _trust(silo)
    yield trusted
    if trusted.right and key.right:
        yield _be_trusted(silo, file)


def _data(silo: SiloConfig) -> Verdict:
    try:
        loaded = silo.load()
        told = loaded.describe()
    except FedtctError as error:
        return Verdict(False, f"data: {error}")
    shape = tuple(told["shape"].tolist())
    samples = f"rows of {shape[0]} columns" if told["kind"] == "table" else f"samples of shape {shape} ({told['kind']})"
    if told["answers"] == LABELS:
        learnt = f"{len(told[LABELS])} classes, the largest label is {int(told[LABELS].max())}"
    elif told["answers"] == NAMES:
        learnt = f"classes {listing(json.loads(told[NAMES]))}"
    else:
        learnt = f"numbers to learn, {told['answer_mean']:g} on average"
    kept = f", {held} of them held out" if (held := len(loaded.held_y)) else ""
    return Verdict(True, f"data: {len(loaded) + held} {samples}{kept}, {learnt}")


def _privacy(budget: Budget) -> Verdict:
    try:
        spent = budget.spent()
    except FedtctError as error:
        return Verdict(False, f"privacy: {error}")
    told = f"ε = {budget.epsilon:g} at δ = {budget.delta:g} in all runs together, of which {spent:.3g} is spent"
    return Verdict(spent < budget.epsilon, f"privacy: {told}")


def _key(silo: SiloConfig) -> Verdict:
    path = silo.path(silo.key)
    if not silo.key or not path.is_file():
        return Verdict(False, f"key: {path} is missing; ask whoever made the federation's keys for it")
    if path.stat().st_mode & 0o077:
        return Verdict(False, f"key: others on this machine can read {path}; chmod 600 it")
    if path.suffix == ".key" and path.stem != silo.name:  # as fedtct deploy keys names it
        return Verdict(
            False,
            f"key: {path.name} was made for {path.stem}, but this silo's name is {silo.name}: fix name in silo.toml",
        )
    try:
        load_ssh_private_key(path.read_bytes(), None)
    except (ValueError, TypeError, OSError):  # TypeError: it has a password
        return Verdict(False, f"key: {path} is not a private key from `fedtct deploy keys`: replace it with that one")
    return Verdict(True, f"key: {path} is there, and only its owner can read it")


def _flawed_ca(silo: SiloConfig) -> Verdict | None:
    """What is wrong with the file that the server is to be known by, if anything is."""
    ca = silo.path(silo.ca)
    try:
        ssl.create_default_context(cafile=ca)
    except FileNotFoundError:
        return Verdict(False, f"TLS: {ca} is missing; ask whoever made the federation's keys for it")
    except ssl.SSLError as error:
        return Verdict(
            False, f"TLS: {ca} is not a certificate ({error.reason}); ask whoever made the federation's keys"
        )
    except OSError as error:
        return Verdict(False, f"TLS: {ca} cannot be read ({error.strerror})")
    return None


def _reach(silo: SiloConfig) -> Verdict:
    host, port = split_address(silo.server)
    try:
        with socket.create_connection((host, port), SECONDS):
            return Verdict(True, f"server: {silo.server} can be reached")
    except socket.gaierror:
        return Verdict(False, f"server: host {host} is unknown; is the name right, and is it in DNS?")
    except TimeoutError:
        return Verdict(False, f"server: {silo.server} does not answer; a firewall on the way may block port {port}")
    except OSError as error:
        return Verdict(False, f"server: {silo.server} refuses ({error.strerror}); is it running?")


def _trust(silo: SiloConfig) -> Verdict:
    host, port = split_address(silo.server)
    ca = silo.path(silo.ca)
    try:
        context = ssl.create_default_context(cafile=ca)
        with (
            socket.create_connection((host, port), SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            certificate = secure.getpeercert() or {}
    except ssl.SSLCertVerificationError as error:
        return Verdict(False, f"TLS: the server's certificate cannot be verified with {ca} ({error.verify_message})")
    except ssl.SSLError as error:
        return Verdict(False, f"TLS: {silo.server} does not speak TLS ({error.reason})")
    except OSError as error:
        return Verdict(False, f"TLS: {silo.server} ended the connection ({error.strerror or error})")
    return Verdict(True, f"TLS: this silo trusts the server; its certificate is valid to {certificate.get('notAfter')}")


def _be_trusted(silo: SiloConfig, file: Path) -> Verdict:
    """Connect as the silo would, and leave at once. Flower tells strangers nothing, so neither can this."""
    if process := process_of(silo.folder / "flwr"):  # Flower lets nobody in twice
        return Verdict(True, f"trust: this silo is running (process {process}): the server has let it in")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:  # not the silo's own: it may start now
        return _try_to_connect([*supernode(silo, file, free_port()), "--max-retries", "1"], Path(home))


def _try_to_connect(command: list[str], home: Path) -> Verdict:
    where = environment(home)
    process = subprocess.Popen(
        command, env=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    assert process.stdout is not None
    late = threading.Event()

    def give_up() -> None:
        late.set()
        os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(TRUST_SECONDS, give_up)
    timer.start()
    try:
        for line in process.stdout:
            if LET_IN in line:
                return Verdict(True, "trust: the server lets this silo in")
            if "Exit Code" in line:
                break
    finally:
        timer.cancel()
        stop([process])  # and Flower's children, who hold the pipe
    if late.is_set():
        return Verdict(False, f"trust: the server did not decide within {TRUST_SECONDS:g} s; try again")
    return Verdict(
        False,
        "trust: the server does not let this silo in. Its public key is not registered there, or the silo is running "
        "elsewhere, or it was killed less than a minute ago: then wait a minute and try again",
    )
