"""CSV files do not say what is a text: what a value means must not depend on the rows that are beside it."""

import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedtct import FedAvg, Silo
from fedtct.cli import main
from fedtct.data.sources import Reading, read_samples
from fedtct.data.table_code import Column
from fedtct.errors import FedtctError
from fedtct.runs.saved import Saved

CODES, TRUTHS = ["01", "02", "X1"], ["TRUE", "FALSE", "unknown"]


def write(path: Path, **columns: object) -> Path:
    pd.DataFrame(columns).to_csv(path, index=False)
    return path


@pytest.mark.parametrize(
    ("here", "there", "classes"),
    [
        (["01", "02"], ["01", "X1"], ["01", "02", "X1"]),
        (["10", "12"], ["01", "10"], ["01", "10", "12"]),
        (["TRUE", "FALSE"], ["TRUE", "unknown"], ["False", "True", "unknown"]),
        (["true", "false"], ["TRUE", "False"], [False, True]),
        (["1", "2"], ["2", "10"], [1, 2, 10]),
    ],
)
def test_a_class_is_one_class_whatever_else_a_silo_has(here, there, classes, tmp_path):
    files = [write(tmp_path / f"{k}.csv", x=[0.5, 1.5], y=y) for k, y in enumerate((here, there))]
    model = FedAvg("linear", rounds=1).fit([Silo(*read_samples(file, Reading("y"))) for file in files]).model
    assert model.classes.tolist() == classes


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (["01067,1", "10115,2"], ["a"]),
        (["1,2", "10115,01"], ["b"]),
        (['"01067",01', ",2"], ["a", "b"]),
        (["0,1", "10,2"], []),
        (["0.5,1", "01.5,2"], []),  # no whole numbers
        (["-0,1", "X01,02"], ["b"]),
    ],
)
def test_numbers_that_begin_with_zeros_are_taken_for_numbers_but_not_silently(rows, told, tmp_path, recwarn):
    file = tmp_path / "a.csv"
    for mark in ",;":
        file.write_text("\n".join(["a,b,y", *(f"{row},ill" for row in rows)]).replace(",", mark) + "\n")
        read_samples(file, Reading("y", texts=told))
        read_samples(file, Reading("y", ignore=told))
        assert not recwarn
        read_samples(file, Reading("y"))
        said = [str(recwarn.pop().message) for _ in told]
        assert [re.match("column '(.)' has whole numbers that begin with 0", text)[1] for text in said] == told


def test_a_row_is_predicted_alike_whatever_rows_are_beside_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draws = np.random.default_rng(0)
    (tmp_path / "silos").mkdir()
    for silo in ("a", "b"):
        code, flag = draws.choice(CODES, 60), draws.choice(TRUTHS, 60)
        ill = np.where((code == "01") ^ (flag == "TRUE"), "ill", "well")
        write(tmp_path / "silos" / f"{silo}.csv", code=code, flag=flag, x=draws.normal(size=60), y=ill)
    alone = write(tmp_path / "alone.csv", code=["01", "02"], flag=["FALSE", "TRUE"], x=[0.5, 0.5], y=["ill", "well"])
    beside = write(tmp_path / "beside.csv", code=CODES, flag=["FALSE", "TRUE", "unknown"], x=[0.5] * 3, y=["ill"] * 3)
    options = "--data silos --target y --test alone.csv --rounds 1 --local-epochs 1 --d 30 --out run --json"
    assert main(["run", *options.split()]) == 0
    saved = Saved.load(tmp_path / "run")
    expected = saved.model.scores(saved.inputs(beside))[:2]
    assert np.allclose(saved.model.scores(saved.inputs(alone)), expected)
    assert np.allclose(saved.model.scores(saved.samples(alone)[0]), expected)
    tested = saved.run.history[-1].test_loss
    assert tested == pytest.approx(saved.model.spec.task.squared_score(expected, labels(saved, alone)).mean_loss)
    guessed = pd.read_csv(alone)  # as a program that knows nothing of it has it
    assert [guessed[name].dtype.kind for name in ("code", "flag")] == ["i", "b"]
    assert np.allclose(saved.model.scores(guessed), expected)


def labels(saved: Saved, file: Path):
    return saved.model.spec.task.encode(saved.samples(file)[1], 2, "the file")


def test_a_category_is_one_category_in_a_large_file(tmp_path):
    code = np.array(["1", "2"] * 150_000, object)
    code[5], code[-1] = "", "X"  # in one part of it there are numbers and a missing one, in another texts
    file = write(tmp_path / "large.csv", code=code, y=["a", "b"] * 150_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x, _ = read_samples(file, Reading("y"))
    assert set(x["code"].dropna()) == {"1", "2", "X"}


def test_decimal_commas_are_no_numbers_in_a_column_of_texts(tmp_path):
    (tmp_path / "a.csv").write_text("size;y\n3,5;a\n4,5;b\n")
    assert read_samples(tmp_path / "a.csv", Reading("y"))[0]["size"].tolist() == [3.5, 4.5]
    assert read_samples(tmp_path / "a.csv", Reading("y", texts=["size"]))[0]["size"].tolist() == ["3,5", "4,5"]


@pytest.mark.parametrize(
    ("categories", "value", "found"),
    [
        (("1", "01"), 1.0, "1"),
        (("01", "001"), 1.0, None),
        (("01", "X"), 1.0, "01"),
        (("1.0", "X"), 1.0, "1.0"),
        (("False", "True", "X"), 0.0, "False"),
        (("False", "True", "0"), 0.0, "0"),
        (("X", "nan"), 1.0, None),
        (("1E2", "X"), 100.0, None),
    ],
)
def test_a_number_stands_for_the_only_category_that_it_may_be(categories, value, found):
    code = Column("code", categories=categories).encode(np.array([value]), "the file")
    assert code.tolist() == [[float(category == found) for category in categories]]


@pytest.mark.parametrize(
    ("category", "text", "same"),
    [
        ("01", "1", True),
        ("1", "1.0", True),
        ("True", "1", True),
        ("1E2", "100", False),
        ("100", "1E2", False),
        ("100", "1_00", False),
        ("inf", "Infinity", False),
        ("12345678901234567890", "12345678901234567891", False),
    ],
)
@pytest.mark.filterwarnings("ignore:.*which no silo had in training")
def test_a_text_stands_for_a_category_only_if_both_are_plainly_the_same_number(category, text, same):
    code = Column("code", categories=(category, "X")).encode(np.array([text, category], object), "the file")
    assert code.tolist() == [[float(same), 0], [1, 0]]


def test_blanks_around_a_text_make_no_other_text(tmp_path):
    (tmp_path / "a.csv").write_text("code,y\np ,a\n p, a\n  ,b \nTRUE ,b\n")
    x, y = read_samples(tmp_path / "a.csv", Reading("y"))
    assert x["code"].isna().tolist() == [False, False, True, False]
    assert (x["code"].dropna().tolist(), list(y)) == (["p", "p", "True"], ["a", "a", "b", "b"])


def silos(*files: Path, **how: object) -> list[Silo]:
    return [Silo(*read_samples(file, Reading("y", **how)), name=file.stem) for file in files]


def test_codes_that_are_numbers_in_some_silos_are_texts_if_that_is_said(tmp_path):
    """However they are written: with letters among them, in Parquet, or by pandas where some are missing."""
    north = write(tmp_path / "north.csv", code=["1", "2", "3A"], x=[0.5, 1.5, 1], y=["a", "b", "a"])
    south = write(tmp_path / "south.csv", code=[1, 2, None], x=[0.5, 1.5, 1], y=["a", "b", "a"])
    pd.DataFrame({"code": [3, 1], "x": [0.5, 1.5], "y": ["a", "b"]}).to_parquet(tmp_path / "west.parquet")
    files = (north, south, tmp_path / "west.parquet")
    assert "1.0" in south.read_text()
    with pytest.raises(FedtctError, match=r"numbers in south, west and texts in north: .* list it in texts"):
        FedAvg("linear", rounds=1).fit(silos(*files))
    model = FedAvg("linear", rounds=1).fit(silos(*files, texts=["code"])).model
    code = model.spec.inputs.table.columns[0]
    assert (code.categories, code.missing) == (("1", "2", "3", "3A"), True)
    same = [pd.DataFrame({"code": values, "x": [0.5, 0.5]}) for values in (["1", "3"], [1, 3], ["1.0", "3.0"])]
    assert all(np.array_equal(model.scores(one), model.scores(same[0])) for one in same[1:])


def test_what_kept_decimal_commas_from_being_read_is_named(tmp_path):
    rows = [f"{place},5;x" for place in range(40)] + ["Sensor4711;x"]
    (tmp_path / "a.csv").write_text("\n".join(["temp;y", *rows]))
    with pytest.raises(FedtctError, match=r"'temp' holds numbers, but not in 1 of 41 rows: .* Found: Sensor4711$"):
        read_samples(tmp_path / "a.csv", Reading("y"))


def test_columns_to_ignore_are_as_if_they_were_not_there(tmp_path):
    columns = {"x": [0.5, 1.5, 2.5], "y": ["a", "b", "a"]}
    plain = [write(tmp_path / f"{name}.csv", **columns) for name in ("a", "b")]
    more = [write(tmp_path / "c.csv", **columns, id=[7, 8, 9], seen=["n", "m", "k"]), plain[1]]
    with pytest.raises(FedtctError, match=r"'id', 'seen' are in c and not in b: .* list it in ignore"):
        FedAvg("linear", rounds=1).fit(silos(*more))
    with pytest.warns(UserWarning, match=r"b\.csv has no column 'seen' to ignore"):
        fits = [
            FedAvg("linear", rounds=1).fit(silos(*files, ignore=how))
            for files, how in ((plain, ()), (more, ("id", "seen")))
        ]
    assert (
        fits[0].model.scores(read_samples(plain[0], Reading("y"))[0]).tolist()
        == fits[1].model.scores(pd.read_csv(more[0])).tolist()
    )


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"texts": ["cod"]}, "a.csv has no column 'cod', which texts lists. It has code, x, y"),
        ({"ignore": ["y"]}, "'y' is the target: remove it from ignore"),
        ({"ignore": ["x"], "texts": ["x"]}, "'x' is in texts and in ignore"),
    ],
)
def test_columns_that_cannot_be_told_about(how, told, tmp_path):
    file = write(tmp_path / "a.csv", code=[1, 2], x=[0.5, 1.5], y=["a", "b"])
    with pytest.raises(FedtctError, match=re.escape(told)):
        read_samples(file, Reading("y", **how))


INCOMES = [f"{n}.5" for n in range(30)]


@pytest.mark.parametrize("slip", ["?", "1 234.5", "1'234", "1\u202f234,5", "n/k"])
def test_numbers_that_were_meant_never_leave_a_silo_as_texts(slip, tmp_path):
    """A slip makes texts of a whole column, and what texts there are is told to everybody."""
    file = write(tmp_path / "a.csv", income=[*INCOMES, slip], y=["a", "b"] * 15 + ["a"])
    with pytest.raises(
        FedtctError, match=r"column 'income' holds numbers, but not in 1 of 31 rows: .*, list"
    ) as refused:
        read_samples(file, Reading("y"))
    assert str(refused.value).endswith(f": {slip}")
    assert slip not in refused.value.shareable
    assert slip in set(read_samples(file, Reading("y", texts=["income"]))[0]["income"])


def test_a_column_of_texts_that_is_empty_in_a_file_holds_missing_values(tmp_path):
    full = write(tmp_path / "full.csv", code=["1", "2", "X"], x=[0.5, 1.5, 1], y=["a", "b", "a"])
    empty = write(tmp_path / "empty.csv", code=[None, None], x=[0.5, 1.5], y=["a", "b"])
    model = FedAvg("linear", rounds=1).fit(silos(full, empty, texts=["code"])).model
    assert np.isfinite(model.scores(read_samples(empty, Reading("y", texts=["code"]))[0])).all()


@pytest.mark.parametrize("form", ["{}%", "{} kg", "€ {}", "{} mg/dl", "{},5 °C"])
def test_numbers_with_a_unit_are_refused_unless_they_are_codes(form, tmp_path):
    values = [form.format(k) for k in range(30)]
    file = write(tmp_path / "a.csv", x=values, y=["ill", "well"] * 15)
    with pytest.raises(FedtctError, match="holds numbers with a unit: write only the numbers") as refused:
        read_samples(file, Reading("y"))
    assert values[0] not in refused.value.shareable
    assert read_samples(file, Reading("y", texts=["x"]))[0]["x"].tolist() == values


@pytest.mark.parametrize(
    "values",
    [
        [f"{k}{unit}" for k in range(15) for unit in "ab"],  # flats
        ["7 kg", "8 kg", "9 kg"] * 10,
        [f"ward {k}" for k in range(30)],
        [f"{k}" for k in range(15)] + [f"{k} kg" for k in range(15)],
        [f"2024-01-{k:02}" for k in range(1, 31)],
    ],
)
def test_codes_with_letters_are_texts(values, tmp_path):
    file = write(tmp_path / "a.csv", x=values, y=["ill", "well"] * 15)
    assert read_samples(file, Reading("y"))[0]["x"].tolist() == values


@pytest.mark.parametrize(("marks", "refused"), [(1, True), (10, True), (11, False)])
def test_marks_among_numbers_are_refused_up_to_a_quarter_of_the_rows(marks, refused, tmp_path):
    values = ["<5"] * marks + [str(k) for k in range(40 - marks)]
    file = write(tmp_path / "a.csv", x=values, y=["ill", "well"] * 20)
    if refused:
        with pytest.raises(FedtctError, match=f"holds numbers, but not in {marks} of 40 rows"):
            read_samples(file, Reading("y"))
    else:
        assert read_samples(file, Reading("y"))[0]["x"].tolist() == values
