"""fedtct predict and evaluate on a table with a rare class: who is who, and what accuracy does not tell."""

import io
import itertools
import json

import numpy as np
import pandas as pd
import pytest

from fedtct.cli import main
from fedtct.data.sources import read_inputs
from fedtct.runs.predictions import row_names


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two silos, one in twenty ill, and more patients, whose numbers begin with zeros."""
    folder, draws = tmp_path_factory.mktemp("rare"), np.random.default_rng(0)
    (folder / "silos").mkdir()
    for name in ("silos/north", "silos/south", "more"):
        ill = draws.random(200) < 0.05
        table = {
            "id": [f"{place:05d}" for place in range(200)],
            "age": draws.normal(50 + 15 * ill, 10).round(1),
            "ward": draws.choice(["a", "b"], 200),
            "state": np.where(ill, "ill", "well"),
        }
        pd.DataFrame(table).to_csv(folder / f"{name}.csv", index=False)
    words = f"--data {folder}/silos --target state --ignore id --rounds 2 --d 8 --out {folder}/run".split()
    assert main(["run", *words]) == 0
    return folder


def predictions(folder, capsys, *words):
    capsys.readouterr()
    assert main(["predict", str(folder / "run"), "--input", str(folder / "more.csv"), *words]) == 0
    out = capsys.readouterr().out.splitlines()
    return [line.split(",") for line in out]


def test_kept_columns_stand_before_predictions_as_they_are_written(folder, capsys):
    plain, kept = predictions(folder, capsys), predictions(folder, capsys, "--keep", "id, age")
    assert kept[0] == ["id", "age", *plain[0]]
    assert [row[2:] for row in kept] == plain
    assert [row[0] for row in kept[1:]] == [f"{place:05d}" for place in range(200)]
    assert [float(row[1]) for row in kept[1:]] == pd.read_csv(folder / "more.csv")["age"].tolist()


def test_no_value_that_is_kept_is_another_than_in_the_file(folder, capsys):
    given = pd.read_csv(folder / "more.csv", dtype=str)[:4]
    given["told"], given["share"] = ["NA", "TRUE", "", " x"], ["1.0", "2.0", "007", "1e3"]
    given["age"] = ["50.0", "NA", "", "60"]
    given[" id "] = ["98765432109876543210", "null", '"', "1,5"]
    given.drop(columns="id").to_csv(folder / "odd.csv", index=False)
    words = ["predict", str(folder / "run"), "--input", str(folder / "odd.csv")]
    assert main([*words, "--keep", "id,share,told,age"]) == 0
    found = pd.read_csv(io.StringIO(capsys.readouterr().out), dtype=str, keep_default_na=False)
    kept = given.rename(columns=str.strip)[["share", "told", "age"]].assign(id=given[" id "])
    pd.testing.assert_frame_equal(found[list(kept)], kept)


def test_what_is_kept_of_a_parquet_file_is_what_is_in_it(folder, capsys):
    given = pd.read_csv(folder / "more.csv")[:3].set_index("ward")
    given["id"], given["share"] = pd.array([98765432109876543, None, 3], "Int64"), [1.0, 0.25, None]
    given["told"] = [True, False, True]
    given.to_parquet(folder / "odd.parquet")
    words = ["predict", str(folder / "run"), "--input", str(folder / "odd.parquet"), "--keep", "id,share,told,ward"]
    assert main(words) == 0
    rows = [line.split(",")[:3] for line in capsys.readouterr().out.splitlines()[1:]]
    assert rows == [["98765432109876543", "1.0", "True"], ["", "0.25", "False"], ["3", "", "True"]]


def test_columns_of_an_array_are_kept_by_their_places(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.array([[1.5, 2], [3, 4]]))
    kept = row_names(read_inputs(tmp_path / "x.npz"), tmp_path / "x.npz", ["x1"])
    assert kept.to_csv(index=False).split() == ["x1", "2.0", "4.0"]


def test_columns_to_keep_that_are_not_there_are_refused(folder, capsys):
    assert main(["predict", str(folder / "run"), "--input", str(folder / "more.csv"), "--keep", "id,name,bed"]) == 2
    assert "more.csv has no column 'name', 'bed' to keep. It has id, age, ward, state" in capsys.readouterr().err
    np.savez(folder / "x.npz", x=np.zeros((2, 1, 2)))
    assert main(["predict", str(folder / "run"), "--input", str(folder / "x.npz"), "--keep", "id"]) == 2
    assert "x.npz is not a table, so it has no columns to keep" in capsys.readouterr().err


def test_a_column_that_is_kept_does_not_take_the_name_of_a_prediction(folder, capsys):
    given = pd.read_csv(folder / "more.csv").rename(columns={"id": "label"})
    given.to_csv(folder / "renamed.csv", index=False)
    words = ["predict", str(folder / "run"), "--input", str(folder / "renamed.csv"), "--keep", "label"]
    assert main(words) == 0
    found = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert found["label_kept"].tolist() == given["label"].tolist()
    assert set(found["label"]) <= {"ill", "well"}


def test_the_auc_is_the_share_of_pairs_that_are_in_order(folder, capsys):
    (_, *rows), truth = predictions(folder, capsys), pd.read_csv(folder / "more.csv")["state"]
    of_ill = np.array([float(row[1]) for row in rows])
    pairs = itertools.product(of_ill[truth == "ill"], of_ill[truth == "well"])
    expected = np.mean([(one > other) + 0.5 * (one == other) for one, other in pairs])
    capsys.readouterr()
    words = ["evaluate", str(folder / "run"), "--input", str(folder / "more.csv")]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["classes"]
    assert found["ill"]["auc"] == pytest.approx(expected, abs=1e-5)
    assert 0.5 < expected < 1
    assert main(words) == 0
    assert f"{found['well']['auc']:.3f}" in capsys.readouterr().out


def test_without_a_sample_of_the_class_there_is_no_auc(folder, capsys):
    table = pd.read_csv(folder / "more.csv")
    table[table["state"] == "well"].to_csv(folder / "well.csv", index=False)
    assert main(["evaluate", str(folder / "run"), "--input", str(folder / "well.csv")]) == 0
    (line,) = (line.split() for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["ill"])
    assert line[-1] == "-"
