"""Tables: columns of numbers and texts, which silos agree on without showing rows."""

import datetime
import re
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch
from core_helpers import quick, tct
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

from fedtct import Centralized, Classifier, FedAvg, FedtctError, LocalFederation, Ridge, Silo
from fedtct.agreement import agree, misfit
from fedtct.data.splits import partition
from fedtct.runs.predictions import evaluate, prediction_table

TRAIN = {"rounds": 2, "local_epochs": 2, "batch_size": 8}
TCT = tct("mlp", Ridge(d=30), stage1=FedAvg(**TRAIN))


@st.composite
def tables(draw):
    """Numbers and texts, with missing values, and which silo each row belongs to."""
    n = draw(st.integers(4, 30))
    maybe = st.none() | st.floats(-1e6, 1e6, width=32)
    columns = {
        "age": draw(st.lists(maybe, min_size=n, max_size=n)),
        "town": draw(st.lists(st.sampled_from(["Ulm", "Rom", "", None]), min_size=n, max_size=n)),
        "flag": [True, False, *draw(st.lists(st.booleans(), min_size=n - 2, max_size=n - 2))],  # so that some varies
    }
    silo = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    return pd.DataFrame(columns), np.array([0, 1, 2, *silo[3:]])


def table_code(silos):
    return agree([silo.describe() | {"name": silo.name} for silo in silos], 2).inputs.table


def labels(n):
    return np.arange(n) % 2


@quick
@given(tables())
def test_statistics_do_not_depend_on_how_rows_are_dealt(case):
    table, owner = case
    silos = [Silo(table[owner == k], labels((owner == k).sum()), name=str(k)) for k in range(3)]
    pooled = table_code([Silo(table, labels(len(table)))])
    for order in (silos, silos[::-1]):
        for one, other in zip(pooled.columns, table_code(order).columns, strict=True):
            assert (one.name, one.categories, one.missing) == (other.name, other.categories, other.missing)
            assert (one.mean, one.scale) == pytest.approx((other.mean, other.scale), rel=1e-9, abs=1e-9)


@quick
@given(tables())
def test_a_coded_table_is_standardised_numbers_and_a_column_for_each_category(case):
    table, _ = case
    code = table_code([Silo(table, labels(len(table)))])
    parts = code.encode(table, "x").split([column.width for column in code.columns], 1)
    coded = dict(zip((column.name for column in code.columns), parts, strict=True))
    age = pd.Series(table["age"], dtype=float).to_numpy()
    there = ~np.isnan(age)
    if there.any() and age[there].std() > 1e-6:
        expected = (age[there] - age[there].mean()) / age[there].std()
        assert coded["age"][there, 0].numpy() == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert not coded["age"][~there, 0].any()
    if (~there).any():
        assert coded["age"][:, -1].bool().tolist() == (~there).tolist()
    assert coded["town"].sum(1).eq(1).all()


def test_a_table_is_learnt_saved_and_predicted_from(tmp_path):
    draws = np.random.default_rng(0)
    table = pd.DataFrame({"a": draws.normal(50, 9, 80), "b": draws.choice(["x", "y"], 80), "c": draws.normal(size=80)})
    y = np.where((table["a"] > 50) ^ (table["b"] == "x"), "ill", "well")
    table.loc[::7, "c"] = np.nan
    silos = [Silo(table[:50], y[:50], holdout=0.2), Silo(table[50:], y[50:], holdout=0.2)]
    model = TCT.fit(silos).model
    model.save(tmp_path)
    loaded = Classifier.load(tmp_path)
    more = table.assign(d=1)[["d", "c", "b", "a"]]  # other columns and another order do not matter
    assert loaded.predict(more).tolist() == model.predict(table).tolist()
    assert Centralized("mlp", **TRAIN).fit(silos).history[-1].train_accuracy > 0.5
    with pytest.raises(FedtctError, match="x has no column 'b', 'c', which"):
        loaded.predict(table[["a"]])
    with pytest.raises(FedtctError, match="column 'a' holds texts, but the silos' column holds numbers"):
        loaded.predict(table.assign(a="old"))


def test_numbers_far_from_all_that_was_learnt_from_are_warned_of():
    x = pd.DataFrame({"crp": np.arange(20.0), "ward": ["a", "b"] * 10})
    model = FedAvg("linear", rounds=1).fit([Silo(x, [0, 1] * 10), Silo(x, [1, 0] * 10)]).model
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(x.assign(crp=1000.0))  # a hundred standard deviations: odd, but it may be
    with pytest.warns(UserWarning, match="'crp' is more than 1,000 standard .* mean, 9.5, in 2 of 20 rows: are they"):
        model.predict(x.assign(crp=[1e30, -1e5, *x["crp"][2:]]))


FRAME = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": ["x", "y", "x"]})


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (FRAME[["a"]], "'b' is in silo 0 and not in silo 1: silos need the same columns"),
        (FRAME.assign(c=1), "'c' is in silo 1 and not in silo 0: silos need the same columns"),
        (FRAME.assign(a="text"), "column 'a' holds numbers in silo 0 and texts in silo 1"),
        (
            FRAME.assign(a="text", b=1.0),
            "column 'a' holds numbers in silo 0 and texts in silo 1, column 'b' holds numbers in silo 1 and texts in",
        ),
        (FRAME.assign(a=np.inf), "column 'a' holds infinite or huge values"),
        (FRAME.assign(a=pd.Timestamp("2020-01-01")), "column 'a' holds datetime"),
        (FRAME.assign(a=[datetime.date(2020, 1, day) for day in (1, 2, 3)]), "column 'a' holds dates or times"),
        (pd.concat([FRAME, FRAME], axis=1), "several columns called 'a'"),
        (FRAME[[]], "no columns to learn from"),
        (torch.zeros(3, 2), "samples are of kind table in silo 0 and float32 in silo 1"),
    ],
)
def test_tables_that_do_not_go_together(other, message):
    with pytest.raises(FedtctError, match=message):
        FedAvg("linear").fit([(FRAME, [0, 1, 0]), (other, [0, 1, 0])])


@pytest.mark.filterwarnings("ignore:tangent features")
@pytest.mark.parametrize("method", [TCT, FedAvg("mlp", **TRAIN)], ids=["TCT", "FedAvg"])
@pytest.mark.parametrize("answers", [["no", "yes", "no"], [0.5, 1.5, 1.0]], ids=["classes", "numbers"])
def test_no_answer_is_made_up_for_values_that_no_network_can_compute_with(method, answers):
    model = method.fit([(FRAME, answers)] * 2).model
    far = FRAME.assign(a=[1.0, 1e99, 2.0])
    asked = [model.predict, lambda x: prediction_table(model, x), lambda x: evaluate(model, x, answers)]
    for ask in asked + ([model.predict_proba] if "no" in answers else []):
        with pytest.raises(FedtctError, match="no finite scores for 1 of 3 samples"):
            ask(far)
        assert len(ask(FRAME)) == 3


@pytest.mark.parametrize("kind", [Decimal, np.float32, np.int64, np.bool_], ids=lambda kind: kind.__name__)
def test_numbers_of_any_kind_are_numbers(kind):
    values = [kind(0), None, kind(1)]
    told = [
        Silo(pd.DataFrame({"a": column}, dtype=object), [0, 1, 0]).describe()["columns"]
        for column in (values, [0.0, None, 1])
    ]
    assert told[0] == told[1]


@quick
@given(
    st.lists(st.sampled_from([1.5, -2.0, None]), min_size=4, max_size=4),
    st.lists(st.sampled_from(["Ulm", "Rom", None]), min_size=4, max_size=4),
)
@example([1.5] * 4, ["Ulm"] * 4)
@example([None] * 4, ["Ulm"] * 4)
@example([1.5, 1.5, -2.0, -2.0], [None] * 4)  # which varies between silos alone
def test_a_table_in_which_no_column_varies_is_refused_before_any_work(numbers, texts):
    table = pd.DataFrame({"age": pd.Series(numbers, dtype=float), "town": pd.Series(texts, dtype=object)})
    silos = [Silo(table[part], labels(2)) for part in (slice(2), slice(2, 4))]
    if (table.nunique(dropna=False) > 1).any():
        table_code(silos)
        return
    asked, federation = [], LocalFederation(silos)
    federation.on_reply = lambda question, *_: asked.append(question)
    with pytest.raises(FedtctError, match="no column varies: each of age, town is the same, or empty"):
        TCT.fit(federation)
    assert set(asked) == {"describe"}


def test_columns_that_do_not_vary_are_told_of_at_once(recwarn):
    varied = pd.DataFrame({"age": [1.0, 2.0], "site": ["a", "a"], "sometimes": [1, None]})
    still = varied.assign(const=7.0, word="same", empty=np.nan)
    table_code([Silo(still, labels(2)), Silo(still.assign(site="b"), labels(2))])
    (told,) = [str(w.message) for w in recwarn if "nothing can be learnt" in str(w.message)]
    assert "nothing can be learnt from 'const', 'word', 'empty': " in told
    recwarn.clear()
    table_code([Silo(varied[["age"]], labels(2))])
    assert not list(recwarn)


def test_a_column_of_many_different_texts_is_refused():
    with pytest.raises(FedtctError, match="column 'id' has 600 different texts, more than 500"):
        FedAvg("linear").fit([(pd.DataFrame({"id": [f"p{i}" for i in range(600)]}), labels(600))])
    silos = [(pd.DataFrame({"id": [f"{silo}{i}" for i in range(300)]}), labels(300)) for silo in "ab"]
    with pytest.raises(FedtctError, match="all silos together: column 'id' has 600 different texts, more than 500"):
        FedAvg("linear").fit(silos)


@pytest.mark.parametrize(
    ("values", "odd"),
    [
        ([*map(str, range(60)), "?", "n/k"], r"numbers except for \?, n/k, so"),
        ([*map(str, range(10)), "3A"], ""),  # wards
        ([f"{n}{'A' * (n % 2)}" for n in range(60)], ""),
    ],
    ids=["marks among numbers", "few numbers", "many texts"],
)
def test_texts_among_numbers_are_told(values, odd, recwarn):
    """They make categories of a column of ages, whose order is then lost."""
    silo = Silo(pd.DataFrame({"age": values}), labels(len(values)), name="north")
    silo.describe()
    told = [str(warning.message) for warning in recwarn if "holds numbers except for" in str(warning.message)]
    assert len(told) == bool(odd)
    assert all(re.search(f"north: column 'age' holds {odd}", text) for text in told)


@pytest.mark.parametrize(
    ("late", "message"),
    [
        ((FRAME, ["c", "d", "d"]), ""),
        ((FRAME.assign(b=None), ["c", "c", "c"]), ""),
        ((FRAME, ["c", "e", "d"]), "it has class 'e', which the others do not have"),
        ((FRAME.assign(a="text"), ["c", "d", "d"]), "column 'a' does not hold numbers"),
        ((FRAME[["a"]], ["c", "d", "d"]), "it has no column 'b', which the others have"),
        ((FRAME, [0, 1, 1]), "it holds table samples with labels, the others table with names"),
    ],
)
def test_who_may_come_late(late, message):
    federation = LocalFederation([(FRAME, ["c", "d", "d"])])
    (description,) = federation.deliver("describe", {})
    agreed = agree([description], None)
    found = misfit(Silo(*late).describe(), agreed.inputs, agreed.task, agreed.outputs)
    assert message in found
    assert bool(message) == bool(found)


def test_a_column_that_may_hold_names_is_warned_of_before_the_server_is_told():
    towns = ["Ulm", "Rom"] * 30
    for names, warns in (([f"patient {k}" for k in range(60)], True), ([f"ward {k % 30}" for k in range(60)], False)):
        silo = Silo(pd.DataFrame({"who": names, "town": towns}), [0, 1] * 30, name="north")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            silo.describe()
        told = [str(warning.message) for warning in caught]
        assert [text.startswith("north: column 'who' has 60 different texts in 60 training rows") for text in told] == [
            True
        ] * warns


def silo_of_temperatures(mean, std, rows=40):
    temperatures = mean + std * np.random.default_rng(0).standard_normal(rows)
    return Silo(pd.DataFrame({"temperature": temperatures}), labels(rows))


@pytest.mark.parametrize(
    ("mean", "std", "odd"),
    [
        (157.0, 14.0, True),  # degrees of Fahrenheit
        (70_000.0, 10_000.0, True),  # thousandths
        (70.0, 0.01, True),
        (100.0, 10.0, False),  # a hot place
        (60.0, 40.0, False),
        (157.0, 0.0, False),  # a value that never changes tells nothing of units
    ],
)
def test_a_silo_whose_numbers_may_be_in_other_units_is_told_of(mean, std, odd, recwarn):
    others = [silo_of_temperatures(70.0 + place, 10.0) for place in range(3)]
    table_code([*others, silo_of_temperatures(mean, std)])
    told = [str(w.message) for w in recwarn if "same units" in str(w.message)]
    assert ["on average in silo 3" in text for text in told] == [True] * odd
    table_code(others[:1])
    assert len([w for w in recwarn if "same units" in str(w.message)]) == len(told)


@pytest.mark.parametrize(
    ("mean", "std", "odd"),
    [
        (142.0, 36.0, True),  # millimetres
        (1.5, 0.3, True),  # decimetres
        (125.0, 55.0, True),
        (42.0, 10.0, False),  # of something large
        (-120.0, 60.0, False),  # no unit turns signs round
        (5.0, 36.0, False),
    ],
)
def test_a_silo_whose_numbers_are_ten_times_the_others_is_told_of(mean, std, odd, recwarn):
    others = [silo_of_temperatures(14.2 + place, 3.5) for place in range(3)]
    table_code([*others, silo_of_temperatures(mean, std)])
    told = [str(w.message) for w in recwarn if "same units" in str(w.message)]
    assert ["on average in silo 3" in text for text in told] == [True] * odd


@pytest.mark.parametrize("load", [load_wine, load_breast_cancer, load_diabetes])
def test_silos_that_hold_other_classes_are_in_the_same_units(load, recwarn):
    table, target = load(return_X_y=True, as_frame=True)
    for seed in range(5):
        dealt = partition(pd.qcut(target, 4, labels=False, duplicates="drop"), 4, "dirichlet:0.1", seed)
        table_code([Silo(table.iloc[rows], labels(len(rows))) for rows in dealt])
    assert not [w for w in recwarn if "same units" in str(w.message)]


def test_silos_that_say_nothing_of_units_do_not_hide_another(recwarn):
    others = [silo_of_temperatures(70.0 + place, 10.0) for place in range(2)]
    silent = [silo_of_temperatures(70.0, 10.0, rows=5), silo_of_temperatures(70.0, 0.0)]
    table_code([*others, *silent, silo_of_temperatures(157.0, 14.0)])
    assert len([w for w in recwarn if "on average in silo 4" in str(w.message)]) == 1


def test_texts_that_no_silo_had_are_counted_where_a_model_meets_them(recwarn):
    table = pd.DataFrame({"town": ["Ulm", "Bonn"] * 10, "age": range(20)})
    model = FedAvg("linear", rounds=1).fit([Silo(table, labels(20))]).model
    model.predict(table.assign(town=["Ulm", None] * 10))
    assert not [w for w in recwarn if "no silo had" in str(w.message)]
    model.predict(table.assign(town=["Ulm", "Kiel"] * 10))
    told = [str(w.message) for w in recwarn if "no silo had" in str(w.message)]
    assert len(told) == 1
    assert "column 'town' holds Kiel in 10 of 20 rows, which no silo had in training" in told[0]
