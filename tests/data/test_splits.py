"""The laws of a split: nothing dealt twice, nothing lost, classes and proportions as asked for."""

import time

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedtct.data import partition, splits
from fedtct.errors import FedtctError

SEEDS = st.integers(0, 2**32)


def even_labels(classes: int, per_class: int) -> np.ndarray:
    return np.tile(np.arange(classes), per_class)


def assert_disjoint(parts: list[np.ndarray], silos: int) -> np.ndarray:
    assert len(parts) == silos
    assert all(part.dtype == np.int64 and np.all(np.diff(part) > 0) for part in parts)
    together = np.concatenate(parts)
    assert len(np.unique(together)) == len(together)
    return np.sort(together)


@pytest.mark.parametrize("convert", [list, np.array, pd.Series, pd.Categorical])
@pytest.mark.parametrize("split", ["iid", "classes:1", "dirichlet:1"])
def test_names_are_dealt_as_labels_are(convert, split):
    y = even_labels(3, 40)
    named = convert(np.array(["ant", "bee", "cat"])[y])
    for part, other in zip(partition(named, 3, split), partition(y, 3, split), strict=True):
        assert np.array_equal(part, other)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60), st.integers(1, 12), SEEDS)
def test_iid_deals_every_sample_in_equal_parts(y, silos, seed):
    assume(silos <= len(y))
    parts = partition(y, silos, "iid", seed)
    assert np.array_equal(assert_disjoint(parts, silos), np.arange(len(y)))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


@given(st.data(), st.integers(1, 8), st.integers(1, 8), st.integers(8, 20), SEEDS)
def test_classes_gives_each_silo_its_classes_and_uses_held_classes_fully(data, silos, classes, per_class, seed):
    per_silo = data.draw(st.integers(1, classes))
    y = even_labels(classes, per_class)
    parts = partition(y, silos, f"classes:{per_silo}", seed)
    dealt = assert_disjoint(parts, silos)
    assert all(len(np.unique(y[part])) == per_silo for part in parts)

    held = np.unique(y[dealt])
    assert np.array_equal(dealt, np.flatnonzero(np.isin(y, held)))
    assert len(held) == min(classes, silos * per_silo)
    for label in held:
        shares = [count for part in parts if (count := np.sum(y[part] == label))]
        assert max(shares) - min(shares) <= 1


@given(st.integers(1, 5), st.integers(1, 6), st.floats(0.05, 1e6), SEEDS)
def test_dirichlet_deals_every_sample(silos, classes, alpha, seed):
    y = even_labels(classes, 500)
    parts = partition(y, silos, f"dirichlet:{alpha}", seed)
    assert np.array_equal(assert_disjoint(parts, silos), np.arange(len(y)))
    assert min(map(len, parts)) >= splits.MINIMUM_PER_SILO


@given(st.sampled_from(["iid", "classes:2", "dirichlet:0.5"]), SEEDS)
@settings(max_examples=30)
def test_a_seed_fixes_the_split_whatever_holds_the_labels(split, seed):
    y = even_labels(5, 40)
    reference = partition(y, 4, split, seed)
    for same in (y.tolist(), torch.from_numpy(y), y.astype(np.uint8)):
        again = partition(same, 4, split, seed)
        assert all(np.array_equal(a, b) for a, b in zip(reference, again, strict=True))


def test_seeds_differ():
    y = even_labels(5, 40)
    for split in ("iid", "classes:2", "dirichlet:0.5"):
        first, second = (partition(y, 4, split, seed) for seed in (0, 1))
        assert any(not np.array_equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("iid", [[3, 4, 6, 11], [0, 2, 9, 10], [1, 5, 7, 8]]),
        ("classes:2", [[0, 2, 5, 9], [3, 4, 6, 7], [1, 8, 10, 11]]),
        ("dirichlet:0.5", [[1, 2, 5, 7, 10, 11], [0, 4], [3, 6, 8, 9]]),
    ],
)
def test_the_deal_of_a_seed_never_changes(split, expected):
    """Results of old runs must stay reproducible: a new algorithm needs a new name."""
    parts = partition(even_labels(3, 4), 3, split, seed=7)
    assert [part.tolist() for part in parts] == expected


def test_ten_silos_of_one_class_hold_distinct_classes():
    y = even_labels(10, 100)
    parts = partition(y, 10, "classes:1", seed=5)
    assert sorted(np.unique(y[part]).item() for part in parts) == list(range(10))
    assert all(len(part) == 100 for part in parts)


def test_labels_need_not_start_at_zero_or_be_dense():
    y = np.repeat([-3, 40, 1000], 20)
    parts = partition(y, 3, "classes:1")
    assert sorted(np.unique(y[part]).item() for part in parts) == [-3, 40, 1000]


@pytest.mark.parametrize("alpha", ["0.001", "1e-9"])
def test_tiny_alpha_gives_whole_classes_to_silos(alpha):
    y = even_labels(100, 500)
    parts = partition(y, 10, f"dirichlet:{alpha}")
    assert np.array_equal(assert_disjoint(parts, 10), np.arange(len(y)))
    table = np.stack([np.bincount(y[part], minlength=100) for part in parts])
    assert np.mean(table.max(axis=0) >= 495) > 0.9


@pytest.mark.parametrize("seed", range(3))
def test_tiny_alpha_with_as_many_silos_as_classes_is_dealt_until_no_silo_is_short(seed):
    started = time.perf_counter()
    parts = partition(even_labels(10, 5000), 10, "dirichlet:0.001", seed)
    assert min(map(len, parts)) >= splits.MINIMUM_PER_SILO
    assert time.perf_counter() - started < 10


def test_huge_alpha_is_nearly_even():
    y = even_labels(10, 1000)
    for part in partition(y, 10, "dirichlet:1e9"):
        assert np.all(np.abs(np.bincount(y[part]) - 100) <= 1)


@pytest.mark.parametrize("alpha", [0.05, 0.5, 3.0])
def test_dirichlet_proportions_have_the_moments_of_the_distribution(alpha):
    silos, size = 4, 10**6
    rng = np.random.Generator(np.random.PCG64(1))
    deals = splits._dirichlet_deals(np.full(50, size), silos, alpha, rng)
    shares = np.stack([next(deals) for _ in range(400)]) / size
    assert shares.mean() == pytest.approx(1 / silos)
    variance = (1 / silos) * (1 - 1 / silos) / (silos * alpha + 1)
    assert shares.var() == pytest.approx(variance, rel=0.03)


def test_classes_are_dealt_again_until_no_silo_is_short():
    y = np.repeat([0, 1, 2], [2, 500, 500])  # two holders of the small class would be short
    for seed in range(20):
        assert min(map(len, partition(y, 4, "classes:2", seed))) >= splits.MINIMUM_PER_SILO


def test_an_impossible_deal_is_an_error(monkeypatch):
    monkeypatch.setattr(splits, "MAX_DEALS", 200)
    with pytest.raises(FedtctError, match=r"(?s)30 silos.*fewer silos, or a larger N or ALPHA"):
        partition(even_labels(10, 100), 30, "dirichlet:0.001")
    with pytest.raises(FedtctError, match="fewer silos"):
        partition([0, 1, 1, 1, 1, 1], 6, "classes:1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": []}, "y is empty"),
        ({"y": [[0, 1]]}, "labels or names"),
        ({"y": [0.5, 1.0]}, "labels or names"),
        ({"y": ["ill", None]}, "1 of 2 labels are missing"),
        ({"silos": 0}, "silos must be at least 1"),
        ({"silos": 3.0}, "silos must be a whole number"),
        ({"silos": 31}, "there are 31 silos but only 30 samples"),
        ({"seed": -1}, "seed must not be negative"),
        ({"seed": None}, "seed must be a whole number"),
        ({"split": "even"}, "iid, classes:N, dirichlet:ALPHA"),
        ({"split": "iid:2"}, "unknown split"),
        ({"split": "classes"}, "unknown split"),
        ({"split": "classes:0"}, "from 1 to 3"),
        ({"split": "classes:4"}, "from 1 to 3"),
        ({"split": "classes:1.5"}, "whole number"),
        ({"split": "classes:-1"}, "whole number"),
        ({"split": "dirichlet:"}, "ALPHA"),
        ({"split": "dirichlet:0"}, "ALPHA"),
        ({"split": "dirichlet:-1"}, "ALPHA"),
        ({"split": "dirichlet:nan"}, "ALPHA"),
        ({"split": "dirichlet:inf"}, "ALPHA"),
        ({"split": "dirichlet:much"}, "ALPHA"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(FedtctError, match=message):
        partition(**{"y": even_labels(3, 10), "silos": 3, **arguments})
