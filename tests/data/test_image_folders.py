"""Silos' images in folders: the same picture gives the same samples however it was saved, and what is wrong is said."""

import zlib

import numpy as np
import pytest
from PIL import Image

from fedtct import FedtctError
from fedtct.data.sources import Reading, read_inputs, read_samples, silo_paths


def test_images_in_folders_are_classes(tmp_path):
    for name, count in {"cat": 2, "dog": 3}.items():
        (tmp_path / "a" / name).mkdir(parents=True)
        for number in range(count):
            Image.fromarray(np.full((8, 6, 3), 40 * number, np.uint8)).save(tmp_path / "a" / name / f"{number}.png")
    x, y = read_samples(tmp_path / "a", Reading())
    assert x.shape == (5, 3, 8, 6)
    assert y.tolist() == ["cat", "cat", "dog", "dog", "dog"]
    assert read_inputs(tmp_path / "a", (4, 4)).shape == (5, 3, 4, 4)
    (tmp_path / "a" / "dog" / "9.png").write_text("woof")
    with pytest.raises(FedtctError, match=r"9\.png cannot be read as an image"):
        read_samples(tmp_path / "a", Reading())


@pytest.mark.parametrize("kind", ["a header that is cut", "a size that cannot be"])
def test_a_damaged_image_is_named(tmp_path, kind):
    (tmp_path / "cat").mkdir()
    file = tmp_path / "cat" / ("1.bmp" if "size" in kind else "1.png")
    Image.fromarray(np.zeros((8, 6, 3), np.uint8)).save(file)
    data = bytearray(file.read_bytes())
    if "header" in kind:
        data[8:12] = (5).to_bytes(4, "big")
        data[21:25] = zlib.crc32(data[12:21]).to_bytes(4, "big")
    else:
        data[18:26] = (10**6).to_bytes(4, "little") * 2
    file.write_bytes(data)
    with pytest.raises(FedtctError, match=rf"{file.name} cannot be read as an image"):
        read_samples(tmp_path, Reading())


def test_what_systems_and_programs_leave_among_files_is_no_silo_and_no_image(tmp_path, recwarn):
    """A Mac adds __MACOSX to a zip file, and Excel ~$ to the name of a file while it is open."""
    for folder in ("a/cat", "__MACOSX/a/cat", "a/__MACOSX/cat"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "._0.png").write_bytes(b"what a Mac leaves")
    for file in ("Thumbs.db", "~$a.csv", ".hidden.csv", "a/Desktop.ini", "a/cat/~$1.png", "a/__MACOSX/cat/1.png"):
        (tmp_path / file).write_bytes(b"")
    Image.new("L", (4, 4)).save(tmp_path / "a" / "cat" / "0.png")
    assert list(silo_paths(tmp_path)) == ["a"]
    assert len(read_samples(tmp_path / "a", Reading())[0]) == 1
    assert not recwarn


def test_images_in_grey_and_in_colour_and_hidden_files_among_them(tmp_path):
    (tmp_path / "cat").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "cat" / "0.png")
    (tmp_path / "cat" / "._0.png").write_bytes(b"what a Mac leaves")
    assert read_samples(tmp_path, Reading())[0].shape == (1, 3, 4, 4)
    Image.new("L", (4, 4)).save(tmp_path / "cat" / "1.png")
    with pytest.raises(FedtctError, match="set image_size to 3,4,4 for colour, or to 1,4,4 for grey"):
        read_samples(tmp_path, Reading(image_size=(4, 4)))
    assert read_samples(tmp_path, Reading(image_size=(3, 4, 4)))[0].shape == (2, 3, 4, 4)
    assert read_samples(tmp_path, Reading(image_size=(1, 4, 4)))[0].shape == (2, 1, 4, 4)


@pytest.mark.parametrize("size", [(4, 4), (2, 6)])
def test_a_grey_picture_is_the_same_however_it_was_saved(size, tmp_path):
    """Some programs save X-rays in colour."""
    grey = Image.fromarray(np.random.default_rng(0).integers(0, 256, (4, 4), dtype=np.uint8))
    grey.save(tmp_path / "0.png")
    grey.convert("RGB").save(tmp_path / "1.png")
    for channels in (1, 3):
        one, other = read_inputs(tmp_path, (channels, *size))
        assert one.shape == (channels, *size)
        assert np.array_equal(one, other)


@pytest.mark.parametrize(("orientation", "turn"), [(1, None), (3, "ROTATE_180"), (6, "ROTATE_90"), (8, "ROTATE_270")])
def test_a_photograph_is_the_same_however_the_camera_was_held(orientation, turn, tmp_path):
    upright = Image.fromarray(np.arange(12, dtype=np.uint8).reshape(3, 4))
    taken, exif = upright.transpose(Image.Transpose[turn]) if turn else upright, Image.Exif()
    exif[0x0112] = orientation
    (tmp_path / "cat").mkdir()
    taken.save(tmp_path / "cat" / "0.png", exif=exif)
    assert np.array_equal(read_samples(tmp_path, Reading())[0], np.asarray(upright)[None, None])


@pytest.mark.parametrize("size", [(4, 10_001), (2**63, 4), (10**400, 4)])
def test_images_are_not_scaled_to_what_no_memory_holds(size, tmp_path):
    (tmp_path / "cat").mkdir()
    Image.new("L", (4, 4)).save(tmp_path / "cat" / "0.png")
    with pytest.raises(FedtctError, match="image_size must be at most 10000,10000"):
        read_samples(tmp_path, Reading(image_size=size))


@pytest.mark.parametrize("kind", [np.uint16, np.int32, np.float32])
def test_images_of_more_than_8_bits_are_refused_rather_than_cut(kind, tmp_path):
    (tmp_path / "cat").mkdir()
    Image.fromarray(np.full((4, 4), 1000, kind)).save(tmp_path / "cat" / "0.tif")
    with pytest.raises(FedtctError, match="more than 8 bits"):
        read_samples(tmp_path, Reading())
