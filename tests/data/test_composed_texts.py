"""Texts that look the same are the same: an ö may be one letter, or an o and two dots, as Macs write file names."""

import unicodedata

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fedtct import Classifier, FedAvg, FedtctError, Silo
from fedtct.agreement import agree
from fedtct.data.sources import Reading, read_inputs, read_samples

FORMS = ("NFC", "NFD")


def as_in(form, text):
    return unicodedata.normalize(form, text)


def table(form, rows=8):
    """A table of numbers and texts, and its classes, all with letters that have two forms."""
    columns = {"größe": [*range(rows)], "wärd": ["süd", "nörd"] * (rows // 2), "krank": ["jä", "né"] * (rows // 2)}
    frame = pd.DataFrame(columns).rename(columns=lambda name: as_in(form, name))
    texts = [as_in(form, name) for name in ("wärd", "krank")]
    return frame.assign(**{name: frame[name].map(lambda text: as_in(form, text)) for name in texts})


def save(frame, path):
    return frame.to_parquet(path) if path.suffix == ".parquet" else frame.to_csv(path, index=False)


def agreed(silos):
    found = agree([silo.describe() for silo in silos], None)
    assert found.task.names == ("jä", "né")
    assert found.inputs.table.names == ["größe", "wärd"]
    assert found.inputs.table.columns[1].categories == ("nörd", "süd")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("asked", FORMS)
def test_files_and_options_of_both_forms_go_together(kind, asked, tmp_path, recwarn):
    silos, target, ward = [], as_in(asked, "krank"), as_in(asked, "wärd")
    for form in FORMS:
        path = tmp_path / f"{form}.{kind}"
        save(table(form).assign(**{as_in(form, "näme"): 1}), path)
        x, y = read_samples(path, Reading(target, texts=[ward], ignore=[as_in(asked, "näme")]))
        silos.append(Silo(x, y))
    agreed(silos)
    assert not [w for w in recwarn if "to ignore" in str(w.message)]
    x, y = read_samples(path, Reading(as_in(asked, "größe"), "regression"), only=[ward])
    assert list(x.columns) == ["wärd"]
    assert y.tolist() == [*range(8)]


def test_codes_and_targets_are_found_by_names_of_either_form(tmp_path):
    names = [as_in("NFD", name) for name in ("größe", "wärd", "fäll")]
    (tmp_path / "a.csv").write_text(f"{','.join(names)}\n1,01,01\n2,02,02\n", encoding="utf-8")
    x, y = read_samples(tmp_path / "a.csv", Reading("fäll", texts=["wärd"]))
    assert x["wärd"].tolist() == y.tolist() == ["01", "02"]
    assert read_inputs(tmp_path / "a.csv", texts=["wärd"])["wärd"].tolist() == ["01", "02"]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_that_is_there_in_both_forms_is_refused(kind, tmp_path):
    both = pd.DataFrame({as_in(form, "wärd"): [1, 2] for form in FORMS})
    save(both.assign(y=["a", "b"]), tmp_path / f"a.{kind}")
    for target in ("wärd", "y"):
        with pytest.raises(FedtctError, match="several columns called 'wärd'"):
            read_samples(tmp_path / f"a.{kind}", Reading(target))


def test_classes_of_folders(tmp_path):
    for form in FORMS:
        folder = tmp_path / as_in(form, "ödem")
        folder.mkdir(exist_ok=True)
        Image.new("L", (4, 4)).save(folder / f"{form}.png")
    assert read_samples(tmp_path, Reading())[1].tolist() == ["ödem"] * 2


def test_classes_of_arrays(tmp_path):
    y = np.array([as_in(form, "ödem") for form in FORMS])
    np.savez(tmp_path / "a.npz", x=np.ones((2, 3)), y=y)
    for task in ("auto", "classification"):
        assert Silo(*read_samples(tmp_path / "a.npz", Reading(task=task))).y.tolist() == ["ödem"] * 2


def test_python_and_predictions(tmp_path):
    nfc, nfd = map(table, FORMS)
    krank = as_in("NFD", "krank")
    silos = [Silo(nfc.drop(columns="krank"), nfc["krank"]), Silo(nfd.drop(columns=krank), nfd[krank].tolist())]
    agreed(silos)
    model = FedAvg("linear", rounds=1).fit(silos).model
    assert (model.scores(nfc) == model.scores(nfd)).all()
    assert model.score(nfc, nfc["krank"]) == model.score(nfd, nfd[krank])
    model.save(tmp_path)
    assert (Classifier.load(tmp_path).scores(nfd) == model.scores(nfc)).all()
