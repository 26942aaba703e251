"""Data that is not what it seems: codes that look like numbers, names that are none, classes that nobody trains on."""

import math
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import r2_score

import fedtct
from fedtct import FedAvg, FedtctError, Ridge, Silo
from fedtct.data.texts import spelt_alike

METHOD = FedAvg("linear", rounds=1)
draws = np.random.default_rng(5)
X = draws.normal(size=(200, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)


def fitted(*silos, method=METHOD):
    return method.fit(list(silos)).model


def quiet(*silos):
    """The model, and nothing is warned of."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return fitted(*silos)


def test_r2_of_one_round_is_as_exact_as_of_many():
    """Of targets that do not vary there is none; far from zero, sums in single precision would leave no digit of it."""
    targets = [np.full(40, 7.3), X[:40, 0] + 4000, X[40:80, 0] * 3]
    silos = [Silo(X[40 * k : 40 * k + 40], y) for k, y in enumerate(targets)]
    fit = fedtct.TCT("mlp", FedAvg(rounds=1), stage2=Ridge(d=20)).fit(silos)
    own = fit.history[-1].silo_r2s
    assert math.isnan(own[0])
    for k in (1, 2):
        predicted = fit.model.predict(X[40 * k : 40 * k + 40])
        assert own[k] == pytest.approx(r2_score(targets[k], predicted), rel=1e-4)


@pytest.mark.parametrize("name", ["patient {:.0f}", "{:.2f}"])
def test_a_target_of_nearly_as_many_texts_as_samples_is_warned_of_where_it_is(name):
    silos = [Silo(X[part], [name.format(100 * value) for value in X[part, 0]], name="north") for part in (slice(100),)]
    with pytest.warns(UserWarning, match=r"north: the target has \d+ different texts in 100 .* see each of them"):
        fitted(*silos)
    names = [f"class {value % 30}" for value in range(200)]
    quiet(Silo(X, names))


@pytest.mark.parametrize("ordered", [False, True])
def test_categories_of_numbers_are_texts(ordered):
    branch = np.arange(200) % 8
    given = pd.DataFrame({"branch": pd.Categorical(branch, ordered=ordered), "z": X[:, 0]})
    given.loc[0, "branch"] = np.nan
    as_texts = given.assign(
        branch=given.branch.astype(object).map(lambda value: str(value) if value == value else None)
    )
    one, other = (quiet(Silo(table, branch % 2)) for table in (given, as_texts))
    assert torch.equal(one.scores(given), other.scores(as_texts))
    assert torch.equal(one.scores(given), one.scores(given.assign(branch=given.branch.astype(float))))


@pytest.mark.parametrize(
    ("codes", "names"), [([2, 7], ["2", "7"]), ([-1, 1], ["-1", "1"]), ([0.5, 1.5], ["0.5", "1.5"])]
)
def test_a_target_of_categories_is_of_classes(codes, names):
    y = pd.Series(pd.Categorical(np.array(codes)[Y]))
    assert quiet(Silo(X, y)).spec.task.names == tuple(names)
    with pytest.raises(FedtctError, match="1 of 200 labels are missing"):
        Silo(X, y.where(y.index != 3))


@pytest.mark.parametrize("of", [lambda v: Decimal(f"{v:.3f}"), float], ids=["decimals", "objects"])
def test_exact_decimals_and_objects_are_numbers(of):
    values = [of(value) for value in X[:, 0]]
    assert isinstance(quiet(Silo(X, np.array(values, object))).spec.task, fedtct.tasks.Regression)
    with pytest.raises(FedtctError, match="1 of 200 targets are NaN"):
        Silo(X, np.array([float("nan"), *values[1:]], object))


def test_an_array_is_read_by_no_order_if_silos_had_several(tmp_path):
    table = pd.DataFrame(X, columns=["b", "a", "c"])
    alike, mixed = (fitted(Silo(table, Y), Silo(other, Y)) for other in (table, table[["a", "b", "c"]]))
    assert torch.equal(alike.scores(X), alike.scores(table))
    mixed.save(tmp_path / "model")
    for model in (mixed, fedtct.Classifier.load(tmp_path / "model")):
        assert model.score(table, Y) == mixed.score(table[["c", "b", "a"]], Y)
        with pytest.raises(
            FedtctError, match=r"silos' columns were in different orders: .* with columns 'a', 'b', 'c'"
        ):
            model.predict(X)


def test_blanks_are_none_of_a_text():
    names = np.where(Y, "ill", "well")
    table = pd.DataFrame({"sex": np.where(X[:, 1] > 0, "m", "f"), "z": X[:, 0]})
    blank = table.assign(sex=table.sex + " ").rename(columns={"z": " z"})
    model = quiet(Silo(table, names), Silo(blank, np.char.add(" ", names)))
    assert list(model.classes) == ["ill", "well"]
    assert torch.equal(model.scores(table), model.scores(blank))


def test_categories_that_differ_by_capitals_are_warned_of():
    table = pd.DataFrame({"sex": np.where(X[:, 1] > 0, "m", "f"), "z": X[:, 0]})
    with pytest.warns(UserWarning, match="column 'sex': 'F' and 'f', 'M' and 'm' count as different categories"):
        fitted(Silo(table, Y), Silo(table.assign(sex=table.sex.str.upper()), Y))


def test_whole_numbers_that_differ_by_zeros_in_front_are_warned_of():
    table, y = pd.DataFrame({"ward": np.where(X[:, 1] > 0, "1", "20"), "z": X[:, 0]}), np.where(Y, "1", "2")
    padded = table.assign(ward="0" + table.ward)
    with pytest.warns(UserWarning, match="column 'ward': '01' and '1', '020' and '20' count as different categories"):
        fitted(Silo(table, y), Silo(padded, y))
    with pytest.warns(UserWarning, match="'01' and '1', '02' and '2' count as different classes"):
        fitted(Silo(table, y), Silo(table, np.char.add("0", y)))
    assert spelt_alike(["-1", "-01", "1", "10", "1.0", "01X", "1X", "bed 101", "bed 11"]) == "'-1' and '-01'"
    assert spelt_alike(["0", "00", "False"]) == "'0' and '00' and 'False'"


@pytest.mark.parametrize("kinds", [np.arange(3), np.array(["ill", "well", "rare"])], ids=["labels", "names"])
def test_a_class_that_is_held_out_alone_is_warned_of(kinds):
    held = int(Silo(X[:20], np.arange(20), holdout=0.2).held_y[0])
    y = np.arange(20) % 2
    y[held] = 2
    with pytest.warns(UserWarning, match=f"silos hold out all samples of class {kinds[2]}"):
        model = fitted(Silo(X[:20], kinds[y], holdout=0.2), Silo(X[20:40], kinds[np.arange(20) % 2], holdout=0.2))
    assert model.spec.num_classes == 3
    quiet(Silo(X[:20], kinds[y], holdout=0.2), Silo(X[20:40], kinds[y]))  # who trains on it
    y[y == 1] = 0
    with pytest.raises(FedtctError, match="there is nothing to learn from a single class"):
        fitted(Silo(X[:20], kinds[y // 2], holdout=0.2))


def test_values_that_were_never_missing_are_warned_of_when_they_are():
    table = pd.DataFrame({"age": X[:, 0], "sex": np.where(X[:, 1] > 0, "m", "f"), "z": X[:, 2]})
    table.loc[:9, "z"] = np.nan
    model = quiet(Silo(table, Y))
    with pytest.warns(UserWarning, match=r"column 'age' is empty in 5 of 200 rows, .* the mean"):
        model.predict(table.assign(age=table.age.where(table.index > 4)))
    with pytest.warns(UserWarning, match=r"column 'sex' is empty in 200 of 200 rows, .* the model ignores it there"):
        model.predict(table.assign(sex=None))


@pytest.mark.parametrize(
    "one",
    [X, torch.from_numpy(X), pd.DataFrame(X), {"north": (X, Y)}],
    ids=["array", "tensor", "table", "dict"],
)
def test_samples_alone_are_no_silos(one):
    with pytest.raises(FedtctError, match=r"silos must be a list, not a single \w+: give \[\(x, y\), …\]"):
        METHOD.fit(one, Y)


def test_weights_to_start_from_must_be_finite_and_in_a_file(tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(3, 2))
    with torch.no_grad():
        module[0].bias[0] = math.nan
    with pytest.raises(FedtctError, match="the initial weights hold NaN"):
        fitted((X, Y), method=FedAvg(module, rounds=0))
    torch.save(module.state_dict(), tmp_path / "weights.pt")
    with pytest.raises(FedtctError, match="the initial weights hold NaN"):
        fitted((X, Y), method=FedAvg(torch.nn.Sequential(torch.nn.Linear(3, 2)), init_weights=tmp_path / "weights.pt"))
    with pytest.raises(FedtctError, match="init_weights must be the name of a file, not a OrderedDict"):
        fitted((X, Y), method=FedAvg("linear", init_weights=module.state_dict()))


def test_a_module_in_double_precision_takes_samples_as_they_are():
    model = fitted((X, Y), method=FedAvg(torch.nn.Sequential(torch.nn.Linear(3, 2)).double(), rounds=1))
    assert torch.equal(model.to_module()(model.spec.inputs.encode(X)), model.scores(X))


def warned(*silos):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        FedAvg("linear", rounds=0).fit(silos)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    ("classes", "says"),
    [
        ([["no", "yes"], ["nein", "ja"]], True),
        ([["no", "yes"], ["no", "yes"], ["nein", "ja"]], True),
        ([["no", "yes"], ["no", "maybe"]], False),
        ([["cat"], ["dog"]], False),
        ([["cat", "dog"], ["eel", "fox", "hen"]], False),
        ([["no", "yes"], ["no", "yes"]], False),
    ],
)
def test_silos_that_may_call_the_same_classes_otherwise_are_told_of(classes, says):
    x = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
    told = warned(*(Silo(x, own * (12 // len(own)), name=f"s{k}") for k, own in enumerate(classes)))
    assert [text.startswith("silos have no class in common: no, yes in s0") for text in told] == [True] * says


def test_a_column_that_is_empty_in_some_silos_alone_is_told_of():
    full = pd.DataFrame({"age": [50.0, 60, 70, 80], "ward": ["a", "b"] * 2, "rate": [1.0, 2, 3, 5]})
    bare = full.assign(age=np.nan, ward=None)
    silos = [Silo(table, ["ill", "well"] * 2, name=name) for name, table in (("north", full), ("south", bare))]
    (said,) = warned(*silos)
    assert said.startswith("'age', 'ward' are empty in all training rows of south, and not in the other silos")
    rare = full.assign(age=[50.0, np.nan, np.nan, np.nan])  # of which a silo may have none by chance
    assert (
        warned(Silo(rare, ["ill", "well"] * 2), Silo(bare.drop(columns="ward").assign(ward="a"), ["ill", "well"] * 2))
        == []
    )
