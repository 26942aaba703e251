"""Data of any form: names, numbers, tokens, Datasets and pairs, in silos that know different classes."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from core_helpers import quick, skewed_data, tct
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score
from torch import nn
from torch.utils.data import TensorDataset

from fedtct import Centralized, Classifier, FedAvg, FedtctError, LocalFederation, Ridge, ScaffoldRegression, Silo
from fedtct.agreement import agree, misfit

ANIMALS = np.array(["cat", "dog", "eel"])
PARTS = skewed_data((30, 20, 10))
TRAIN = {"rounds": 2, "local_epochs": 2, "batch_size": 8}
TCT = tct("mlp", Ridge(d=30), stage1=FedAvg(**TRAIN))


def named(parts=PARTS, names=ANIMALS):
    return [Silo(x, names[y]) for x, y in parts]


def only(part, *classes):
    x, y = part
    keep = torch.isin(y, torch.tensor(classes))
    return x[keep], y[keep]


@pytest.mark.parametrize("method", [FedAvg("mlp", **TRAIN), Centralized("mlp", **TRAIN), TCT])
def test_names_are_labels_that_keep_their_names(method):
    by_label, by_name = method.fit(PARTS).model, method.fit(named()).model
    x, y = PARTS[0]
    assert torch.equal(by_label.scores(x), by_name.scores(x))
    assert by_name.predict(x).tolist() == ANIMALS[by_label.predict(x)].tolist()
    assert by_name.score(x, ANIMALS[y]) == by_label.score(x, y)
    assert by_name.classes.tolist() == ["cat", "dog", "eel"]


def test_silos_that_know_different_classes_agree_on_their_union_in_any_order():
    parts = [only(PARTS[0], 0), only(PARTS[1], 2, 1), only(PARTS[2], 1)]
    models = [TCT.fit(named(order)).model for order in (parts, parts[::-1])]
    assert [model.classes.tolist() for model in models] == [["cat", "dog", "eel"]] * 2


def test_whole_numbers_as_names_are_in_the_order_of_numbers_and_come_back_as_numbers():
    model = FedAvg("linear", rounds=1).fit(named(names=np.array(["10", "-2", "9"]))).model
    assert model.classes.tolist() == [-2, 9, 10]
    assert set(model.predict(PARTS[0][0]).tolist()) <= {-2, 9, 10}
    assert model.score(PARTS[0][0], np.array(["10", "-2", "9"])[PARTS[0][1]]) >= 0


def test_a_class_that_no_silo_trains_on_is_refused():
    with pytest.raises(
        FedtctError, match=r"the test data has class 'fox', which no silo trains on\. They have: cat, dog"
    ):
        TCT.fit(named(), test=(PARTS[0][0][:1], ["fox"]))
    model = FedAvg("linear", rounds=1).fit(named()).model
    with pytest.raises(FedtctError, match="has class 'fox'"):
        model.score(PARTS[0][0][:1], ["fox"])
    with pytest.raises(FedtctError, match="a single class, cat"):
        TCT.fit(named([only(PARTS[0], 0)]))


def test_pairs_and_datasets_are_silos():
    expected = FedAvg("mlp", **TRAIN).fit([Silo(*part) for part in PARTS]).model
    for silos in (PARTS, [TensorDataset(*part) for part in PARTS], [list(part) for part in PARTS]):
        model = FedAvg("mlp", **TRAIN).fit(silos).model
        assert torch.equal(model.scores(PARTS[0][0]), expected.scores(PARTS[0][0]))
    for silo, message in {3: "silo 0 is int", (1, 2, 3): "silo 0 is tuple"}.items():
        with pytest.raises(FedtctError, match=message):
            FedAvg("linear").fit([silo])
    with pytest.raises(FedtctError, match="items of a Dataset must be pairs"):
        Silo(TensorDataset(torch.zeros(3)))


@pytest.mark.parametrize("dtype", [">f4", ">f8", np.longdouble])
def test_arrays_in_any_order_of_bytes_and_rows_are_taken(dtype):
    x, y = np.arange(12.0).reshape(4, 3), np.array([0, 1, 1, 0])
    silo = Silo(x.astype(dtype)[::-1], y.astype(">i4")[::-1])
    assert silo.x.tolist() == x[::-1].tolist()
    assert silo.y.tolist() == y[::-1].tolist()


def test_a_model_may_be_made_by_a_function_of_shape_and_outputs():
    def build(shape, outputs):
        return nn.Linear(shape[0], outputs)

    fit = FedAvg(build, rounds=1).fit(PARTS)
    assert type(fit.model.spec.model) is nn.Linear
    for wrong, message in {
        "gave int, not an nn.Module": lambda shape, outputs: 3,
        "failed: TypeError": lambda: nn.Linear(4, 3),
        "has 2 outputs, the silos have 3 classes": lambda shape, outputs: nn.Linear(shape[0], 2),
    }.items():
        with pytest.raises(FedtctError, match=wrong):
            FedAvg(message).fit(PARTS)


def test_a_saved_model_of_a_function_is_loaded_with_it(tmp_path):
    def build(shape, outputs):
        return nn.Linear(shape[0], outputs)

    model = FedAvg(build, rounds=1).fit(named()).model
    model.save(tmp_path)
    loaded = Classifier.load(tmp_path, model=build)
    assert torch.equal(loaded.scores(PARTS[0][0]), model.scores(PARTS[0][0]))
    assert loaded.predict(PARTS[0][0]).tolist() == model.predict(PARTS[0][0]).tolist()


# Tokens


class Reader(nn.Module):
    """Tokens, attention, the mean: a transformer at its smallest."""

    def __init__(self, words=12, width=8, classes=2):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.encoder = nn.TransformerEncoderLayer(width, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.encoder(self.embedding(x)).mean(1))


def sentences(n=60, words=12, seed=0):
    draws = torch.Generator().manual_seed(seed)
    x = torch.randint(1, words, (n, 6), generator=draws)
    return x, (x == 3).any(1).long()


def test_a_small_transformer_reads_tokens():
    x, y = sentences()
    silos = [Silo(x[:30].int(), y[:30]), Silo(x[30:].to(torch.int16), y[30:])]
    torch.manual_seed(0)
    for stage2 in (Ridge(d=200), ScaffoldRegression(rounds=2, steps=50, lr="auto")):
        fit = tct(Reader(), stage2, stage1=FedAvg(rounds=3, local_epochs=2, batch_size=8), p=200).fit(silos, (x, y))
        assert fit.model.spec.inputs.mean == ()
        assert fit.history[-1].train_accuracy > 0.8
    with pytest.raises(FedtctError, match="cannot take these samples: index out of range"):
        fit.model.predict(x + 20)


def test_tokens_beyond_the_embedding_are_refused_before_training():
    x, y = sentences(words=30)
    with pytest.raises(FedtctError, match=r"cannot take torch.int64 samples of shape \(6,\) from 1 to 29"):
        FedAvg(Reader()).fit([Silo(x, y)])


# Numbers


def numbers(n=120, seed=0, offset=1000.0):
    draws = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 5, generator=draws)
    return x, offset + 20 * (x[:, 0] - 2 * x[:, 1]).double() + torch.randn(n, generator=draws)


@pytest.mark.parametrize("stage2", [Ridge(d=500), ScaffoldRegression(rounds=5, steps=100, lr="auto")])
def test_numbers_are_learnt_by_both_stages(stage2, tmp_path):
    x, y = numbers()
    fit = tct("mlp", stage2, stage1=FedAvg(**TRAIN), p=500).fit(
        [(x[:70], y[:70]), (x[70:100], y[70:100])], test=(x[100:], y[100:])
    )
    last, predicted = fit.history[-1], fit.model.predict(x[100:])
    assert last.test_r2 == pytest.approx(r2_score(y[100:], predicted), rel=1e-4)
    assert last.test_rmse == pytest.approx(float((predicted - y[100:]).square().mean().sqrt()), rel=1e-4)
    assert last.test_r2 > 0.8
    assert fit.model.score(x[100:], y[100:]) == pytest.approx(last.test_r2, rel=1e-6)
    assert last.worst_silo_r2 == min(last.silo_r2s)
    assert last.test_accuracy is None
    table = fit.history.to_pandas()
    assert {"test_r2", "test_rmse", "train_loss"} <= set(table)
    assert "test_accuracy" not in table
    fit.model.save(tmp_path)
    assert torch.equal(Classifier.load(tmp_path).predict(x), fit.model.predict(x))
    with pytest.raises(FedtctError, match="it has no classes"):
        fit.model.classes  # noqa: B018


def test_stage_two_of_a_linear_model_is_least_squares():
    x, y = numbers(60)
    model = (
        tct(lambda shape, outputs: nn.Linear(shape[0], outputs), Ridge(d=6, ridge=1e-9))
        .fit([(x[:20], y[:20]), (x[20:], y[20:])])
        .model
    )
    expected = LinearRegression().fit(x, y).predict(x)
    assert model.predict(x).numpy() == pytest.approx(expected, rel=1e-6)


@quick
@given(st.integers(0, 999), st.sampled_from([1.0, 1e-3, 1e6]), st.sampled_from([0.0, 1e4]))
def test_units_of_the_target_do_not_matter(seed, unit, offset):
    x, y = numbers(40, seed=seed, offset=0.0)
    fits = [FedAvg("linear", rounds=1).fit([(x[:25], z[:25]), (x[25:], z[25:])]) for z in (y, unit * (y + offset))]
    assert fits[1].history[-1].train_r2 == pytest.approx(fits[0].history[-1].train_r2, abs=1e-4)


def test_patience_and_ridge_choose_numbers_by_held_out_r2():
    x, y = numbers()
    silos = [Silo(x[:60], y[:60], holdout=0.3), Silo(x[60:], y[60:], holdout=0.3)]
    history = FedAvg("mlp", rounds=4, patience=1, local_epochs=1).fit(silos).history
    assert all(row.holdout_r2 is not None for row in history)
    chosen = tct("mlp", Ridge(d=200, ridge="holdout"), p=200).fit(silos)
    assert chosen.history[-1].holdout_r2 > 0.5


@pytest.mark.parametrize(
    ("silos", "model", "message"),
    [
        ([numbers(20), (numbers(20)[0], torch.arange(20) % 2)], "mlp", "silo 1 holds labels as what is to be learnt"),
        ([(numbers(20)[0], torch.ones(20))], "mlp", "the target is 1 for every sample"),
        ([numbers(20)], nn.Linear(5, 3), "has 3 outputs, a regression needs 1"),
    ],
)
def test_numbers_that_cannot_be_learnt(silos, model, message):
    with pytest.raises(FedtctError, match=message):
        FedAvg(model).fit(silos)


# Tables


@st.composite
def tables(draw):
    """Numbers and texts, with missing values, and which silo each row belongs to."""
    n = draw(st.integers(4, 30))
    maybe = st.none() | st.floats(-1e6, 1e6, width=32)
    columns = {
        "age": draw(st.lists(maybe, min_size=n, max_size=n)),
        "town": draw(st.lists(st.sampled_from(["Ulm", "Rom", "", None]), min_size=n, max_size=n)),
        "flag": draw(st.lists(st.booleans(), min_size=n, max_size=n)),
    }
    silo = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    return pd.DataFrame(columns), np.array([0, 1, 2, *silo[3:]])


def table_code(silos):
    return agree([silo.describe({}) | {"name": silo.name} for silo in silos], 2).inputs.table


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
    with pytest.raises(FedtctError, match="x has no column 'b'"):
        loaded.predict(table[["a", "c"]])
    with pytest.raises(FedtctError, match="column 'a' holds texts, the silos' numbers"):
        loaded.predict(table.assign(a="old"))


FRAME = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": ["x", "y", "x"]})


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (FRAME[["a"]], "silo 1 has no column 'b', which silo 0 has"),
        (FRAME.assign(c=1), "silo 0 has no column 'c', which silo 1 has"),
        (FRAME.assign(a="text"), "column 'a' holds numbers in silo 0 and texts in silo 1"),
        (FRAME.assign(a=np.inf), "column 'a' holds infinite or huge values"),
        (FRAME.assign(a=pd.Timestamp("2020-01-01")), "column 'a' holds datetime"),
        (pd.concat([FRAME, FRAME], axis=1), "several columns called 'a'"),
        (FRAME[[]], "no columns to learn from"),
        (torch.zeros(3, 2), "silo 1 holds float32 samples, silo 0 table"),
    ],
)
def test_tables_that_do_not_go_together(other, message):
    with pytest.raises(FedtctError, match=message):
        FedAvg("linear").fit([(FRAME, [0, 1, 0]), (other, [0, 1, 0])])


def test_a_column_of_many_different_texts_is_refused():
    with pytest.raises(FedtctError, match="column 'id' has 600 different texts, more than 500"):
        FedAvg("linear").fit([(pd.DataFrame({"id": [f"p{i}" for i in range(600)]}), labels(600))])
    silos = [(pd.DataFrame({"id": [f"{silo}{i}" for i in range(300)]}), labels(300)) for silo in "ab"]
    with pytest.raises(FedtctError, match="all silos together: column 'id' has 600 different texts, more than 500"):
        FedAvg("linear").fit(silos)


@pytest.mark.parametrize(
    ("late", "message"),
    [
        ((FRAME, ["c", "d", "d"]), ""),
        ((FRAME.assign(b=None), ["c", "c", "c"]), ""),
        ((FRAME, ["c", "e", "d"]), "it has class 'e', which the others do not have"),
        ((FRAME.assign(a="text"), ["c", "d", "d"]), "column 'a' does not hold numbers"),
        ((FRAME[["a"]], ["c", "d", "d"]), "column 'b' does not hold texts"),
        ((FRAME, [0, 1, 1]), "it holds table samples with labels, the others table with names"),
    ],
)
def test_who_may_come_late(late, message):
    federation = LocalFederation([(FRAME, ["c", "d", "d"])])
    (description,) = federation.deliver("describe", {})
    agreed = agree([description], None)
    found = misfit(Silo(*late).describe({}), agreed.inputs, agreed.task, agreed.outputs)
    assert message in found
    assert bool(message) == bool(found)


class Flattening(nn.Module):
    """Flattens with ``view`` and −1, which no samples at all cannot be."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 2, 3), nn.Linear(18, 2)

    def forward(self, x):
        return self.head(self.conv(x).view(x.size(0), -1))


@pytest.mark.parametrize("method", [FedAvg(rounds=1), tct(None, Ridge(), p=50)])
def test_a_model_is_never_asked_about_no_samples(method):
    draws = torch.Generator().manual_seed(0)
    silos = [(torch.randn(20, 1, 5, 5, generator=draws), torch.arange(20) % 2) for _ in range(2)]
    fit = replace(method, model=Flattening()).fit(silos)
    assert fit.history[-1].train_accuracy is not None


def test_patience_refuses_held_out_targets_that_do_not_vary():
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    silo = Silo(x, x[:, 0].double(), holdout=0.2)
    silo.held_y = torch.full_like(silo.held_y, 0.5)
    with pytest.raises(FedtctError, match="whose targets do not vary"):
        FedAvg("linear", rounds=3, patience=1).fit([silo])


@pytest.mark.parametrize(
    ("x", "warns"),
    [
        (np.array([[1.0, 880.0], [2.0, 900.0]]), True),
        (np.array([[1.0, 0.004, 0.005], [2.0, 0.003, 0.001]]), True),
        (np.array([[1.0, 5.0, 0.0], [-1.0, 0.2, 0.0]]), False),
        (np.array([[0, 200], [1, 255]], dtype=np.uint8), False),
        (pd.DataFrame({"a": [1.0, 2.0], "b": [880.0, 900.0]}), False),
    ],
)
def test_arrays_whose_columns_differ_in_scale_are_taken_as_they_are_but_not_silently(x, warns, recwarn):
    Silo(x, [0, 1])
    assert ["differ much in scale" in str(warning.message) for warning in recwarn] == [True] * warns


def test_codes_are_no_labels():
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    codes = np.array([195967001, 6142004] * 4)
    with pytest.raises(FedtctError, match=r"2 different ones go up to 195967001.*give them as texts"):
        FedAvg("linear", rounds=1).fit([(x, codes)])
    assert FedAvg("linear", rounds=1).fit([(x, codes.astype(str))]).model.classes.tolist() == [6142004, 195967001]


def test_samples_that_are_all_alike_have_no_features():
    with pytest.raises(FedtctError, match="the same of every sample"):
        tct("mlp", Ridge(), p=50).fit([(torch.ones(20, 3), torch.arange(20) % 2)])
