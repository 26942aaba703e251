"""Why a silo is left out, and what is odd about one that is not, is said in words that help."""

from dataclasses import replace

import pandas as pd
import pytest
from flower_helpers import METHODS, InlineGrid, over, parts

import fedtct
from fedtct.deploy.cache import RunCache
from fedtct.federation.flower.wire import OTHER_DATA

pytestmark = pytest.mark.usefixtures("no_pauses")


def test_a_silo_that_comes_back_with_what_does_not_fit_is_left_out_for_that_reason(tmp_path):
    grid, notes = InlineGrid(tmp_path, parts()), []
    x, y = parts()[2]

    def restart(message):
        if len(grid.asked) > 8 and 202 not in grid.setups:  # after the first round
            grid.offline.add(102)
            grid.setups[202] = replace(grid.setups[102], load=lambda: fedtct.Silo(x, y + 10))

    grid.before = restart
    METHODS["fedavg"].fit(over(grid, notes, min_silos=3))
    told = [note["missing"].get("s2") for note in notes if note["question"] in ("train", "evaluate")]
    assert told[0] is None
    assert "it has label 1" in told[-1]
    assert told[-1].endswith("but there are 10 classes")


def test_data_that_changed_since_the_run_began_is_told_of(tmp_path):
    grid, warned = InlineGrid(tmp_path, parts()), []
    marks = {node: "as it was" for node in grid.setups}
    said = {node: [] for node in grid.setups}
    for node, setup in grid.setups.items():
        grid.setups[node] = replace(setup, fingerprint=lambda node=node: marks[node], say=said[node].append)

    def begin(run):
        federation = over(grid, run=run)
        federation.post.warn = warned.append
        METHODS["fedavg"].fit(federation)

    begin("one")
    begin("one")
    assert warned == []
    marks[101] = "other rows"
    begin("two")
    assert warned == []  # it is what this run begins with
    begin("one")
    assert len(warned) == 1
    assert warned[0].startswith("s1: its data has changed since the run began")
    assert [text for text in said[101] if "its data has changed" in text]
    assert [text for text in said[100] if "its data has changed" in text] == []
    assert said[100][1].startswith("s0 answered 'train' of round 1 in ")


def changing(grid, question, count, **changes):
    """The second silo's data is other data from when it is asked a question for so many times; what it says."""
    said, now = [], {"data": "as it was"}
    grid.setups[101] = replace(grid.setups[101], fingerprint=lambda: now["data"], say=said.append)

    def change(message):
        if grid.asked[-1] == (101, question) and grid.asked.count((101, question)) == count:
            grid.setups[101] = replace(grid.setups[101], **changes)
            now["data"] = "other"

    grid.before = change
    return said


def other(texts):
    return [text.removeprefix("warning: ") for text in texts if OTHER_DATA in text]


@pytest.mark.parametrize("question", ["train", "evaluate"])
def test_data_that_changes_while_a_run_goes_on_is_told_of_once(question, grid):
    warned, federation = [], over(grid)
    said = changing(grid, question, 1 if question == "evaluate" else 2)
    federation.post.warn = warned.append
    METHODS["fedavg"].fit(federation)
    assert other(said) == [OTHER_DATA]
    assert other(warned) == [f"s1: {OTHER_DATA}"]


@pytest.mark.parametrize("question", ["moments", "normalise", "regress"])
def test_features_of_samples_that_changed_are_built_anew_though_labels_are_the_same(question, grid):
    x, y = parts()[1]
    said = changing(grid, question, 1, load=lambda: fedtct.Silo(16 - x, y))
    METHODS["tct"].fit(over(grid))
    assert grid.asked.count((101, "moments")) == (1 if question == "moments" else 2)
    assert other(said) == [OTHER_DATA]


def test_what_was_answered_of_other_samples_is_not_answered_again(grid):
    changing(grid, "moments", 2, load=lambda: fedtct.Silo(16 - parts()[1][0], parts()[1][1]))
    change, of = grid.before, []

    def before(message):
        change(message)
        if grid.asked[-1] == (101, "normalise"):
            of.append(RunCache(grid.setups[101].cache, "run", 10**9).features()[1]["data"])

    grid.before = before
    for _ in range(2):  # it goes on after a crash before features were normalised, say
        METHODS["tct"].fit(over(grid))
    assert of == ["as it was", "other"]


def test_rows_that_come_while_a_run_goes_on_take_part_when_it_is_resumed(tmp_path):
    grid, notes = InlineGrid(tmp_path, parts()), []
    x, y = parts()[1]
    said = changing(grid, "train", 2, load=lambda: fedtct.Silo(x.repeat(2, 1, 1, 1), y.repeat(2)))
    METHODS["fedavg"].fit(over(grid, notes, min_silos=3))
    assert other(said) == [OTHER_DATA]
    missing = [note["missing"] for note in notes if note["question"] == "train"]
    assert [list(names) for names in missing] == [[], ["s1"]]
    assert "must stay the same during a run" in missing[1]["s1"]
    METHODS["fedavg"].fit(over(grid, notes, min_silos=4))
    assert other(said) == [OTHER_DATA] * 2


def test_a_late_silo_is_told_of_texts_that_nobody_learns(tmp_path):
    grid, warned = InlineGrid(tmp_path, parts()), []
    for node, setup in grid.setups.items():
        kinds = ["laser", "mill"] if node == 103 else ["lathe", "mill"]
        table = pd.DataFrame({"kind": kinds * 10, "hours": range(20)})
        grid.setups[node] = replace(setup, load=lambda table=table: fedtct.Silo(table, ["a", "b"] * 10))
    grid.offline.add(103)
    grid.before = lambda message: grid.offline.discard(103) if len(grid.asked) > 3 else None  # after "describe"
    federation = over(grid, min_silos=3)
    federation.post.warn = warned.append
    fit = METHODS["fedavg"].fit(federation)
    assert fit.history[-1].silos == ("s0", "s1", "s2", "s3")
    told = [text for text in warned if "no silo had" in text]
    assert told == [
        "s3: its column 'kind' holds laser, which no silo had when the run began: the model ignores these values"
    ]
