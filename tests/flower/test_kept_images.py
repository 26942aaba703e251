"""Images are decoded once a run: what a silo keeps of them is what reading them again gives, or it reads them again."""

import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from flower_helpers import METHODS, InlineGrid, over
from flwr.app import Context, RecordDict
from PIL import Image

from fedtct.deploy import silo_config
from fedtct.deploy.cache import SAMPLES, RunCache
from fedtct.deploy.client_app import deployed_silo

pytestmark = pytest.mark.usefixtures("no_pauses")
CLASSES = ("2", "été", "pneumonia")
NODES = (100, 101)


def images(folder, shade=0, per_class=6):
    for number, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for index in range(per_class):
            pixels = np.random.default_rng(shade + number + 10 * index).integers(0, 256, (6, 7, 3), np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{index}.bmp")


@pytest.fixture
def grid(tmp_path):
    """Two silos of images in a federation."""
    found = InlineGrid(tmp_path, [])
    for node in NODES:
        images(tmp_path / str(node) / "images", shade=node)
        configure(found, tmp_path, node)
    return found


def configure(grid, folder, node, more=""):
    file = folder / str(node) / "silo.toml"
    file.write_text(f'name = "s{node}"\ndata = "images"\ndevice = "cpu"\n{more}')
    grid.setups[node] = deployed_silo(Context(1, node, {"silo": str(file)}, RecordDict(), {}))


@pytest.fixture
def decoded(grid, monkeypatch):
    """Whose folders of images were decoded."""
    whose, read = [], silo_config.read_silo
    monkeypatch.setattr(
        silo_config, "read_silo", lambda path, how: whose.append(int(path.parent.name)) or read(path, how)
    )
    return whose


def kept(folder, node):
    return list((folder / str(node)).rglob(SAMPLES))


def run(grid, harm=lambda: None, question="train"):
    """A run; harm is done before the second silo is asked that question for the second time."""

    def before(message):
        if grid.asked[-1] == (101, question) and grid.asked.count((101, question)) == 2:
            harm()

    grid.before = before
    return METHODS["fedavg"].fit(over(grid))


def test_images_are_decoded_once_a_run_and_nothing_of_them_is_left(grid, decoded, tmp_path):
    present = []
    fit = run(grid, harm=lambda: present.extend(kept(tmp_path, 101)))
    assert sorted(decoded) == [100, 101]
    assert len(present) == 1
    assert present[0].parent.stat().st_mode & 0o077 == 0
    federation = over(grid)
    METHODS["fedavg"].fit(federation)
    federation.close()
    assert not kept(tmp_path, 100)
    for node in NODES:
        grid.setups[node] = replace(grid.setups[node], keeps_samples=False)
    decoded.clear()
    again = run(grid)
    assert len(decoded) > 4
    assert np.array_equal(fit.model._tensors()["parameters"], again.model._tensors()["parameters"])


@pytest.mark.parametrize("settings", ["", "holdout = 0", 'task = "regression"', "image_size = [1, 5, 5]"])
def test_what_is_kept_is_what_was_read(settings, grid, decoded, tmp_path):
    if "regression" in settings:
        for old, new in zip(CLASSES, ("1.5", "-2", "7"), strict=True):
            for node in NODES:
                (tmp_path / str(node) / "images" / old).rename(tmp_path / str(node) / "images" / new)
    configure(grid, tmp_path, 100, settings)
    setup = grid.setups[100]
    cache, read = RunCache(setup.cache, "run", 10**9), setup.load()
    cache.keep_samples(read.parts(), "these")
    found = cache.samples("these")
    for one, other in zip(found, read.parts(), strict=True):
        assert (type(one), one.dtype, one.shape) == (type(other), other.dtype, other.shape)
        assert np.array_equal(one, other)
    assert cache.samples("others") == []


@pytest.mark.parametrize("harm", ["damage", "image", "relabelled", "settings"])
def test_what_is_damaged_or_of_other_images_is_decoded_again(harm, grid, decoded, tmp_path):
    folder = tmp_path / "101" / "images"

    def do_harm():
        (file,) = kept(tmp_path, 101)
        if harm == "damage":
            file.write_bytes(file.read_bytes()[:-3])
        elif harm == "image":
            image = folder / CLASSES[0] / "0.bmp"
            look = image.stat()
            Image.new("RGB", (7, 6), "red").save(image)
            os.utime(image, ns=(look.st_atime_ns, look.st_mtime_ns))
            assert image.stat().st_size == look.st_size
        elif harm == "relabelled":
            (folder / CLASSES[0] / "0.bmp").rename(folder / CLASSES[1] / "new.bmp")
        else:
            configure(grid, tmp_path, 101, "holdout = 0.25")

    run(grid, do_harm)
    assert sorted(decoded) == [100, 101, 101]  # and is kept again


def test_files_that_only_look_new_are_not_decoded_again(grid, decoded, tmp_path):
    def touch():
        for file in (tmp_path / "101" / "images").rglob("*.bmp"):
            os.utime(file, (0, 0))

    run(grid, touch)
    assert sorted(decoded) == [100, 101]


def test_where_there_is_no_room_images_are_decoded_each_time(grid, decoded, tmp_path):
    grid.setups[101] = setup = replace(grid.setups[101], cache_bytes=2000)
    other = RunCache(setup.cache, "other", 2000)
    other.keep_features({"z": torch.zeros(200)}, {})
    run(grid)
    assert other.features()[0]
    assert decoded.count(100) == 1
    assert decoded.count(101) > 2
    assert not kept(tmp_path, 101)


def test_images_make_room_for_what_cannot_be_read_again(grid, tmp_path):
    run(grid)
    (file,) = kept(tmp_path, 101)
    cache = RunCache(grid.setups[101].cache, "run", file.stat().st_size + 3000)
    cache.keep_features({"z": torch.zeros(1000)}, {})
    assert not file.exists()
    assert len(cache.features()[0]["z"]) == 1000
