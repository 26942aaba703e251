"""Silos' own files: the same table gives the same samples whatever it is kept in, and what is wrong is said."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtct import FedAvg, FedtctError, Silo
from fedtct.data.sources import Reading, read_inputs, read_samples, silo_paths
from fedtct.data.table_files import read_table
from fedtct.errors import listing

values = st.floats(-1e100, 1e100) | st.none()


@settings(max_examples=25)
@given(st.lists(st.tuples(values, st.sampled_from(["a", "b c", 'q"', "ü"])), min_size=2, max_size=12), st.data())
def test_csv_and_parquet_hold_the_same_samples(tmp_path_factory, rows, data):
    folder = tmp_path_factory.mktemp("silo")
    table = pd.DataFrame(rows, columns=["number", "text"]).astype({"number": float})
    table["class"] = data.draw(st.lists(st.sampled_from(["no", "yes"]), min_size=len(rows), max_size=len(rows)))
    table.to_csv(folder / "a.csv", index=False)
    table.to_csv(folder / "b.csv", index=False, sep=";")
    table.to_csv(folder / "c.csv", index=False, sep=";", decimal=",", encoding="utf-8-sig", lineterminator="\r\n")
    table.to_parquet(folder / "d.parquet")
    silos = [Silo(*read_samples(folder / name, Reading("class"))) for name in ("a.csv", "b.csv", "c.csv", "d.parquet")]
    for silo in silos:
        pd.testing.assert_frame_equal(silo.x, silos[0].x)
        assert silo.y.tolist() == table["class"].tolist()
        assert silo.describe()["columns"] == silos[0].describe()["columns"]


@pytest.mark.parametrize("index", [["age"], ["age", "ward"], ["class"]])
def test_the_index_of_a_parquet_file_is_columns_if_it_has_names(index, tmp_path):
    """As it is in a CSV file."""
    table = pd.DataFrame({"age": [50, 60, 70], "ward": ["n", "s", "n"], "class": ["a", "b", "a"]}).set_index(index)
    table.to_csv(tmp_path / "a.csv")
    table.to_parquet(tmp_path / "a.parquet")
    (x, y), (same, answers) = (read_samples(tmp_path / name, Reading("class")) for name in ("a.csv", "a.parquet"))
    pd.testing.assert_frame_equal(x, same, check_dtype=False)
    assert y.tolist() == answers.tolist()


def test_the_index_of_a_parquet_file_adds_nothing_where_it_has_no_name_or_a_columns(tmp_path):
    table = pd.DataFrame({"age": [50, 60, 70], "class": ["a", "b", "a"]}, index=[7, 8, 9])
    table.to_parquet(tmp_path / "a.parquet")
    table.set_index("age", drop=False).to_parquet(tmp_path / "b.parquet")
    assert [list(read_table(tmp_path / f"{name}.parquet")) for name in "ab"] == [["age", "class"]] * 2


@pytest.mark.parametrize("places", [0, 2])
@pytest.mark.parametrize("target", ["class", "number"])
def test_exact_decimals_are_the_numbers_that_a_csv_file_has(places, target, tmp_path):
    numbers = [f"{n / 10**places:.{places}f}" for n in (1250, 325, 1250, 0)]
    table = pd.DataFrame({"number": numbers, "other": numbers, "class": ["a", "b", "a", "b"]})
    table.to_csv(tmp_path / "a.csv", index=False)
    exact = {name: [Decimal(number) for number in numbers] for name in ("number", "other")}
    table.assign(**exact).to_parquet(tmp_path / "b.parquet")
    one, other = (Silo(*read_samples(tmp_path / name, Reading(target))).describe() for name in ("a.csv", "b.parquet"))
    assert str(one) == str(other)


def test_csv_parquet_and_npz_of_a_table_give_the_same_model(tmp_path):
    draws = np.random.default_rng(0)
    x, y = draws.normal(5, 3, (60, 4)), draws.integers(0, 3, 60)
    x[draws.random(x.shape) < 0.1] = np.nan
    models = []
    for kind in ("csv", "parquet", "npz"):
        folder = tmp_path / kind
        folder.mkdir()
        for name, rows in {"a": slice(0, 40), "b": slice(40, 60)}.items():
            table = pd.DataFrame(x[rows], columns=[f"x{i}" for i in range(4)]).assign(y=y[rows])
            if kind == "csv":
                table.to_csv(folder / f"{name}.csv", index=False)
            elif kind == "parquet":
                table.to_parquet(folder / f"{name}.parquet")
            else:
                np.savez(folder / f"{name}.npz", x=x[rows], y=y[rows])
        silos = [Silo(*read_samples(path, Reading("y")), name=name) for name, path in silo_paths(folder).items()]
        models.append(FedAvg("mlp", rounds=2, local_epochs=1).fit(silos).model)
    scores = [model.scores(read_inputs(tmp_path / "csv" / "a.csv")) for model in models]
    assert torch.equal(scores[0], scores[1])
    assert torch.equal(scores[0], scores[2])


def test_dots_between_thousands_are_no_decimal_points(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("turnover;rate;size\n1.234;3,89;small\n999;4,1;small\n4.100;2,5;large\n")
    with pytest.raises(FedtctError, match=r"column 'turnover' has dots between thousands"):
        read_table(file)
    file.write_text("turnover;rate;size\n1.25;3,89;small\n999;4,1;small\n4.1;2,5;large\n")  # of two hands
    assert read_table(file)["turnover"].tolist() == [1.25, 999, 4.1]
    file.write_text("share;size\n1.234;small\n0.125;large\n")
    assert read_table(file)["share"].tolist() == [1.234, 0.125]


def test_an_empty_first_line_hides_no_separator(tmp_path):
    (tmp_path / "a.csv").write_text("\n\na,b\n1,2\n")
    assert read_table(tmp_path / "a.csv").to_dict("list") == {"a": [1], "b": [2]}


@pytest.mark.parametrize("mark", [";", "|", "\t", ","])
@pytest.mark.parametrize("first", ["sep={}\n", "\ufeffSEP={}\r\n", '"sep={}"\n'])
def test_a_first_line_that_tells_excel_the_separator_is_none_of_the_table(first, mark, tmp_path):
    rows = "size;price, in €;y\n01;1,5;a\n02;2,5;b\n" if mark == ";" else f"size{mark}y\n01{mark}1\n02{mark}02\n"
    (tmp_path / "plain.csv").write_text(rows, encoding="utf-8")
    (tmp_path / "told.csv").write_text(first.format(mark) + rows, encoding="utf-8", newline="")
    (x, y), (same, answers) = (read_samples(tmp_path / f"{name}.csv", Reading("y")) for name in ("plain", "told"))
    pd.testing.assert_frame_equal(x, same)
    assert y.tolist() == answers.tolist()


def test_the_separator_that_is_told_is_the_one_however_many_others_are_in_names(tmp_path):
    (tmp_path / "a.csv").write_text("sep=;\nsize, in m, and m;y\n1;a\n2;b\n")
    assert list(read_table(tmp_path / "a.csv")) == ["size, in m, and m", "y"]


def test_decimal_commas_are_never_taken_for_categories(tmp_path):
    (tmp_path / "a.csv").write_text("Größe, cm;Gewicht, kg;Code;dose\n170,5;60;1,2;0,5\n181;;x;1,5E-03\n")
    x, y = read_samples(tmp_path / "a.csv", Reading("dose"))
    assert x["Größe, cm"].tolist() == [170.5, 181]
    assert x["Code"].tolist() == ["1,2", "x"]
    assert y.tolist() == [0.5, 0.0015]  # a regression


@pytest.mark.parametrize("sizes", [('"170,5"', "181"), ('"1,234.5"', "181.25"), ("1.234", '"1.234.567,5"')])
def test_numbers_that_are_not_read_as_such_are_refused(tmp_path, sizes):
    (tmp_path / "a.csv").write_text('size,"a;b;c",y\n{},1,2\n{},3,4\n'.format(*sizes))
    with pytest.raises(FedtctError, match="column 'size' holds numbers with commas as texts"):
        read_samples(tmp_path / "a.csv", Reading("y"))
    with pytest.raises(FedtctError, match="silo 0: column 'size' holds numbers with commas as texts"):
        FedAvg("mlp", rounds=1).fit([Silo(pd.read_csv(tmp_path / "a.csv").drop(columns="y"), [0, 1])])
    with pytest.raises(FedtctError, match="column 'size' holds numbers with commas as texts"):
        read_samples(tmp_path / "a.csv", Reading("size"))
    _, names = read_samples(tmp_path / "a.csv", Reading("size", "classification"))
    assert names.tolist() == [size.strip('"') for size in sizes]


def test_rows_of_nothing_but_separators_at_the_end_are_no_samples(tmp_path):
    plain, left = tmp_path / "plain.csv", tmp_path / "left.csv"
    plain.write_text("age,ill\n30,01\n,02\n")
    left.write_text("age,ill\n30,01\n,02\n,\n,\n")
    for task in ("classification", "auto"):
        (x, y), (same_x, same_y) = (read_samples(path, Reading("ill", task)) for path in (plain, left))
        assert same_x.equals(x)
        assert same_y.tolist() == y.tolist() == ["01", "02"]
    between = tmp_path / "between.csv"
    between.write_text("age,ill\n30,01\n,\n31,02\n")
    with pytest.raises(FedtctError, match="1 of 3 rows have no 'ill'"):
        read_samples(between, Reading("ill"))


def test_row_numbers_that_pandas_wrote_are_not_learnt_from(tmp_path):
    table = pd.DataFrame({"a": [1.5, 2.5], "b": ["x", "y"], "y": ["no", "yes"]})
    table.to_csv(tmp_path / "with.csv")
    table.to_csv(tmp_path / "without.csv", index=False)
    (with_numbers, _), (without, _) = (
        read_samples(tmp_path / f"{name}.csv", Reading("y")) for name in ("with", "without")
    )
    pd.testing.assert_frame_equal(with_numbers, without)


@pytest.mark.parametrize("row", ["49.5,ill,1,", "49,5,ill,1", "1,2,49.5,ill,1"])
def test_columns_are_not_moved_under_other_names(tmp_path, row):
    (tmp_path / "a.csv").write_text(f"age,diagnosis,ward\n{row}\n{row}\n")
    with pytest.raises(FedtctError, match="rows have more fields than the first line has names: name every column"):
        read_samples(tmp_path / "a.csv", Reading("diagnosis"))


def test_a_target_that_is_there_twice_is_not_learnt_from(tmp_path):
    (tmp_path / "a.csv").write_text('age,"y",,,y\n50,1,,,1\n60,0,,,0\n')
    with pytest.raises(FedtctError, match="there are several columns called 'y': rename or drop all but one"):
        read_samples(tmp_path / "a.csv", Reading("y"))
    (tmp_path / "b.csv").write_text("age,y,y.1,,\n50,1,2,,\n60,0,3,,\n")
    assert read_samples(tmp_path / "b.csv", Reading("y"))[0]["y.1"].tolist() == [2, 3]


def test_a_file_that_is_no_silo_is_not_passed_over_in_silence(tmp_path):
    (tmp_path / "north.csv").write_text("a,y\n1,2\n")
    (tmp_path / "south.xlsx").write_text("")
    with pytest.warns(UserWarning, match=r"south\.xlsx is left out: it is not an"):
        assert list(silo_paths(tmp_path)) == ["north"]


def test_many_files_that_are_no_silos_are_told_of_in_one_line(tmp_path):
    for name in range(9):
        (tmp_path / f"scan-{name}.png").write_text("")
    some = r"scan-0\.png, scan-1\.png, scan-2\.png and 6 more"
    with pytest.raises(FedtctError, match=f"holds no silos: .* it has {some}$"):
        silo_paths(tmp_path)
    (tmp_path / "north.csv").write_text("a,y\n1,2\n")
    with pytest.warns(UserWarning, match=f"{some} are left out: none is an") as warned:
        assert list(silo_paths(tmp_path)) == ["north"]
    assert len(warned) == 1


def column(values, task="auto", folder=None):
    pd.DataFrame({"x": range(len(values)), "y": values}).to_csv(folder / "t.csv", index=False)
    return read_samples(folder / "t.csv", Reading("y", task))[1].tolist()


def test_what_a_target_column_means(tmp_path):
    assert column([3, 1, 3], folder=tmp_path) == ["3", "1", "3"]
    assert column(["b", "a"], folder=tmp_path) == ["b", "a"]
    assert column([True, False], folder=tmp_path) == ["True", "False"]
    assert column([1.5, 2.0], folder=tmp_path) == [1.5, 2.0]
    assert column([3, 1], "regression", tmp_path) == [3.0, 1.0]
    assert column([3.0, 1.0], "classification", tmp_path) == ["3", "1"]
    for values, task, message in [
        (range(200), "auto", "200 different whole numbers: say whether"),
        ([1.5, 2.0], "classification", "not whole"),
        (["a", "b"], "regression", "a regression needs numbers"),
        ([1, None], "auto", "1 of 2 rows have no 'y'"),
    ]:
        with pytest.raises(FedtctError, match=message):
            column(values, task, tmp_path)


@pytest.mark.parametrize(
    ("different", "task", "warns"),
    [(60, "auto", True), (20, "auto", False), (60, "classification", False), (60, "regression", False)],
)
def test_a_column_of_many_whole_numbers_is_not_taken_as_classes_silently(different, task, warns, tmp_path, recwarn):
    """Ages in years, say; and in the same words for files with more of them or fewer, so that it is said once."""
    ages = [18 + place % different for place in range(500)]
    assert len(set(column(ages, task, tmp_path))) == different
    column(ages[: len(ages) // 2], task, tmp_path)
    said = {str(w.message) for w in recwarn if "different whole numbers" in str(w.message)}
    assert [("column 'y'" in text, "task = regression" in text) for text in said] == [(True, True)] * warns


def test_what_cannot_be_read(tmp_path):
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "header.csv").write_text("a,b\n")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x80")
    (tmp_path / "text.parquet").write_text("hello")
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    (tmp_path / "long.csv").write_text("a,b\n1,2\n1,2,3\n")
    np.savez(tmp_path / "objects.npz", x=np.ones((2, 1)), y=np.array(["ill", "well"], object))
    np.savez(tmp_path / "names.npz", X=np.ones((2, 1)), Y=np.arange(2))
    (tmp_path / "commas.csv").write_text('"a, b",c\n1,2\n')
    (tmp_path / "a.xlsx").write_text("a,b\n1,2\n")
    for name, target, message in [
        ("empty.csv", "b", r"cannot be read as a table: it is empty\Z"),
        ("header.csv", "b", "without rows"),
        ("long.csv", "b", r"cannot be read as a table: .* saw 3\Z"),
        ("objects.npz", "", r"plain arrays, not Python objects: save texts with astype\(str\)"),
        ("names.npz", "", "must hold the arrays x and y. It has X, Y$"),
        ("binary.csv", "b", "cannot be read as a table"),
        ("text.parquet", "b", "cannot be read as a table"),
        ("none.csv", "b", "cannot read .*none.csv: No such file"),
        ("a.csv", "", "set target .--target. to the column to learn, one of a, b"),
        ("a.csv", "c", "has no column 'c'. It has a, b"),
        ("commas.csv", "a", "has no column 'a'. It has a, b; c$"),
        ("a.xlsx", "b", r"is not an \.npz, \.csv or \.parquet file"),
        ("none.npz", "", "cannot read .*none.npz: No such file"),
    ]:
        with pytest.raises(FedtctError, match=message):
            read_samples(tmp_path / name, Reading(target))
    with pytest.raises(FedtctError, match="there is no folder"):
        silo_paths(tmp_path / "nowhere")
    (tmp_path / "a.npz").write_text("")
    with pytest.raises(FedtctError, match="silos of the same name"):
        silo_paths(tmp_path)
    (tmp_path / "nothing").mkdir()
    (tmp_path / "nothing" / "readme.txt").write_text("")
    with pytest.raises(FedtctError, match="holds no silos"):
        silo_paths(tmp_path / "nothing")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_nul_byte_is_no_part_of_a_category(end, tmp_path):
    (tmp_path / "a.csv").write_bytes(end.join(["sex,y", "f,1", "m\0,0", "f,1", ""]).encode())
    with pytest.raises(FedtctError, match=r"a\.csv is damaged or not UTF-8 text: line 3 has a NUL byte"):
        read_table(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a,b,y\n1,2,3\n1,2\n1,2,3\n1", [3, 5]),
        ("a,b,y\r1,2,3\r1,2\r", [3]),
        ('a,b,y\n1,"2\n2",3\n\n1,2\n', [5]),
        ("sep=;\na;b;y\n1;2,5;3\n1;2,5\n", [4]),
        ("a,b,y,,\n1,2,3\n1,2,\n", []),  # only nameless columns are lacking
        ("a,b,y\n1,2,3\n1,,\n \n,\n", []),  # nothing is in the last rows
    ],
)
def test_rows_that_end_too_early_are_told_of(text, lines, tmp_path, recwarn):
    (tmp_path / "a.csv").write_bytes(text.encode())
    read_table(tmp_path / "a.csv")
    said = [str(w.message) for w in recwarn]
    assert [f"too few fields in line {listing(lines)}, and" in text for text in said] == [True] * bool(lines)


def test_folders_keep_all_of_their_names(tmp_path):
    for name in ("st.john", "st.mary"):
        (tmp_path / name).mkdir()
    (tmp_path / "st.anne.csv").touch()
    assert list(silo_paths(tmp_path)) == ["st.anne", "st.john", "st.mary"]


def test_a_file_of_arrays_that_is_cut_off(tmp_path):
    np.savez(tmp_path / "whole.npz", x=np.arange(150.0).reshape(50, 3), y=np.arange(50) % 2)
    (tmp_path / "cut.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:600])
    with pytest.raises(FedtctError, match=r"cannot be read as an \.npz file"):
        read_samples(tmp_path / "cut.npz", Reading())


def test_whole_numbers_in_arrays_are_classes_by_any_number_if_that_is_said(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.ones((4, 3)), y=np.array([-1, 1, 1, -1]))
    assert read_samples(tmp_path / "a.npz", Reading(task="classification"))[1].tolist() == ["-1", "1", "1", "-1"]
    assert read_samples(tmp_path / "a.npz", Reading(task="regression"))[1].dtype == np.float64


@pytest.mark.parametrize("task", ["auto", "classification"])
def test_texts_of_an_array_may_be_bytes(task, tmp_path):
    """As HDF5 files, and what is made of them, have them."""
    names = np.array(["ill", "müde", "well"])
    np.savez(tmp_path / "a.npz", x=np.ones((3, 2)), y=np.char.encode(names, "utf-8"))
    assert Silo(*read_samples(tmp_path / "a.npz", Reading(task=task))).y.tolist() == names.tolist()
    np.savez(tmp_path / "b.npz", x=np.ones((3, 2)), y=np.char.encode(names, "latin-1"))
    with pytest.raises(FedtctError, match=r"b\.npz: y holds bytes that are not UTF-8 text: save it with astype\(str\)"):
        read_samples(tmp_path / "b.npz", Reading(task=task))


def test_blanks_around_the_names_of_columns_count_for_nothing(tmp_path):
    (tmp_path / "a.csv").write_text("age, ward ,y\n50,01,01\n60,X2,02\n")
    (tmp_path / "b.csv").write_text("age ,ward, y\n50,01,01\n60,02,02\n")
    tables = [read_samples(tmp_path / f"{name}.csv", Reading("y", texts=["ward"])) for name in "ab"]
    for x, y in tables:
        assert list(x.columns) == ["age", "ward"]
        assert x["ward"][0] == "01"
        assert y.tolist() == ["01", "02"]
    (tmp_path / "c.csv").write_text("age, age,y\n50,1,0\n")
    with pytest.raises(FedtctError, match="several columns called 'age'"):
        read_inputs(tmp_path / "c.csv")


@pytest.mark.parametrize(
    ("target", "task", "told"),
    [([0.0, 1.0, 1.0], "auto", True), ([0.5, 1.0, 1.0], "auto", False), ([0.0, 1.0, 1.0], "regression", False)],
)
def test_classes_written_as_real_numbers_are_noticed(target, task, told, tmp_path, recwarn):
    """pandas does so once a label was missing."""
    pd.DataFrame({"a": [1, 2, 3], "y": target}).to_csv(tmp_path / "a.csv", index=False)
    assert read_samples(tmp_path / "a.csv", Reading("y", task))[1].dtype == float
    assert any("if they are classes, set task = classification" in str(w.message) for w in recwarn) == told


def test_columns_without_a_name_are_left_out_if_they_are_empty_and_else_refused(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("age; ;state;\n50;;ill; \n60; ;well;\n")
    assert list(read_table(file)) == ["age", "state"]
    file.write_text("age,,state,\n50,,ill,\n60,x,well,\n")
    with pytest.raises(FedtctError, match="column 2 has no name in the first line: name it, or drop it"):
        read_table(file)


def test_a_first_line_that_comes_again_is_no_sample(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("age,state\nold,ill\nyoung,well\nage, state\nold,ill\n")
    with pytest.raises(FedtctError, match="row 3 repeats the column names"):
        read_table(file)
    file.write_text("age,state\nold,ill\nage,well\n")
    assert len(read_table(file)) == 2


def test_a_name_that_is_nearly_that_of_a_column_is_recognised(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("age,State\n50,ill\n60,well\n")
    with pytest.raises(FedtctError, match=r"has no column 'state': did you mean 'State'\? It has age, State"):
        read_samples(file, Reading("state"))
    with pytest.raises(FedtctError, match=r"has no column 'weight'\. It has age, State"):
        read_samples(file, Reading("weight"))
