"""What is kept in memory changes how long a run takes, never what it computes."""

import shutil
import tempfile
import weakref

import pytest
import torch

import fedtct
from fedtct import agreement
from fedtct.hardware import memory
from fedtct.hardware.memory import free_bytes
from fedtct.least_squares import closed_form, local_features
from fedtct.tangent import normaliser
from fedtct.tasks import NUMBERED
from fedtct.training import evaluation


def fit(digits_silos=4):
    data = fedtct.load_dataset("digits")
    parts = fedtct.partition(data.train.y[:200], silos=digits_silos, split="classes:3", seed=0)
    silos = [fedtct.Silo(data.train.x[:200][i], data.train.y[:200][i], holdout=0.2) for i in parts]
    stage2 = fedtct.ScaffoldRegression(rounds=3, lr="auto", steps=20)
    features = fedtct.TangentFeatures(p=500)
    model = fedtct.TCT("mlp", fedtct.FedAvg(rounds=1, local_epochs=1), features, stage2).fit(silos, test=data.test)
    return model.history[-1], model.model.scores(data.test.x[:50])


def test_raw_features_kept_or_computed_again_give_the_same_bits(monkeypatch):
    kept, scores = fit()
    monkeypatch.setattr(local_features, "RAW_SHARE", 0.0)
    again, same_scores = fit()
    assert torch.equal(scores, same_scores)
    assert kept.train_loss == again.train_loss


def test_half_precision_hardly_changes_the_model(monkeypatch):
    full, scores = fit()
    monkeypatch.setattr(normaliser, "HALF_FROM", 0)
    half, near_scores = fit()
    assert half.train_loss != full.train_loss  # it was really stored in half precision
    assert torch.allclose(scores, near_scores, atol=5e-3)


def test_features_in_a_file_give_the_same_bits(monkeypatch, tmp_path):
    _, scores = fit()
    monkeypatch.setattr(memory, "ROOMY", 0.0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.warns(UserWarning, match=rf"do not fit into the free memory .* kept in a file in {tmp_path}"):
        _, same_scores = fit()
    assert torch.equal(scores, same_scores)
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


def test_features_that_fit_neither_memory_nor_the_disk_are_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "ROOMY", 0.0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=1000))
    with pytest.raises(
        fedtct.FedtctError, match=rf"do not fit into the free memory .* nor into {tmp_path} .* set TMPDIR"
    ):
        fit()


def test_a_silo_without_room_for_its_gram_matrix_learns_the_same(monkeypatch):
    _, scores = fit()
    monkeypatch.setattr(closed_form, "GRAM_SHARE", 0.0)
    with pytest.warns(UserWarning, match=r"Gram matrix of \d+ samples"):
        _, near_scores = fit()
    assert torch.allclose(scores, near_scores, atol=1e-4)


def test_all_coordinates_of_a_small_network():
    data = fedtct.load_dataset("digits")
    silos = [fedtct.Silo(data.train.x[:100], data.train.y[:100])]
    method = fedtct.TCT(
        "mlp", fedtct.FedAvg(rounds=1), fedtct.TangentFeatures(p=10**9), fedtct.ScaffoldRegression(rounds=1, lr="auto")
    )
    fitted = method.fit(silos).model
    assert fitted.tangents.p == fitted.recipe.parameters.numel() - 9 * 201  # the head has one logit instead of ten


def test_there_is_memory_left():
    assert free_bytes(torch.device("cpu")) > 10**8


@pytest.mark.parametrize("names", memory.CONTAINER_FILES, ids=["cgroups 2", "cgroups 1"])
def test_a_container_has_no_more_than_its_limit(monkeypatch, tmp_path, names):
    limit, use, statistics, cached = names
    monkeypatch.setattr(memory, "CONTAINER", tmp_path)
    (tmp_path / "memory").mkdir()
    (tmp_path / limit).write_text("5000000\n")
    (tmp_path / use).write_text("3000000\n")
    (tmp_path / statistics).write_text(f"anon 7\n{cached} 1000000\n")
    assert free_bytes(torch.device("cpu")) == 3_000_000
    (tmp_path / limit).write_text("max\n")
    assert free_bytes(torch.device("cpu")) > 10**8


def test_where_nobody_tells_how_much_memory_is_left_some_is_assumed(monkeypatch):
    def nowhere(*args, **more):
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", nowhere)
    assert free_bytes(torch.device("cpu")) > 10**8
    monkeypatch.delattr("os.sysconf")
    assert free_bytes(torch.device("cpu")) == memory.UNTOLD


def test_statistics_of_pixels_take_little_memory_however_many_there_are(monkeypatch):
    widen, wide = torch.Tensor.long, weakref.WeakSet()

    def watched(pixels):
        assert len(wide) < 2  # the one before goes when this one comes
        wide.add(widened := widen(pixels))
        return widened

    x = torch.randint(256, (13_000, 3, 2, 1), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    y = torch.zeros(len(x), dtype=torch.long)
    monkeypatch.setattr(agreement, "PIXELS_AT_ONCE", 6 * 4096)
    monkeypatch.setattr(torch.Tensor, "long", watched)
    told = agreement.describe(x, y, y[:0], "silo")
    monkeypatch.undo()
    pixels = x.transpose(0, 1).flatten(1).long()
    assert told["pixels"] == pixels.shape[1]
    assert torch.equal(told["sum"], pixels.sum(1))
    assert torch.equal(told["square_sum"], pixels.square().sum(1))


def test_large_samples_are_rated_few_at_a_time(monkeypatch):
    monkeypatch.setattr(evaluation, "NUMBERS", 100)
    seen = []

    def predict(x):
        seen.append(len(x))
        return x[:, :2]

    x, y = torch.ones(7, 30), torch.ones(7, dtype=torch.long)
    evaluation.evaluate(predict, x, y, NUMBERED.score)
    evaluation.evaluate(predict, torch.ones(2, 1000), y[:2], NUMBERED.score)
    assert seen == [3, 3, 1, 1, 1]
