"""fedtct run on silos' own files, from data to model."""

import errno
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hospitals import QUICK, patients, run
from PIL import Image

from fedtct import Classifier, Silo
from fedtct.cli import main
from fedtct.runs.folder import RunFolder
from fedtct.runs.jobs import prepare
from fedtct.runs.settings import OWN_DEFAULTS


def silos_of(path: str) -> list[Silo]:
    return prepare(RunFolder.read(path).config).silos


@pytest.mark.drawn
def test_classes_of_a_table(folder, capsys):
    result = run(capsys, "--target", "state", "--test", "test.csv", "--out", "a")
    assert (result["dataset"], result["silos"], result["split"], result["rounds"]) == ("silos", 2, "own", "2+1")
    assert result["test_accuracy"] > 0.5
    assert result["holdout_accuracy"] is not None
    assert (folder / "a" / "plots" / "split.png").is_file()
    assert main(["run", "--resume", "a", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == result


@pytest.mark.drawn
def test_numbers_of_a_table(folder, capsys):
    result = run(capsys, "--target", "cost", "--test", "test.csv", "--holdout", "0.2")
    assert result["test_r2"] > 0.5
    assert "test_accuracy" not in result
    assert main(["run", "--data", "silos", "--target", "cost", *QUICK, "--method", "fedavg"]) == 0
    out, err = capsys.readouterr()
    assert "held-out R²" in out
    assert "held-out R² " in err


def test_no_table_is_cut_on_a_narrow_screen(folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    words = [
        "compare",
        "--data",
        "silos",
        "--target",
        "cost",
        "--test",
        "test.csv",
        "--methods",
        "fedavg",
        "--seeds",
        "2",
    ]
    assert main([*words, *QUICK]) == 0
    out = capsys.readouterr().out
    assert "…" not in out
    assert "test R², mean ± std" in out


def test_a_model_of_ones_own(folder, capsys):
    result = run(capsys, "--target", "state", "--model", "mine:build", "--out", "own", "--method", "fedavg")
    assert result["model"] == "mine:build"
    assert main(["run", "--resume", "own", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == result


def test_methods_are_compared_on_ones_own_data(folder, capsys):
    words = ["compare", "--data", "silos", "--target", "state", "--methods", "fedavg,tct", *QUICK, "--out", "both"]
    assert main(words) == 0
    assert "held-out" in capsys.readouterr().out


def test_what_ones_own_data_changes_is_said(folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["run", "--data", "silos", "--target", "state", "--rounds", "5,5"]) == 2
    assert "takes many; with data, ridge is the default)" in capsys.readouterr().err
    assert main(["run", "--help-all"]) == 0
    text = capsys.readouterr().out
    assert all(f"--data: {value}]" in text for value in OWN_DEFAULTS.values())


def test_options_that_none_of_ones_own_files_is_read_with_are_not_ignored_silently(folder, capsys):
    few = ["--method", "fedavg", "--rounds", "1", "--json"]
    assert main(["run", "--data", "silos", "--target", "state", "--image-size", "8,8", *few]) == 0
    told = "fedtct: warning: --image-size has no effect here: it is for folders of images\n"
    assert capsys.readouterr().err == told
    (folder / "arrays").mkdir()
    np.savez("arrays/a.npz", x=np.random.default_rng(0).normal(size=(20, 3)), y=np.arange(20) % 2)
    assert main(["run", "--data", "arrays", "--target", "state", *few]) == 0
    assert capsys.readouterr().err == "fedtct: warning: --target has no effect here: it is for tables\n"
    assert main(["run", "--data", "arrays", "--texts", "ward", "--ignore", "id", *few]) == 0
    told = [f"fedtct: warning: --{name} has no effect here: it is for tables" for name in ("texts", "ignore")]
    assert capsys.readouterr().err.splitlines() == told


def test_a_comparison_says_what_ones_own_data_decides_on(folder, capsys):
    for words, message in {
        "--split classes:1": "split is 'own', not 'classes:1'",
        "--silos 5": "silos is 2, not '5'",
    }.items():
        assert main(["compare", "--data", "silos", "--target", "state", *words.split()]) == 2
        assert message in capsys.readouterr().err


def test_numbers_are_compared_and_chosen_between_by_r2(folder, capsys):
    own = ["--data", "silos", "--target", "cost", *QUICK]
    assert main(["compare", *own, "--methods", "fedavg,tct", "--out", "both"]) == 0
    out, _ = capsys.readouterr()
    assert "held-out R²" in out
    assert "%" not in out
    (fedavg, _) = json.loads((folder / "both" / "summary.json").read_text())["table"]
    last = json.loads((folder / "both" / "fedavg-own-seed0" / "metrics.jsonl").read_text().splitlines()[-1])
    assert fedavg["holdout_r2"] == last["holdout_r2"]
    # A rate that diverges has no R², which must not win by standing first.
    assert main(["run", *own, "--method", "fedavg", "--lr", "1e30,0.01", "--out", "rates", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["chosen"], result["candidates"]["lr-1e+30"]) == ("lr-0.01", None)
    assert main(["run", "--resume", "rates"]) == 0
    shown = capsys.readouterr().out
    assert "lr-0.01 (chosen)" in shown
    same = "the held-out samples that rate lr-0.01 also chose it from 2 candidates"
    assert same in shown.splitlines()
    assert f"T{same[1:]}." in (folder / "rates" / "report.html").read_text(encoding="utf-8")
    assert main(["export", "rates"]) == 0
    assert f"Note: {same}." in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("ridge", ["holdout", "gcv"])
def test_where_held_out_samples_chose_the_ridge_and_rate_it_that_is_told(folder, capsys, ridge):
    tct = ["--method", "tct", "--stage2", "ridge", "--ridge", ridge]
    assert main(["run", "--data", "silos", "--target", "cost", *QUICK, *tct, "--out", "tct"]) == 0
    same = "the held-out samples that rate the model also chose the strength of stage 2's ridge"
    assert (same in capsys.readouterr().out.splitlines()) == (ridge == "holdout")


@pytest.mark.parametrize(("holdout", "on"), [("0", "test"), ("0.2", "holdout")])
def test_the_worst_silo_is_the_same_on_the_screen_on_the_page_and_on_the_card(folder, capsys, holdout, on):
    words = ["--target", "state", "--test", "test.csv", "--holdout", holdout, "--out", "a"]
    result = run(capsys, *words)
    found = json.loads((folder / "a" / "findings" / "silos.json").read_text())["own"]
    assert result["worst_silo_accuracy"] == min(found)
    assert result["worst_silo_on"] == on
    worst = f"{100 * min(found):.1f}"
    assert f"its accuracy on the worst silo’s data is {worst} %" in (folder / "a" / "report.html").read_text()
    assert main(["run", "--resume", "a"]) == 0
    assert f"  {worst} %  " in capsys.readouterr().out
    assert main(["export", "a"]) == 0
    card = capsys.readouterr().out
    assert f"| {worst}% |" in card
    assert ("what it holds out" in card) == (on == "holdout")


def test_where_one_silo_holds_nothing_out_the_others_are_rated_on_what_they_do(folder, capsys):
    patients(2, 3).to_csv("silos/tiny.csv", index=False)
    assert run(capsys, "--target", "state", "--out", "a")["worst_silo_on"] == "holdout"
    model = Classifier.load("a/model")
    held = {silo.name: (silo.held_x, silo.held_y) for silo in silos_of("a")}
    ratings = {name: f"{model.score(x, y):.1%}" if len(y) else "–" for name, (x, y) in held.items()}
    assert ratings["tiny"] == "–" != ratings["north"]
    assert main(["export", "a"]) == 0
    card = capsys.readouterr().out
    for silo, rating in ratings.items():
        assert f"| {silo} | {rating} |" in card
    assert "Note: nothing is held out by tiny: held-out ratings say nothing about it" in card


def test_predict_evaluate_and_export(folder, capsys):
    result = run(capsys, "--target", "state", "--test", "test.csv", "--out", "a")
    assert main(["predict", "a", "--input", "test.csv", "--out", "p.csv"]) == 0
    assert capsys.readouterr().err == ""
    table = pd.read_csv("p.csv")
    assert list(table) == ["label", "probability_ill", "probability_well"]
    assert table.iloc[:, 1:].sum(axis=1).to_numpy() == pytest.approx(1)
    assert (table["label"] == pd.read_csv("test.csv")["state"]).mean() == pytest.approx(result["test_accuracy"])
    assert main(["export", "a", "--out", "m.safetensors"]) == 0
    card = capsys.readouterr().out
    told = ("age, town", "ill, well", "calibrated on", "| north |", "2+1 rounds", "MB per silo", "Classifier.load")
    assert [text for text in told if text not in card] == []
    for where in ("a", "a/model", "m.safetensors"):
        target = ["--target", "state"] if where == "a/model" else []
        assert main(["evaluate", where, "--input", "test.csv", "--json", *target]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["accuracy"] == pytest.approx(result["test_accuracy"])
        assert found["classes"]["ill"]["samples"] + found["classes"]["well"]["samples"] == 30
        assert main(["predict", where, "--input", "test.csv"]) == 0
        assert capsys.readouterr().out == Path("p.csv").read_text()
    assert main(["evaluate", "a", "--input", "test.csv"]) == 0
    assert "right when named" in capsys.readouterr().out


def test_columns_that_a_model_does_not_use_may_hold_anything(folder, capsys):
    plain = run(capsys, "--target", "state", "--test", "test.csv", "--out", "a")
    table = pd.read_csv("test.csv")
    table.assign(id=["X7", *range(1, len(table))]).to_csv("test.csv", index=False)
    same = run(capsys, "--target", "state", "--test", "test.csv", "--out", "b")
    assert same["test_accuracy"] == plain["test_accuracy"]
    assert main(["evaluate", "a", "--input", "test.csv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == pytest.approx(plain["test_accuracy"])


class FullDisk(io.RawIOBase):
    """Takes so many bytes, the last of them without a word about the rest."""

    def __init__(self, room):
        self.room = room

    def writable(self):
        return True

    def write(self, data):
        if len(data) and not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = min(self.room, len(data))
        self.room -= taken
        return taken


def test_predictions_of_images_are_named_by_their_files(folder, capsys):
    draws = np.random.default_rng(0)
    for name in ("a/cat/1", "a/dog/2", "b/cat/3", "b/dog/4", "new/x 1", "new/y/2"):
        (folder / "pictures" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draws.integers(0, 256, (8, 8), dtype=np.uint8)).save(folder / "pictures" / f"{name}.png")
    (folder / "pictures" / "new").rename(folder / "new")
    assert main(["run", "--data", "pictures", "--model", "linear", *QUICK, "--holdout", "0", "--out", "a"]) == 0
    capsys.readouterr()
    rows = {}
    for file in ("new", "new/y/2.png"):
        assert main(["predict", "a", "--input", file]) == 0
        header, *rows[file] = capsys.readouterr().out.splitlines()
        assert header == "file,label,probability_cat,probability_dog"
    assert [row.split(",")[0] for row in rows["new"]] == ["x 1.png", "y/2.png"]
    assert rows["new/y/2.png"] == [rows["new"][1].removeprefix("y/")]


def test_silos_with_grey_and_with_coloured_images(folder, capsys):
    """Told apart with what to do; what is tested and predicted is then made like the silos' by itself."""
    draws = np.random.default_rng(0)
    for place, name in enumerate(("a/cat", "a/dog", "b/cat", "b/dog")):
        (folder / "pictures" / name).mkdir(parents=True)
        for number in range(4):
            shape = (8, 8, 3) if place > 1 else (8, 8)
            image = Image.fromarray(draws.integers(0, 256, shape, dtype=np.uint8))
            image.save(folder / "pictures" / name / f"{number}.png")
    shutil.copytree(folder / "pictures" / "a", folder / "test")
    asked = ["run", "--data", "pictures", "--test", "test", "--model", "linear", *QUICK, "--holdout", "0"]
    assert main([*asked, "--out", "c"]) == 2
    todo = "set image_size to 3,8,8 for colour, or to 1,8,8 for grey (--image-size in a command)"
    assert todo in capsys.readouterr().err
    for channels in ("3", "1"):
        assert main([*asked, "--image-size", f"{channels},8,8", "--out", channels, "--json"]) == 0
        tested = json.loads(capsys.readouterr().out)["test_accuracy"]
        assert main(["evaluate", channels, "--input", "test", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["accuracy"] == pytest.approx(tested)


@pytest.mark.parametrize("buffered", [False, True])
def test_predictions_that_do_not_fit_are_an_error(folder, capsys, monkeypatch, buffered):
    run(capsys, "--target", "state", "--out", "a")
    disk = FullDisk(100)
    stdout = io.TextIOWrapper(io.BufferedWriter(disk) if buffered else disk, write_through=not buffered)
    monkeypatch.setattr("sys.stdout", stdout)
    assert main(["predict", "a", "--input", "test.csv"]) == 2
    assert "No space left on device" in capsys.readouterr().err
    disk.room = 1 << 20  # what is buffered still goes somewhere when the test is over


def test_predictions_of_numbers_and_of_a_model_of_ones_own(folder, capsys):
    words = ["--target", "cost", "--model", "mine:build", "--method", "fedavg", "--holdout", "0", "--out", "b"]
    result = run(capsys, *words, "--test", "test.csv")
    own = ["--model", "mine:build"]
    assert main(["evaluate", "b", "--input", "test.csv", "--json", *own]) == 0
    assert json.loads(capsys.readouterr().out)["r2"] == pytest.approx(result["test_r2"])
    assert main(["predict", "b", "--input", "test.csv", *own]) == 0
    assert capsys.readouterr().out.startswith("prediction\n")
    assert main(["export", "b", "--out", "b.safetensors", *own]) == 0
    assert 'Classifier.load("b.safetensors", model=build)' in capsys.readouterr().out
    run(capsys, "--target", "state", "--method", "fedavg", "--holdout", "0", "--out", "c")
    assert main(["predict", "c", "--input", "test.csv"]) == 0
    assert "not calibrated: silos shared nothing about held-out samples" in capsys.readouterr().err
    (folder / "text.csv").write_text("age,town,cost\nold,Ulm,3\n")
    (folder / "p.csv").write_text("label\nill\n")
    shutil.copytree("c/model", "cut")
    (folder / "cut" / "model.safetensors").write_text("{}")
    for command, message in {
        "predict b --input test.csv": "made from a model of your own: give it with --model mine:build",
        "predict b/model --input test.csv": "made from your own model (Sequential): pass that to load as model, or",
        "predict c --input none.csv": "cannot read none.csv: No such file",
        "predict c --input text.csv": "text.csv: column 'age' holds texts, but the silos' column holds numbers",
        "predict c --input p.csv": "p.csv has no column 'age', 'town', 'cost', which the silos learn from",
        "predict cut --input test.csv": "model.safetensors is not a model that fedtct saved or exported, or is damaged",
        "predict c --input test.csv --out c": "c exists",
        "predict c --input test.csv --out none/x.csv": "cannot be made",
        "predict silos --input test.csv": "silos holds no saved model",
        "predict test.csv --input test.csv": "test.csv is not a model that fedtct saved or exported",
        "evaluate c --input test.csv --target age": "the model predicts from 'age': --target must name the column with "
        "the truth ('state' in training)",
        "evaluate c/model --input test.csv --target town": "must name the column with the truth\n",
        "export c --out test.csv": "test.csv exists",
        "export c --model mine": "as module:function, not 'mine'",
    }.items():
        assert main(command.split()) == 2, command
        assert message in capsys.readouterr().err


BAD = {
    "run --data nowhere --target state": "there is no folder nowhere",
    "run --data silos": "set target (--target) to the column to learn",
    "run --data silos --target stat": "has no column 'stat'",
    "run --data silos --target state --task regression": "a regression needs numbers",
    "run --data silos --target state --task guess": "unknown task 'guess'",
    "run --data silos --target state --split iid": "with this data split is 'own'",
    "run --data silos --target state --dataset digits": "with this data dataset is 'silos'",
    "run --data silos --target state --silos 3": "with this data silos is 2",
    "run --data silos --target state --limit 3": "limit is for datasets",
    "run --data silos --target state --split-seed 3": "split_seed is for datasets",
    "run --data silos --target state --test none.csv": "there is no none.csv",
    "run --data silos --target state --model mine:nothing": "no mine:nothing to import",
    "run --data silos --target state --model none:build": "no none:build to import",
    "run --data silos --target state --model mine:number": "mine:number is not a function",
    "run --data silos --target state --model mine:wrong": "has 7 outputs, but the silos have 2 classes",
    "run --data silos --target state --model simple-cnn": "takes images",
    "run --data silos --target state --holdout 1": "holdout is a share",
    "run --data silos --target state --image-size 3": "a height and a width",
    "run --data silos --target state --image-size 4,8,8": "a height and a width",
    "run --data silos --target state --texts town,twn": "has no column 'twn', which texts lists",
    "run --data silos --target state --ignore state": "'state' is the target: remove it from ignore",
    "run --texts ward": "texts is for your own data",
    "run --data strange --target state": "column 'age' holds numbers in north and texts in other",
    "run --data test.csv --target state": "test.csv is a file, not a folder",
    "run --data loose": "1.png has no class: put it into a folder",
    "run --data latin --target state": "not UTF-8 text; save it as CSV in UTF-8",
    "run --data silos --target state --out test.csv/a": "cannot be made",
    "run --data silos --target state --test silos/north.csv": "keep test data in a place of its own",
    "compare --data silos --target state --test linked.csv --methods fedavg": "keep test data in a place of its own",
    "run --data pictures --test pictures/north/ill": "keep test data in a place of its own",
    "run --data pictures --test pictures": "keep test data in a place of its own",
    "run --data silos --target state --test fox.csv": "has classes that no silo trains on; the silos have ill, well. "
    "Found: 'fox' (9), in 9 of 9 samples",
}


@pytest.mark.parametrize("command", BAD)
def test_what_is_wrong_is_said_before_any_work(command, folder, capsys):
    (folder / "strange").mkdir()
    patients(9, 0).to_csv("strange/north.csv", index=False)
    patients(9, 0).assign(age="old").to_csv("strange/other.csv", index=False)
    patients(9, 0).assign(state="fox").to_csv("fox.csv", index=False)
    (folder / "latin").mkdir()
    (folder / "latin" / "a.csv").write_bytes("age,state\n1,müde\n".encode("latin-1"))
    (folder / "loose" / "a").mkdir(parents=True)
    Image.new("RGB", (4, 4)).save("loose/a/1.png")
    (folder / "pictures" / "north" / "ill").mkdir(parents=True)
    Image.new("RGB", (4, 4)).save("pictures/north/ill/1.png")
    (folder / "linked.csv").symlink_to("silos/north.csv")
    code, message = main(command.split()), capsys.readouterr().err
    assert code == 2
    assert BAD[command] in message
    assert message.startswith("fedtct: ")
    assert 1 <= len(message.splitlines()) <= 2
    assert not (folder / "runs").exists()


@pytest.mark.filterwarnings("always:no silo has label 0")
@pytest.mark.parametrize(
    ("codes", "code", "told"), [([1, 2], 0, "class 0 has no samples"), ([7, 99], 2, "go up to 99")]
)
def test_codes_as_labels_are_noticed_and_what_is_advised_works(codes, code, told, folder, capsys) -> None:
    shutil.rmtree(folder / "silos")
    (folder / "silos").mkdir()
    np.savez("silos/a.npz", x=np.random.default_rng(0).normal(size=(40, 3)), y=np.array(codes * 20))
    assert main(["run", "--data", "silos", *QUICK, "--out", "counted"]) == code
    message = capsys.readouterr().err
    assert told in message
    assert message.count("--task") == 1
    run(capsys, "--task", "classification", "--out", "named")
    assert json.loads((folder / "named" / "agreement.json").read_text())["task"]["names"] == list(map(str, codes))
