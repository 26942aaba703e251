"""Silos that fail or do not belong are refused by name, with the reason and no more than that."""

from dataclasses import replace

import pytest
import torch
from flower_helpers import METHODS, PRIVATE, InlineGrid, Tampered, assert_same, config, local, over, parts
from flwr.app import Context, RecordDict
from flwr.app import Message as FlowerMessage

import fedtct
from fedtct.deploy.client_app import client_app
from fedtct.federation.flower.exchange import Terms

pytestmark = pytest.mark.usefixtures("no_pauses")


def test_a_private_silo_that_fails_is_named_with_its_reason(grid):
    setup, calls = grid.setups[101], []

    def later():
        calls.append(1)
        if len(calls) > 1:
            raise fedtct.FedtctError("the disk with the data is gone")
        return setup.load()

    grid.setups[101] = replace(setup, load=later)
    with pytest.raises(fedtct.FedtctError, match="s1: the disk with the data is gone"):
        PRIVATE.fit(over(grid, min_silos=4))


def test_a_silo_that_fails_is_named_with_its_reason(grid):
    setup = grid.setups[101]

    def broken():
        raise fedtct.FedtctError("the disk with the data is not mounted")

    grid.setups[101] = replace(setup, load=broken)
    with pytest.raises(fedtct.FedtctError, match="s1: the disk with the data is not mounted"):
        METHODS["fedavg"].fit(over(grid, min_silos=4))


def unreadable(grid, *nodes, reason="1 of 160 samples hold NaN"):
    """These silos' data cannot be read, until they are mended."""

    def broken():
        raise fedtct.FedtctError(reason)

    for node in nodes:
        grid.setups[node] = replace(grid.setups[node], load=broken)


@pytest.mark.parametrize("stop", ["", "."])
def test_all_silos_that_fail_are_named_at_once_and_their_reasons_go_on(grid, stop):
    unreadable(grid, 101, 103, reason=f"1 of 160 samples hold NaN{stop}")
    said = r"2 silos answered 'describe', but at least 3 must; s1: 1 of 160 .* NaN; s3: 1 of 160 .* NaN\. Start the run"
    with pytest.raises(fedtct.FedtctError, match=said):
        METHODS["fedavg"].fit(over(grid, min_silos=3, wait=100.0))


def test_a_run_begins_without_a_silo_that_fails_if_enough_others_are_there(grid):
    """Those that are on their way are waited for all the same, and the one that told why it cannot is not asked again
    meanwhile. Once its data is mended it joins."""
    load = grid.setups[101].load
    unreadable(grid, 101)
    grid.offline.add(103)
    federation, said, asked = over(grid, min_silos=2, wait=100.0), [], []

    def warn(text):
        said.append(text)
        if "waiting for more" in text:
            grid.offline.discard(103)
        if "continue without" in text:
            asked.extend(grid.asked)
            grid.setups[101] = replace(grid.setups[101], load=load)

    federation.post.warn = warn
    fit = replace(METHODS["fedavg"], num_classes=10).fit(federation)
    assert "s1 did not answer 'describe': 1 of 160 samples hold NaN" in said
    assert "the others continue without s1" in said
    assert sorted(asked) == [(node, "describe") for node in grid.setups]
    assert fit.history[-1].silos == ("s0", "s2", "s3", "s1")


def test_what_fedtct_says_is_a_line_in_the_silos_log(grid, caplog):
    unreadable(grid, 101)
    METHODS["fedavg"].fit(over(grid, min_silos=3, keys={101: "s1"}))
    assert caplog.messages[0] == "s1 could not answer 'describe': 1 of 160 samples hold NaN"
    assert "Traceback" not in caplog.text


STRANGE = RuntimeError("patient 4711")


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (STRANGE, "s1: RuntimeError; the silo's log says more"),
        (fedtct.FedtctError("its data cannot be read", STRANGE), "s1: its data cannot be read: RuntimeError; the silo"),
    ],
)
def test_what_a_strange_error_says_does_not_leave_the_silo(raised, told, grid, caplog):
    def broken():
        raise raised

    grid.setups[101] = replace(grid.setups[101], load=broken)
    with pytest.raises(fedtct.FedtctError, match=told) as error:
        METHODS["fedavg"].fit(over(grid, min_silos=4))
    assert "4711" not in str(error.value)
    assert "4711" in caplog.text
    assert ("Traceback" in caplog.text) == (raised is STRANGE)


def test_nor_does_a_label_that_is_none(grid, caplog):
    x, y = parts()[1]
    grid.setups[101] = replace(grid.setups[101], load=lambda: fedtct.Silo(x, torch.full_like(y, -4711), name="s1"))
    with pytest.raises(fedtct.FedtctError, match="s1: some labels are below 0") as error:
        PRIVATE.fit(over(grid, min_silos=4))
    assert "47" not in str(error.value)
    assert "-4711" in caplog.text


def test_nor_does_it_if_a_silo_cannot_tell_who_it_is():
    """What an app raises Flower sends, text and all."""

    def setup_of(context):
        raise STRANGE

    question = FlowerMessage(RecordDict(), 1, "query")
    with pytest.raises(fedtct.FedtctError, match=r"^RuntimeError; the silo's log says more$"):
        client_app(setup_of)(question, Context(1, 1, {}, RecordDict(), {}))


def test_another_shape_is_refused_by_name(tmp_path):
    data = parts()
    data[2] = (data[2][0][..., :7], data[2][1])
    with pytest.raises(fedtct.FedtctError, match=r"samples have shape \(1, 8, 8\) in s0, s1.* and \(1, 8, 7\) in s2"):
        METHODS["fedavg"].fit(over(InlineGrid(tmp_path, data)))


def test_a_latecomer_with_another_shape_is_refused_and_the_run_goes_on(tmp_path):
    data, notes = parts(), []
    data[3] = (data[3][0][..., :7], data[3][1])
    grid = InlineGrid(tmp_path, data)
    grid.offline.add(103)

    def arrive(message):
        if len(grid.asked) > 4:
            grid.offline.discard(103)

    grid.before = arrive
    METHODS["fedavg"].fit(over(grid, notes, silos=3, min_silos=3))
    assert any("its samples have shape (1, 8, 7)" in note["missing"].get("s3", "") for note in notes)


def test_two_silos_of_one_name_are_refused(grid):
    setup = grid.setups[101]
    grid.setups[101] = replace(setup, name="s0")
    with pytest.raises(fedtct.FedtctError, match=r"s0 \(node 101\): another silo has this name"):
        METHODS["fedavg"].fit(over(grid, min_silos=4))


def test_a_latecomer_with_a_name_that_is_taken_is_refused_and_the_run_goes_on(grid):
    grid.setups[104] = grid.setups[101]
    grid.offline.add(104)
    grid.before = lambda message: grid.offline.discard(104) if len(grid.asked) > 4 else None
    notes = []
    fit = METHODS["fedavg"].fit(over(grid, notes, silos=4, min_silos=4))
    assert_same(METHODS["fedavg"].fit(local(parts())), fit)
    assert any("another silo has this name" in str(note["missing"]) for note in notes)


def test_nobody_takes_the_name_of_another_silos_key_though_that_silo_is_away(grid):
    grid.offline.add(101)
    grid.setups[104] = grid.setups[101]
    grid.offline.add(104)
    grid.before = lambda message: grid.offline.discard(104) if len(grid.asked) > 3 else None
    keys, notes = {100: "s0", 101: "s1", 104: "s4"}, []
    federation = over(grid, notes, keys=keys, silos=3, min_silos=3)
    METHODS["fedavg"].fit(federation)
    assert list(federation.roster.seats) == ["s0", "s2", "s3"]
    assert any("calls itself 's1'" in note["missing"].get("s4", "") for note in notes)


def test_a_model_without_a_name_is_refused(grid):
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    with pytest.raises(fedtct.FedtctError, match="a model must have a name"):
        fedtct.FedAvg(module, rounds=1).fit(over(grid))


@pytest.mark.parametrize("terms", [{"min_silos": 5}, {"min_silos": 0}, {"round_timeout": 0}])
def test_terms_that_cannot_be_met_are_refused(terms):
    with pytest.raises(fedtct.FedtctError):
        Terms(**{"silos": 4, "min_silos": 4} | terms)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("n", 7, "it says that it has 7 samples, but it said "),
        ("fedtct.silo", "eve", "it calls itself 'eve': a silo must keep the name that its key was made for"),
        ("fedtct.version", "0", "it runs fedtct 0, the server "),
    ],
)
def test_a_silo_is_told_why_its_answer_did_not_count(name, value, told, tmp_path):
    grid, said = Tampered(tmp_path, 102, "train", lambda content: config(content).update({name: value})), {}
    for node, setup in grid.setups.items():
        grid.setups[node] = replace(setup, say=said.setdefault(node, []).append)
    METHODS["fedavg"].fit(over(grid, min_silos=3))
    lines = [line for line in said[102] if "did not count" in line]
    assert len(lines) == 2  # of two rounds
    assert f"s2: the server did not count its answer to 'train' of round 1: {told}" in lines[0]
    assert not [line for node in (100, 101, 103) for line in said[node] if "did not count" in line]


def test_a_silo_whose_answer_is_late_is_told_so_but_not_what_it_knows_itself(grid):
    said = {node: [] for node in grid.setups}
    for node, setup in grid.setups.items():
        grid.setups[node] = replace(setup, say=said[node].append)
    loads = grid.setups[101].load

    def fails():
        raise fedtct.FedtctError("the disk is gone")

    def before(message):
        of_the_first_round = 4 < len(grid.asked) <= 8
        (grid.late.add if of_the_first_round else grid.late.discard)(102)
        grid.setups[101] = replace(grid.setups[101], load=fails if of_the_first_round else loads)

    grid.before = before
    METHODS["fedavg"].fit(over(grid, min_silos=2))
    lines = {node: [line for line in lines if "did not count" in line] for node, lines in said.items()}
    late = "s2: the server did not count its answer to 'train' of round 1: no answer within 0.2 s"
    assert lines == {100: [], 101: [], 102: [late], 103: []}
