"""Data of any form: names, tokens, Datasets and pairs, in silos that know different classes."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from core_helpers import skewed_data, tct
from torch import nn
from torch.utils.data import TensorDataset

from fedtct import Centralized, Classifier, FedAvg, FedtctError, Ridge, ScaffoldRegression, Silo

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
    with pytest.raises(FedtctError, match="the test data has classes that no silo trains on; the silos have cat, dog"):
        TCT.fit(named(), test=(PARTS[0][0][:1], ["fox"]))
    model = FedAvg("linear", rounds=1).fit(named()).model
    with pytest.raises(FedtctError, match="Found: 'fox'"):
        model.score(PARTS[0][0][:1], ["fox"])
    with pytest.raises(FedtctError, match="a single class, cat"):
        TCT.fit(named([only(PARTS[0], 0)]))


@pytest.mark.parametrize("convert", [np.asarray, pd.Series, torch.as_tensor])
def test_predictions_of_truth_values_are_truth_values(convert):
    x, y = PARTS[0]
    ill = (y > 0).numpy()
    model = FedAvg("mlp", **TRAIN).fit([(x, convert(ill))]).model
    assert model.classes.tolist() == [False, True]
    assert (model.predict(x) == ill).mean() == model.score(x, convert(ill)) > 0.5


def test_test_data_may_be_a_dataset():
    tests = (PARTS[1], TensorDataset(*PARTS[1]))
    rows = [FedAvg("mlp", **TRAIN).fit(PARTS, test).history[-1] for test in tests]
    assert rows[0].test_accuracy == rows[1].test_accuracy is not None


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
    with pytest.raises(FedtctError, match="items of a Dataset must be pairs"):
        Silo(TensorDataset(torch.zeros(3), torch.zeros(3), torch.zeros(3)))


@pytest.mark.parametrize("dtype", [">f4", ">f8", np.longdouble])
def test_arrays_in_any_order_of_bytes_and_rows_are_taken(dtype):
    x, y = np.arange(12.0).reshape(4, 3), np.array([0, 1, 1, 0])
    silo = Silo(x.astype(dtype)[::-1], y.astype(">i4")[::-1])
    assert silo.x.tolist() == x[::-1].tolist()
    assert silo.y.tolist() == y[::-1].tolist()


@pytest.mark.parametrize("convert", [torch.Tensor.requires_grad_, torch.Tensor.to_sparse])
def test_tensors_that_are_kept_in_another_way_are_the_same_samples(convert):
    x, y = PARTS[0][0], PARTS[0][0].sum(1)
    expected, model = (
        tct("mlp", Ridge(d=30), stage1=FedAvg(**TRAIN)).fit([given]).model
        for given in ((x, y), (convert(x.clone()), y.clone().requires_grad_()))
    )
    assert torch.equal(model.scores(convert(x.clone())), expected.scores(x))


def test_objects_that_are_whole_numbers_are_labels():
    assert Silo(torch.zeros(2, 1), np.array([np.int64(3), np.bool_(True)], object)).y.tolist() == ["3", "True"]


def test_a_model_may_be_made_by_a_function_of_shape_and_outputs():
    def build(shape, outputs):
        return nn.Linear(shape[0], outputs)

    fit = FedAvg(build, rounds=1).fit(PARTS)
    assert type(fit.model.spec.model) is nn.Linear
    for wrong, message in {
        "gave int, not an nn.Module": lambda shape, outputs: 3,
        "failed: TypeError": lambda: nn.Linear(4, 3),
        "has 2 outputs, but the silos have 3 classes": lambda shape, outputs: nn.Linear(shape[0], 2),
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
    with pytest.raises(FedtctError, match=r"cannot take these samples, with numbers from .*: index out of range"):
        fit.model.predict(x + 20)


class CausalReader(Reader):
    """No word sees those after it: a mask of −∞, which is a buffer or made anew each time."""

    def __init__(self, kept):
        super().__init__()
        mask = torch.full((6, 6), -torch.inf).triu(1)
        self.register_buffer("mask", mask if kept else None)

    def forward(self, x):
        mask = torch.full((6, 6), -torch.inf).triu(1) if self.mask is None else self.mask
        return self.head(self.encoder(self.embedding(x), src_mask=mask).mean(1))


def test_a_mask_of_infinities_may_be_a_buffer():
    x, y = sentences()
    scores = []
    for kept in (True, False):
        torch.manual_seed(0)
        method = tct(CausalReader(kept), Ridge(d=50), stage1=FedAvg(rounds=2, local_epochs=1), p=50)
        scores.append(method.fit([Silo(x[:40], y[:40]), Silo(x[40:], y[40:])]).model.scores(x))
    assert torch.equal(*scores)


class Columns(nn.Module):
    """An embedding for each column, as large as the column needs."""

    def __init__(self, sizes):
        super().__init__()
        self.columns = nn.ModuleList(nn.Embedding(size, 4) for size in sizes)
        self.head = nn.Linear(4 * len(sizes), 2)

    def forward(self, x):
        return self.head(torch.cat([column(x[:, i]) for i, column in enumerate(self.columns)], 1))


def test_columns_of_codes_may_differ_in_how_many_there_are():
    sizes = [2, 5, 9]
    x = torch.stack([torch.arange(90) % size for size in sizes], 1)
    silos = [Silo(x[part], (x[part, 1] > 2).long(), holdout=0.1) for part in (slice(50), slice(50, 90))]
    fit = tct(Columns(sizes), Ridge(d=100), stage1=FedAvg(rounds=5, batch_size=8)).fit(silos)
    assert fit.history[-1].holdout_accuracy > 0.9
    with pytest.raises(FedtctError, match=r"cannot take torch.int64 samples of shape \(3,\) .*, from 0 to 8"):
        FedAvg(Columns([2, 4, 9])).fit(silos)


class MixesSamples(nn.Module):
    """Forgets that its recurrent layer takes steps first."""

    def __init__(self, **options):
        super().__init__()
        self.rnn, self.head = nn.GRU(3, 4, **options), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


@pytest.mark.parametrize("made", [torch.Tensor.float, torch.Tensor.byte])
def test_a_model_that_mixes_samples_up_is_warned_of(made):
    torch.manual_seed(0)
    silo = Silo(made(255 * torch.rand(20, 5, 3, generator=torch.Generator().manual_seed(0))), torch.arange(20) % 2)
    with pytest.warns(UserWarning, match="different outputs for a sample alone and in a batch.*batch_first"):
        FedAvg(MixesSamples(), rounds=1).fit([silo])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FedAvg(MixesSamples(batch_first=True), rounds=1).fit([silo])


class Packed(nn.Module):
    """Reads as many steps as a sample has, which must be at least one."""

    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.LSTM(3, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, x):
        lengths = (x != 0).any(2).sum(1)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.head(self.rnn(packed)[1][0][-1])


def test_series_of_different_lengths():
    draws = torch.Generator().manual_seed(0)
    x, lengths = torch.rand(90, 6, 3, generator=draws) + 0.1, torch.randint(1, 7, (90, 1), generator=draws)
    x, y = x * (torch.arange(6) < lengths)[..., None], (lengths[:, 0] > 3).long()
    stage1 = FedAvg(rounds=2, local_epochs=2, batch_size=8, lr=0.5)
    with pytest.warns(
        UserWarning, match="are computed one sample at a time, which is slow: .*a padded sequence has a rule"
    ):
        fit = tct(Packed(), Ridge(d=200), stage1=stage1, p=200).fit([Silo(x[:50], y[:50]), Silo(x[50:], y[50:])])
    assert fit.history[-1].train_accuracy > 0.9


def test_a_model_for_one_sample_at_a_time_is_refused():
    model = nn.Sequential(nn.Flatten(0), nn.Linear(6, 2), nn.Unflatten(0, (1, 2)))
    with pytest.raises(FedtctError, match="takes a sample, but not two at a time: RuntimeError: mat1"):
        FedAvg(model, rounds=1).fit([Silo(torch.rand(20, 6), torch.arange(20) % 2)])


def test_tokens_beyond_the_embedding_are_refused_before_training():
    x, y = sentences(words=30)
    with pytest.raises(FedtctError, match=r"cannot take torch.int64 samples of shape \(6,\) .* from 1 to 29"):
        FedAvg(Reader()).fit([Silo(x, y)])


def test_which_tokens_there_are_stays_in_the_silo():
    x, y = sentences(words=30)
    told, other = (Silo(tokens, y, name="north").describe() for tokens in (x, x // 2))
    assert told.keys() == other.keys()
    assert all(str(told[key]) == str(other[key]) for key in told)
    with pytest.raises(FedtctError, match=r"north: the model cannot take .* from 1 to 29: IndexError: index") as error:
        FedAvg(Reader()).fit([Silo(x // 10, y, name="south"), Silo(x, y, name="north")])
    assert "from 1 to 29" not in error.value.shareable
    assert error.value.shareable.endswith("(quantities must be floats): IndexError; the silo's log says more")


def test_tokens_of_the_test_data_are_tried_too():
    x, y = sentences(words=30)
    with pytest.raises(FedtctError, match=r"the test data: the model cannot take .* from 1 to 29"):
        FedAvg(Reader()).fit([Silo(x // 10, y)], test=(x, y))


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


def test_codes_are_no_labels():
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    codes = np.array([195967001, 6142004] * 4)
    with pytest.raises(FedtctError, match=r"2 different .* up to 195967001.*give them as texts.*--task.*num_classes"):
        FedAvg("linear", rounds=1).fit([(x, codes)])
    assert FedAvg("linear", rounds=1).fit([(x, codes.astype(str))]).model.classes.tolist() == [6142004, 195967001]


def test_samples_that_are_all_alike_have_no_features():
    with pytest.raises(FedtctError, match="the same output for every sample"):
        tct("mlp", Ridge(), p=50).fit([(torch.ones(20, 3), torch.arange(20) % 2)])


@pytest.mark.parametrize(("factor", "odd"), [(1000.0, True), (0.001, True), (0.0, True), (5.0, False), (1.0, False)])
def test_a_silo_whose_arrays_may_be_in_other_units_is_told_of(factor, odd, recwarn):
    draws = torch.Generator().manual_seed(0)
    signals = [torch.randn(20, 3, 16, generator=draws) for _ in range(4)]
    signals[2] *= factor
    FedAvg("mlp", rounds=0).fit([(x, [0, 1] * 10) for x in signals])
    told = [str(w.message) for w in recwarn if "same units" in str(w.message)]
    assert ["in silo 2 and" in text for text in told] == [True] * odd


@pytest.mark.parametrize(
    ("factor", "shift", "odd"), [(1000.0, 0, True), (1.8, 320, True), (3.0, 0, False), (1, 20, False)]
)
def test_a_silo_whose_targets_may_be_in_other_units_is_told_of(factor, shift, odd, recwarn):
    draws = torch.Generator().manual_seed(0)
    x = [torch.randn(30, 3, generator=draws) for _ in range(4)]
    y = [10 * part[:, 0] + 37 for part in x]
    y[1] = factor * y[1] + shift
    FedAvg("mlp", rounds=0).fit(list(zip(x, y, strict=True)))
    told = [str(w.message) for w in recwarn if "same units" in str(w.message)]
    assert [text.startswith("the target is") and "on average in silo 1" in text for text in told] == [True] * odd
