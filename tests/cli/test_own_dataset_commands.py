"""A dataset of the user's own, named as module:function, is dealt, learnt and reported on as fedtct's are."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import fedtct
from fedtct.cli import main
from fedtct.errors import FedtctError
from fedtct.history import as_plain
from fedtct.runs.folder import RunFolder
from fedtct.runs.jobs import _load

MODULE = """
import numpy as np

import fedtct
from fedtct import Dataset, Samples

NAMES = ("a", "b")
x, y = np.arange(60.0).reshape(20, 3) / 60, np.arange(20) % 2


def same(folder):
    data = fedtct.load_dataset("digits", folder)
    train, test = ((x.numpy(), y.tolist()) for x, y in (data.train, data.test))
    return Dataset("mine", train, test, 10, data.class_names)


def made(train=(x, y), test=(x, y), num_classes=2, class_names=NAMES):
    return Dataset("made", train, test, num_classes, class_names)


def no_argument():
    return made()


def no_dataset(folder):
    return x, y


def no_pair(folder):
    return made(train=x)


def lengths(folder):
    return made(train=Samples(x, y[:7]))


def shapes(folder):
    return made(test=Samples(x[:, :2], y))


def kinds(folder):
    return made(test=Samples((x * 9).astype(np.uint8), y))


def labels(folder):
    return made(test=Samples(x, y + 1))


def numbers(folder):
    return made(train=Samples(x, y + 0.5))


def texts(folder):
    return made(train=Samples(x, y.astype(str)))


def names(folder):
    return made(class_names=("a",))


def classes(folder):
    return made(num_classes=1)


def missing(folder):
    return made(train=Samples(x / 0, y))


def files(folder):
    return made(train=np.load(folder / "train.npy"))
"""
FEW = ["--split", "classes:2", "--silos", "5", "--limit", "200", "--rounds", "2", "--local-epochs", "1"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of datasets in the folder of the commands."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_data", raising=False)
    (tmp_path / "my_data.py").write_text(MODULE)
    _load.cache_clear()
    return tmp_path


def rows(path: Path) -> list[dict[str, object]]:
    return [{k: v for k, v in as_plain(row).items() if k != "seconds"} for row in RunFolder.read(path).history]


def forget(folder: Path) -> None:
    """As in another process where the module is not there."""
    (folder / "my_data.py").unlink()
    del sys.modules["my_data"]
    _load.cache_clear()


def test_what_is_returned_is_dealt_and_learnt_as_the_dataset_that_it_is_made_of(folder: Path) -> None:
    for dataset, out in (("digits", "a"), ("my_data:same", "b")):
        assert main(["run", "--dataset", dataset, "--method", "fedavg", *FEW, "--out", out, "--json"]) == 0
    assert rows(folder / "a") == rows(folder / "b")


def test_a_run_that_is_over_is_looked_at_where_it_cannot_be_imported(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", "--dataset", "my_data:same", "--methods", "fedavg,scaffold", *FEW]
    assert main(words) == 0
    both = folder / "runs" / "compare-my_datasame"
    test = fedtct.load_dataset("digits").test
    np.savez("test.npz", x=test.x.numpy(), y=test.y.numpy())
    forget(folder)
    assert main(["compare", "--resume", str(both), "--json"]) == 0
    assert main(["report", str(both), "--out", "again.html"]) == 0
    assert "fedtct run --dataset my_data:same --split classes:2" in (folder / "again.html").read_text()
    run = str(both / "fedavg-classes2-seed0")
    assert main(["predict", run, "--input", "test.npz"]) == 0
    capsys.readouterr()
    assert main(["evaluate", run, "--input", "test.npz", "--json"]) == 0
    last = RunFolder.read(run).history[-1]
    assert json.loads(capsys.readouterr().out)["accuracy"] == pytest.approx(last.test_accuracy)


def test_a_run_that_was_stopped_goes_on_where_it_can_be_imported(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["run", "--dataset", "my_data:same", "--method", "fedavg", *FEW, "--json"]
    assert main([*run, "--out", "a"]) == 0
    for file in (folder / "a" / "model").iterdir():
        file.unlink()
    before = rows(folder / "a")
    assert main(["run", "--resume", "a", "--json"]) == 0
    assert rows(folder / "a") == before
    for file in (folder / "a" / "model").iterdir():
        file.unlink()
    forget(folder)
    capsys.readouterr()
    assert main(["run", "--resume", "a", "--json"]) == 2
    assert "there is no my_data:same to import" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nobody", "there is no my_data:nobody to import"),
        ("NAMES", "my_data:NAMES is not a function but tuple"),
        ("no_argument", "fails; it is called with one argument, the folder of datasets: TypeError"),
        ("no_dataset", "my_data:no_dataset must return a fedtct.Dataset, not tuple"),
        ("no_pair", r"train of my_data:no_pair must be fedtct.Samples\(x, y\), not ndarray"),
        ("lengths", r"train of my_data:lengths: x has shape \(20, 3\) for 7 labels"),
        ("shapes", r"training samples are \(3,\) of torch.float32, but test samples \(2,\) of torch.float32"),
        ("kinds", r"training samples are \(3,\) of torch.float32, but test samples \(3,\) of torch.uint8"),
        ("labels", "test of my_data:labels: y must hold whole numbers from 0 to 1"),
        ("numbers", "train of my_data:numbers: y must hold whole numbers from 0 to 1"),
        ("texts", "train of my_data:texts: y must hold whole numbers from 0 to 1"),
        ("names", "my_data:names has 2 classes, but 1 class_names"),
        ("classes", "num_classes of my_data:classes must be at least 2, it is 1"),
        ("missing", "train of my_data:missing: 20 of 20 samples hold NaN or infinite values"),
        ("files", "fails; it is called with one argument, the folder of datasets: FileNotFoundError"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
def test_what_is_wrong_with_it_is_said(name: str, told: str) -> None:
    with pytest.raises(FedtctError, match=told):
        fedtct.load_dataset(f"my_data:{name}")


def test_what_is_wrong_is_said_before_any_work(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--dataset", "my_data:lengths", "--out", "a"]) == 2
    assert "for 7 labels" in capsys.readouterr().err
    assert not (folder / "a").exists()
