"""Flower waits for less long, and where it is kept from waiting is where it waits."""

import os
import time
from types import SimpleNamespace

import pytest
from flwr.supercore.inflatable import inflatable_utils
from flwr.supercore.inflatable.inflatable_utils import ObjectUnavailableError
from flwr.superlink.grid import http_grid
from flwr.supernode import start_client_internal
from flwr.supernode.runtime import run_clientapp

from fedtct.deploy import supernode, warm
from fedtct.deploy.polling import LOOK_SECONDS, pull_sooner, sleep_less
from fedtct.deploy.server_app import server_app
from fedtct.errors import FedtctError


@pytest.fixture
def supernodes_time(monkeypatch):
    """The module ``time`` where a SuperNode sleeps, and what it slept; a clock that goes on while it does."""
    slept, clock = [], [0.0]

    def sleep(seconds):
        slept.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(start_client_internal, "time", time)  # where Flower sleeps; put back afterwards
    sleep_less(start_client_internal)
    return start_client_internal.time, slept


def test_a_supernode_does_not_sleep_for_long(supernodes_time):
    ours, slept = supernodes_time
    ours.sleep(3)
    ours.sleep(0.5)
    assert slept == pytest.approx([LOOK_SECONDS, 0.05])
    assert ours.perf_counter is time.perf_counter


def test_a_supernode_to_which_no_message_comes_asks_less_and_less_often(supernodes_time):
    ours, slept = supernodes_time
    for _ in range(100):
        waited = time.monotonic()
        ours.sleep(3)
        assert slept[-1] <= max(LOOK_SECONDS, 0.05 * waited)  # so it finds a message little later than it could
    assert slept == sorted(slept)
    assert slept[-1] == 3  # as often as Flower's own
    ours.sleep(0.5)  # a message has come
    ours.sleep(3)
    assert slept[-1] == pytest.approx(LOOK_SECONDS)


def test_flower_sleeps_where_it_is_kept_from_it():
    assert start_client_internal.time is time


@pytest.fixture
def first_waits(monkeypatch):
    """What says how long is waited for a part that is not there yet; put back afterwards."""
    pulls = (inflatable_utils.pull_objects, inflatable_utils.pull_and_inflate_object_from_tree)
    for pull in pulls:
        monkeypatch.setitem(pull.__kwdefaults__, "initial_backoff", 60)
    return lambda: {pull.__kwdefaults__["initial_backoff"] for pull in pulls}


def test_what_is_not_there_yet_is_asked_for_soon_again(first_waits):
    pull_sooner()
    assert first_waits() == {LOOK_SECONDS}
    answers, start = iter([ObjectUnavailableError("a"), b"here"]), time.monotonic()

    def pull_one(part):
        if isinstance(answer := next(answers), Exception):
            raise answer
        return answer

    assert inflatable_utils.pull_objects(["a"], pull_one) == {"a": b"here"}
    assert time.monotonic() - start < 30


def test_a_supernode_waits_less_and_its_task_runner_looks_often(first_waits, monkeypatch):
    for name in supernode.TASKS:
        monkeypatch.setenv(name, "60")
    monkeypatch.setenv("FLWR_HOME", "")
    monkeypatch.setattr(start_client_internal, "time", time)
    monkeypatch.setattr(supernode, "_begin_warm", lambda home: None)
    runs = []
    monkeypatch.setattr("flwr.supernode.cli.flower_supernode", lambda: runs.append(first_waits()))
    supernode.main()
    assert runs == [{LOOK_SECONDS}]
    assert start_client_internal.time is not time
    assert {name: os.environ[name] for name in supernode.TASKS} == supernode.TASKS


def test_copies_and_the_server_wait_less(first_waits, monkeypatch, tmp_path):
    warm._load_flower()
    assert first_waits() == {LOOK_SECONDS}
    monkeypatch.setitem(inflatable_utils.pull_objects.__kwdefaults__, "initial_backoff", 60)
    with pytest.raises(FedtctError):
        server_app(tmp_path / "run.toml")(None, SimpleNamespace(run_config={}))
    assert first_waits() == {LOOK_SECONDS}


def test_flower_asks_where_it_is_made_to_ask_sooner():
    assert start_client_internal.pull_objects is inflatable_utils.pull_objects
    assert http_grid.pull_objects is inflatable_utils.pull_objects
    assert run_clientapp.pull_and_inflate_object_from_tree is inflatable_utils.pull_and_inflate_object_from_tree


def test_a_flower_that_waits_otherwise_is_left_alone(monkeypatch):
    monkeypatch.delattr(inflatable_utils, "pull_objects")
    monkeypatch.delattr(start_client_internal, "time")
    pull_sooner()
    sleep_less(start_client_internal)
    assert not hasattr(start_client_internal, "time")
