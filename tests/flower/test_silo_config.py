"""What a silo.toml may say, and where data may be."""

import os
import re
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from flwr.app import Context, RecordDict
from PIL import Image

from fedtct.deploy.cache import RunCache, drop_old_runs
from fedtct.deploy.check import check_silo
from fedtct.deploy.client_app import deployed_silo
from fedtct.deploy.keys import make_keys
from fedtct.deploy.silo_config import SiloConfig
from fedtct.errors import FedtctError
from fedtct.runs.settings import OWN_DEFAULTS


def silo(folder, text):
    (folder / "silo.toml").write_text(f'name = "a"\n{text}\n')
    return SiloConfig.read(folder / "silo.toml")


def test_arrays_in_a_file(tmp_path):
    np.savez(tmp_path / "data.npz", x=np.zeros((6, 4), np.float32), y=np.arange(6) % 2)
    loaded = silo(tmp_path, 'data = "data.npz"\nholdout = 0.5').load()
    assert (len(loaded), len(loaded.held_y), loaded.name) == (3, 3, "a")


def test_settings_that_are_for_other_data_are_warned_of(tmp_path):
    np.savez(tmp_path / "data.npz", x=np.zeros((6, 4), np.float32), y=np.arange(6) % 2)
    with pytest.warns(UserWarning, match="has no effect here") as warned:
        silo(tmp_path, 'data = "data.npz"\ntarget = "y"\nclasses = ["a"]\nholdout = 0').load()
    assert [str(warning.message) for warning in warned] == [
        "target in silo.toml has no effect here: it is for tables",
        "classes in silo.toml has no effect here: it is for folders of images",
    ]


def test_a_silo_holds_out_as_much_as_on_one_machine_and_its_file_says_how_much(tmp_path):
    np.savez(tmp_path / "data.npz", x=np.zeros((10, 4), np.float32), y=np.arange(10) % 2)
    loaded = silo(tmp_path, 'data = "data.npz"').load()
    assert len(loaded.held_y) == round(10 * OWN_DEFAULTS["holdout"]) == 2
    make_keys(tmp_path / "keys", ["a"])
    shown = re.findall(r"^# (\w+ = .*?)  +#", (tmp_path / "keys" / "a" / "silo.toml").read_text(), re.MULTILINE)
    assert "holdout = 0.2" in shown
    said = silo(tmp_path, "\n".join(['data = "data.npz"', *shown]))
    assert said == silo(tmp_path, 'data = "data.npz"')  # lines that are commented out show what holds without them


def test_images_in_folders_named_by_class(tmp_path):
    for name, count in {"cat": 2, "dog": 3}.items():
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(count):
            pixels = np.full((8, 6 + number, 3), 40 * number, np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{number}.png")
    where = 'data = "images"\nclasses = ["bird", "cat", "dog"]\n'
    loaded = silo(tmp_path, where + "image_size = [8, 8]\nholdout = 0").load()
    assert tuple(loaded.x.shape) == (5, 3, 8, 8)
    assert loaded.y.tolist() == ["cat", "cat", "dog", "dog", "dog"]
    assert tuple(silo(tmp_path, where + "image_size = [1, 8, 8]\nholdout = 0").load().x.shape) == (5, 1, 8, 8)
    for text, message in {
        where: "set image_size",
        'data = "images"\nclasses = ["cat"]': "dog is not one of the classes",
    }.items():
        with pytest.raises(FedtctError, match=message):
            silo(tmp_path, text).load()


def test_columns_of_codes_and_columns_to_ignore(tmp_path):
    (tmp_path / "a.csv").write_text("id,ward,age,y\n1,01,50,a\n2,02,60,b\n")
    where = 'data = "a.csv"\ntarget = "y"\nholdout = 0\n'
    loaded = silo(tmp_path, where + 'texts = ["ward"]\nignore = ["id"]').load()
    assert [(name, column.tolist()) for name, column in loaded.x.items()] == [("ward", ["01", "02"]), ("age", [50, 60])]


def test_a_function_of_the_silos_own(tmp_path):
    (tmp_path / "hospital.py").write_text(
        "import numpy as np\ndef samples():\n    return np.zeros((3, 2), np.float32), np.array([0, 1, 2])\n"
    )
    assert len(silo(tmp_path, 'data = "hospital:samples"\nholdout = 0').load()) == 3
    for text, message in {"hospital:none": "no hospital:none to import", "nowhere:none": "no nowhere:none"}.items():
        with pytest.raises(FedtctError, match=message):
            silo(tmp_path, f'data = "{text}"').load()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ('raise ValueError("patient 4711")', "ValueError"),
        ('return {}["patient 4711"]', "KeyError"),
        ('return open("patient 4711")', "FileNotFoundError"),
        ("import patient_4711", "ModuleNotFoundError"),
    ],
)
def test_what_a_stranger_says_of_the_data_is_read_here_and_told_nowhere(code, kind, tmp_path):
    (tmp_path / f"of_{kind}.py").write_text(f"def samples():\n    {code}\n")
    with pytest.raises(FedtctError, match=f"{kind}: ") as error:
        silo(tmp_path, f'data = "of_{kind}:samples"').load()
    assert "patient" not in error.value.shareable
    assert error.value.shareable.endswith(f"{kind}; the silo's log says more")


def test_what_a_broken_file_holds_is_told_nowhere(tmp_path):
    (tmp_path / "broken.csv").write_text('a,b\n1,2\n"4711,3\n')
    (tmp_path / "code.py").write_text("4711 +\n")
    for data in ("broken.csv", "code:samples"):
        with pytest.raises(FedtctError) as error:
            silo(tmp_path, f'data = "{data}"\ntarget = "b"').load()
        assert str(error.value) != error.value.shareable
        assert error.value.shareable.endswith("Error; the silo's log says more")


@pytest.mark.parametrize("returned", ["1", "(1, 2, 3)"])
def test_a_function_must_return_samples_and_labels(returned, tmp_path):
    (tmp_path / f"returns{len(returned)}.py").write_text(f"def samples():\n    return {returned}\n")
    with pytest.raises(FedtctError, match="must return two things, samples and labels"):
        silo(tmp_path, f'data = "returns{len(returned)}:samples"').load()


def test_files_that_hold_objects_or_other_names_are_refused(tmp_path):
    np.savez(tmp_path / "objects.npz", x=np.array([object()]), y=np.zeros(1, int))
    np.savez(tmp_path / "names.npz", images=np.zeros((2, 2)), y=np.zeros(2, int))
    (tmp_path / "text.npz").write_text("hello")
    for name, message in {
        "objects": "plain arrays",
        "names": "arrays x and y",
        "text": "cannot be read",
        "none": "cannot",
    }.items():
        with pytest.raises(FedtctError, match=message):
            silo(tmp_path, f'data = "{name}.npz"').load()


def test_a_silo_that_could_not_work_is_refused_before_it_takes_part(tmp_path):
    with pytest.raises(FedtctError, match="unknown device 'gpu'"):
        silo(tmp_path, 'data = "x.npz"\ndevice = "gpu"').load()
    (tmp_path / "taken").touch()
    with pytest.raises(FedtctError, match="is not a folder you can write to"):
        silo(tmp_path, 'data = "x.npz"\ncache = "taken/cache"').load()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "a"', "does not set data"),
        ('data = "x.npz"', "does not set name"),
        ('name = "a b"\ndata = "x.npz"', "letters, digits"),
        ('name = "a"\ndata = 3', "data must be text in quotes, it is 3"),
        ('name = "a"\ndata = "x"\nholdout = "0.2"', "holdout must be a number, it is '0.2'"),
        ('name = "a"\ndata = "x"\nclasses = "cat"', "classes must be a list such as"),
        ('name = "a"\ndata = "x"\nhold = 1', "unknown setting 'hold': did you mean 'holdout'?"),
        ('name = "a"\ndata = "x"\nqqq = 1', "unknown setting 'qqq': known are name, data, target"),
        ('name = "a"\ndata = "x"\ncache_gb = -4', "cache_gb must be positive"),
        ('name = "a"\ndata = "x"\ncache_gb = inf', "cache_gb must be a finite number"),
        ('name = "a"\ndata = "x"\nimage_size = [8]', "image_size must be"),
        ('name = "a"\ndata = "x"\nimage_size = [8.5, 8]', "image_size must be"),
        ("name = ", "not valid TOML"),
    ],
)
def test_what_a_silo_toml_must_not_say(text, message, tmp_path):
    (tmp_path / "silo.toml").write_text(text)
    with pytest.raises(FedtctError, match=message):
        SiloConfig.read(tmp_path / "silo.toml")


def test_the_secret_is_made_once_whole_and_for_its_owner_alone(tmp_path):
    config = silo(tmp_path, 'data = "data.npz"')
    secret = config.secret()
    assert len(secret) == 64
    assert config.secret() == secret
    assert stat.S_IMODE((tmp_path / "noise.key").stat().st_mode) == 0o600
    assert {path.name for path in tmp_path.iterdir()} == {"silo.toml", "noise.key"}


def test_of_two_secrets_that_are_made_at_once_the_first_prevails(tmp_path, monkeypatch):
    config = silo(tmp_path, 'data = "data.npz"')
    link = os.link
    monkeypatch.setattr(os, "link", lambda whole, file: (file.write_text("f" * 64), link(whole, file)))
    assert config.secret() == "f" * 64


@pytest.mark.parametrize("text", ["", "ab12"])
def test_a_secret_that_is_cut_off_is_refused(text, tmp_path):
    (tmp_path / "noise.key").write_text(text)
    with pytest.raises(FedtctError, match="could be guessed"):
        silo(tmp_path, 'data = "data.npz"').secret()


def test_the_folder_of_the_cache_may_hold_other_things(tmp_path):
    """It may be a disk that serves other purposes, too: neither age nor want of room makes them ours."""
    config = silo(tmp_path, 'data = "data.npz"\ncache = "."\ncache_gb = 0.0001')
    thesis = tmp_path / "thesis" / "chapter"
    thesis.parent.mkdir()
    thesis.write_bytes(bytes(10**6))
    for path in (thesis, thesis.parent):
        os.utime(path, (0, 0))
    setup = deployed_silo(Context(1, 1, {"silo": str(tmp_path / "silo.toml")}, RecordDict(), {}))
    RunCache(setup.cache, "run", setup.cache_bytes).keep_features({"z": torch.zeros(8000)}, {})
    drop_old_runs(config.runs())
    assert thesis.is_file()
    assert [path.relative_to(tmp_path) for path in config.runs().iterdir()] == [Path("fedtct-runs", "a", "run")]


def test_silos_that_share_a_disk_do_not_share_what_they_keep(tmp_path):
    one = silo(tmp_path, f'data = "data.npz"\ncache = "{tmp_path}"')
    other = replace(one, name="b")
    assert one.runs() != other.runs()
    assert one.runs().parent == other.runs().parent == tmp_path / "fedtct-runs"


def test_a_table_and_its_target(tmp_path):
    (tmp_path / "patients.csv").write_text("age,town,state\n40,Ulm,ill\n,Rom,well\n")
    loaded = silo(tmp_path, 'data = "patients.csv"\ntarget = "state"').load()
    assert loaded.describe()["kind"] == "table"
    assert loaded.y.tolist() == ["ill", "well"]
    for text, message in {'task = "guess"': "unknown task 'guess'", 'target = "none"': "has no column 'none'"}.items():
        with pytest.raises(FedtctError, match=message):
            silo(tmp_path, f'data = "patients.csv"\n{text}').load()


def test_a_key_that_flower_could_not_use_is_found_before_the_silo_starts(tmp_path):
    make_keys(tmp_path / "keys", ["north"], "127.0.0.1:1")
    folder = tmp_path / "keys" / "north"
    np.savez(folder / "data.npz", x=np.zeros((4, 1, 2, 2), np.uint8), y=np.arange(4) % 2)
    key = [finding for finding in check_silo(folder / "silo.toml") if finding.text.startswith("key:")]
    assert [finding.right for finding in key] == [True]
    (folder / "north.key").write_text("-----BEGIN PRIVATE KEY-----\nMC4CAQA=\n-----END PRIVATE KEY-----\n")
    key = [finding for finding in check_silo(folder / "silo.toml") if finding.text.startswith("key:")]
    assert [finding.right for finding in key] == [False]
    assert "is not a private key from `fedtct deploy keys`" in key[0].text


def test_numbers_that_are_said_to_be_quantities_are_not_asked_about(tmp_path, recwarn):
    np.savez(tmp_path / "data.npz", x=np.ones((8, 3, 4), np.float32), y=np.arange(8) % 4)
    loaded = silo(tmp_path, 'data = "data.npz"\ntask = "regression"').load()
    assert loaded.y.is_floating_point()
    assert not [w for w in recwarn if "taken as quantities" in str(w.message)]


def test_whoever_is_held_out_is_held_out_whole(tmp_path):
    pd.DataFrame({"age": range(30), "patient": [n // 3 for n in range(30)], "state": ["a", "b"] * 15}).to_csv(
        tmp_path / "data.csv"
    )
    asked = 'data = "data.csv"\ntarget = "state"\n'
    loaded = silo(tmp_path, f'{asked}group = "patient"').load()
    assert list(loaded.x) == ["age"]
    assert len(loaded.held_x) == 6
    assert not {age // 3 for age in loaded.x["age"]} & {age // 3 for age in loaded.held_x["age"]}
    with pytest.raises(FedtctError, match="has no column 'ward', which is set as group"):
        silo(tmp_path, f'{asked}group = "ward"').load()
    (tmp_path / "own.py").write_text("def data():\n    return [[1.0], [2.0]], [0, 1]\n")
    with pytest.raises(FedtctError, match="group names a column"):
        silo(tmp_path, 'data = "own:data"\ngroup = "patient"').load()
