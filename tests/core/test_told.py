"""What is taken as it is, but not silently: it may be meant otherwise."""

import numpy as np
import pandas as pd
import pytest
import torch
from core_helpers import skewed_data
from torch import nn

from fedtct import FedAvg, FederatedTangentRegressor, FedtctError, Silo
from fedtct.data.samples import as_samples
from fedtct.data.sources import Reading, read_samples

ANIMALS = np.array(["cat", "dog", "eel"])
PARTS = skewed_data((30, 20, 10))
TRAIN = {"rounds": 2, "local_epochs": 2, "batch_size": 8}


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("Ill", "ill", "well"), "'Ill' and 'ill' count as different classes"),
        (("0", "1", "True"), "'1' and 'True' count as different classes"),
        (ANIMALS, ""),
        (("7", "8", "9"), ""),
    ],
)
def test_names_that_differ_in_spelling_alone_are_noticed(names, told, recwarn):
    fit = FedAvg("linear", **TRAIN).fit([Silo(x, np.array(names)[y]) for x, y in PARTS])
    assert len(fit.model.classes) == 3
    assert [told] * bool(told) == [
        text[: len(told)] for w in recwarn if "count as different" in (text := str(w.message))
    ]


@pytest.mark.parametrize(
    ("last", "told"),
    [
        (("0", "1"), "classes are 0, 1 in silo 2 and no, yes in silo 0, silo 1, and count as different"),
        (("no", "1"), ""),
        (("no", "yes"), ""),
    ],
)
def test_classes_that_are_numbers_in_some_silos_and_words_in_others_are_noticed(last, told, recwarn):
    silos = [
        (x, np.array(words)[y % 2]) for (x, y), words in zip(PARTS, (("no", "yes"), ("no", "yes"), last), strict=True)
    ]
    FedAvg("linear", **TRAIN).fit(silos)
    assert [told] * bool(told) == [
        text[: len(told)] for w in recwarn if "count as different" in (text := str(w.message))
    ]


def test_classes_that_are_nobodys_are_told():
    x, y = PARTS[0]
    with pytest.warns(UserWarning, match="labels go up to 4, but no silo has 1, 3, which cannot be learnt"):
        FedAvg("linear", **TRAIN).fit([(x, y * 2)])


@pytest.mark.parametrize(("last", "warns"), [(nn.Softmax(1), True), (nn.LogSoftmax(1), False), (nn.Identity(), False)])
def test_a_network_that_gives_probabilities_is_told_of(last, warns, recwarn):
    FedAvg(nn.Sequential(nn.Linear(PARTS[0][0].shape[1], 3), last), **TRAIN).fit(PARTS)
    assert any("the model returns probabilities" in str(warning.message) for warning in recwarn) == warns


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
    assert ["on very different scales" in str(warning.message) for warning in recwarn] == [True] * warns


@pytest.mark.parametrize(
    ("labels", "num_classes", "warns"),
    [([1, 2, 3], None, True), ([1, 2, 3], 4, False), ([0, 1, 3], None, False), (["1", "2", "3"], None, False)],
)
def test_labels_that_seem_to_be_counted_from_1_are_warned_of_once(labels, num_classes, warns, recwarn):
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    silos = [Silo(x, np.array(labels * 4)), Silo(x, np.array(labels[1:] * 6))]
    FedAvg("linear", rounds=1, num_classes=num_classes).fit(silos)
    assert len([warning for warning in recwarn if "no silo has label 0" in str(warning.message)]) == warns


@pytest.mark.parametrize(
    ("different", "each", "table", "options", "warns"),
    [
        (60, 5, False, {}, True),
        (60, 5, True, {}, True),
        (60, 5, False, {"num_classes": 60}, False),
        (20, 5, True, {}, False),
        (30, 100, False, {}, False),  # CIFAR-100 has 500 of each, and nobody means a quantity there
        (30, 100, True, {}, True),
    ],
)
def test_whole_numbers_that_may_be_quantities_are_not_taken_as_classes_silently(
    different, each, table, options, warns, recwarn
):
    x = torch.randn(different * each, 3, generator=torch.Generator().manual_seed(0)).numpy()
    x, y = pd.DataFrame(x, columns=list("abc")) if table else x, np.arange(different * each) % different
    FedAvg("linear", rounds=0, **options).fit([Silo(x[::2], y[::2]), Silo(x[1::2], y[1::2])])
    said = [str(w.message) for w in recwarn if "different whole numbers" in str(w.message)]
    assert [f"{different} different whole numbers in {len(y):,} samples" in text for text in said] == [True] * warns


def test_what_is_advised_for_quantities_is_a_regression_without_a_warning(recwarn):
    x = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
    ages = np.arange(300) % 60 + 20
    fit = FedAvg("linear", rounds=1).fit([(x, ages.astype(float))])
    assert fit.history[-1].regression
    assert not [w for w in recwarn if "whole numbers" in str(w.message)]


@pytest.mark.parametrize(
    ("shape", "dtype", "warns"),
    [
        ((32, 32, 3), torch.uint8, True),
        ((28, 20, 1), torch.float32, True),
        ((8, 8, 4), torch.uint8, True),
        ((3, 32, 32), torch.uint8, False),
        ((1, 5, 3), torch.uint8, False),
        ((16, 4, 4), torch.float32, False),  # many channels of small pictures
        ((8, 8, 3), torch.int64, False),
        ((32, 3), torch.float32, False),
    ],
)
def test_images_whose_channels_seem_to_come_last_are_noticed(shape, dtype, warns, recwarn):
    Silo(torch.zeros(2, *shape, dtype=dtype), [0, 1])
    told = [str(w.message) for w in recwarn if "channels" in str(w.message)]
    assert [f"samples of shape {shape} are taken as" in text and "(N, C, H, W)" in text for text in told] == [
        True
    ] * warns


WHOLE = [0.0, 1.0, 0.0, 2.0] * 5
X = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
TABLE = pd.DataFrame(X.numpy(), columns=list("abc"))


@pytest.mark.parametrize(
    ("x", "y", "warns"),
    [
        (X, WHOLE, True),
        (X, np.array(WHOLE), True),
        (X, torch.tensor(WHOLE), True),
        (TABLE, pd.Series(WHOLE), True),
        (TABLE, np.array(WHOLE), False),  # so come files, which have warned, or were told their task
        (X, [int(value) for value in WHOLE], False),
        (X, np.array(WHOLE) / 2, False),
        (X, np.arange(20.0) % 11, False),
        (X[:4], [3.0, 1.0, 4.0, 5.0], False),  # classes would occur again
    ],
)
def test_a_few_whole_numbers_written_as_real_ones_are_not_taken_as_quantities_silently(x, y, warns, recwarn):
    Silo(x, y)
    told = [str(w.message) for w in recwarn if "whole numbers, written like 1.0" in str(w.message)]
    assert ["y.astype(int)" in text for text in told] == [True] * warns


@pytest.mark.parametrize("as_given", [list, np.array, torch.tensor, pd.Series])
def test_a_task_that_is_said_is_not_guessed(as_given, recwarn):
    for given in (WHOLE, [int(value) for value in WHOLE], [-value for value in WHOLE]):
        said = Silo(X, as_given(given), task="regression")
        assert torch.equal(said.y, torch.tensor(given, dtype=torch.float64))
        if min(given) >= 0:
            said = Silo(X, as_given(given), task="classification")
            assert said.y.tolist() == [str(int(value)) for value in given]
    fit = FedAvg("linear", rounds=1).fit([Silo(X, [int(value) for value in WHOLE], task="regression")])
    assert fit.model.score(X, [-int(value) for value in WHOLE]) < 1
    assert not [w for w in recwarn if "whole numbers" in str(w.message)]


@pytest.mark.parametrize(
    ("y", "task", "message"),
    [
        (["a", "b"] * 10, "regression", "silo: y holds texts: a regression needs numbers"),
        ([0.5, 1.0] * 10, "classification", "silo: y holds numbers that are not whole"),
        ([0, None] * 10, "classification", "10 of 20 labels are missing"),
        (WHOLE, "ranking", "unknown task 'ranking'. Known: auto, classification, regression"),
    ],
)
def test_a_task_that_answers_do_not_fit_is_refused(y, task, message):
    with pytest.raises(FedtctError, match=message):
        Silo(X, y, task=task)


def test_files_and_estimators_whose_task_is_known_are_not_asked_about_it_again(tmp_path, recwarn):
    TABLE.assign(target=WHOLE).to_csv(tmp_path / "silo.csv", index=False)
    x, y = read_samples(tmp_path / "silo.csv", Reading("target", "regression"))
    Silo(x, y)
    Silo(*as_samples(x, y, "the file"))
    FederatedTangentRegressor("linear", n_silos=1, rounds=1).fit(TABLE, WHOLE)
    assert not [w for w in recwarn if "whole numbers" in str(w.message)]
    Silo(*read_samples(tmp_path / "silo.csv", Reading("target")))
    told = [str(w.message) for w in recwarn if "whole numbers" in str(w.message)]
    assert [text.startswith("column 'target'") for text in told] == [True]
