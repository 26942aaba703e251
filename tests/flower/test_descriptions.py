"""What a silo tells about its data is looked at before silos agree on anything: nonsense is refused by its name."""

import contextlib
import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from flower_helpers import METHODS, Tampered, arrays, config, over

import fedtct
from fedtct.agreement import agree, misfit
from fedtct.federation.flower.checks import flaw
from fedtct.federation.flower.wire import as_array

pytestmark = pytest.mark.usefixtures("no_pauses")


def array(values):
    return as_array(torch.tensor(values), fp16=False)


CHANGES = {
    "labels that are no whole numbers": (
        lambda content: arrays(content).update({"labels": array([0.5, 1.0])}),
        "its 'labels' is not a list of whole numbers from 0",
    ),
    "a label below 0": (
        lambda content: arrays(content).update({"labels": array([-3, 1])}),
        "its 'labels' is not a list of whole numbers from 0",
    ),
    "no labels": (
        lambda content: arrays(content).update({"labels": array([])}),
        "its 'labels' is not a list of whole numbers from 0",
    ),
    "labels in words": (
        lambda content: config(content).update({"labels": "a few"}),
        "its 'labels' is 'a few', not a list of whole numbers from 0",
    ),
    "no such samples": (
        lambda content: config(content).update({"kind": "load"}),
        "its 'kind' is 'load', not a kind of samples",
    ),
    "no such answers": (
        lambda content: config(content).update({"answers": 7}),
        "its 'answers' is 7, not a kind of answers",
    ),
    "a shape of nothing": (
        lambda content: arrays(content).update({"shape": array([1, 0, 8])}),
        "its 'shape' is not a list of whole numbers from 1",
    ),
    "a channel too many": (
        lambda content: arrays(content).update({"sum": array([1, 2])}),
        "its sums of pixels must be one for each channel",
    ),
    "more classes than samples": (
        lambda content: arrays(content).update({"labels": array([*range(10**6)])}),
        "it names 1,000,000 classes, more than it has samples",
    ),
    "no samples": (lambda content: config(content).update({"n": 0}), "its 'n' is 0, not a number of samples"),
    "half a sample": (
        lambda content: config(content).update({"held": 0.5}),
        "its 'held' is 0.5, not a number of samples",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_nonsense_is_refused_with_the_silos_name_before_any_work(name, tmp_path):
    change, reason = CHANGES[name]
    grid = Tampered(tmp_path, 102, "describe", change)
    with pytest.raises(fedtct.FedtctError) as error:
        METHODS["fedavg"].fit(over(grid, min_silos=4))
    assert f"; s2: {reason}. Start the run again when that is fixed" in str(error.value)
    assert {question for _, question in grid.asked} == {"describe"}


TABLE = pd.DataFrame({"age": np.linspace(20.0, 70.0, 12), "town": ["Ulm", "Rom", None] * 4})
IMAGES = torch.arange(12 * 2 * 9, dtype=torch.uint8).view(12, 2, 3, 3)
DESCRIPTIONS = {
    "pixels, labels": fedtct.Silo(IMAGES, torch.arange(12) % 3).describe(),
    "a table, names": fedtct.Silo(TABLE, ["ill", "well"] * 6).describe(),
    "numbers, numbers": fedtct.Silo(torch.rand(12, 3), torch.linspace(0, 1, 12)).describe(),
    "tokens, labels": fedtct.Silo(torch.arange(36).view(12, 3), torch.arange(12) % 2).describe(),
    "private": fedtct.Silo(IMAGES, torch.arange(12) % 3).describe(private=True),
}
PLAIN = [None, True, -1, 0, 2.5, 1e200, math.nan, math.inf, "", "table", [], ["a", "b"], {}, 10**400]
NONSENSE = [value for value in PLAIN if not isinstance(value, dict) and value != 10**400] + [
    *(b"\0", "[" * 100_000, "{", "[]", "[3]", '[["a"]]', '[{"name": "age"}]', "1" * 5000),
    *(torch.tensor(values) for values in (0, [], [0.5], [-1], [2**62, 2**62], [[1, 2]], [True], [1j], [1, 2, 3, 4])),
]


def altered(told):
    """The description with nonsense in every place, one at a time; in those of a table's columns, too."""
    for name in told:
        yield from (told | {name: value} for value in NONSENSE)
    for place, column in enumerate(columns := json.loads(told.get("columns", "[]"))):
        for changed in [{name: value} for name in column for value in PLAIN] + [{"more": 1}]:
            others = [column | changed if at == place else other for at, other in enumerate(columns)]
            yield told | {"columns": json.dumps(others)}


@pytest.mark.filterwarnings("ignore:no silo has label 0")
@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_with_whatever_in_it_a_description_is_refused_or_agreed_on(name):
    told, private = DESCRIPTIONS[name], name == "private"
    asked, before = {"private": True} if private else {}, agree([told, told], 3, private)
    assert not flaw("describe", asked, told, 0, 0)
    for other in altered(told):
        if flaw("describe", asked, other, 0, 0):
            continue
        assert isinstance(misfit(other, before.inputs, before.task, before.outputs), str)
        with contextlib.suppress(fedtct.FedtctError):
            agree([told, other], 3 if private else None, private)
