"""Images in folders: the first folder below a silo is the class, and what is not read is said."""

import re
from shutil import copytree

import numpy as np
import pytest
from PIL import Image

from fedtct import FedtctError, Silo
from fedtct.data.sources import read_inputs, read_samples
from fedtct.files import files_of, fingerprint


def put(folder, *names):
    """Images of different grey values in a folder's folders."""
    for place, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4), place, np.uint8)).save(folder / name)


def test_the_first_folder_is_the_class_whatever_lies_deeper(tmp_path):
    put(tmp_path, "ill/p0/x.png", "ill/p1/2024/x.png", "ill/y.png", "well/p0/x.png")
    x, y = read_samples(tmp_path)
    assert dict(zip(x[:, 0, 0, 0].tolist(), y.tolist(), strict=True)) == {0: "ill", 1: "ill", 2: "ill", 3: "well"}


def test_a_folder_that_is_linked_is_as_one_that_is_there(tmp_path, recwarn):
    put(tmp_path / "plain", "ill/x.png", "ill/p1/y.png", "well/z.png")
    for name in ("linked", "disk"):
        (tmp_path / name).mkdir()
    (tmp_path / "plain" / "ill").rename(tmp_path / "disk" / "0")
    (tmp_path / "disk" / "0" / "p1").rename(tmp_path / "disk" / "1")
    for folder in ("plain", "linked"):
        (tmp_path / folder / "ill").symlink_to(tmp_path / "disk" / "0")
    (tmp_path / "disk" / "0" / "p1").symlink_to(tmp_path / "disk" / "1")
    (tmp_path / "linked" / "well").symlink_to(tmp_path / "plain" / "well")
    copytree(tmp_path / "linked", tmp_path / "copy")
    (x, y), (same, answers) = (read_samples(tmp_path / name) for name in ("copy", "linked"))
    assert y.tolist() == answers.tolist() == ["ill", "ill", "well"]
    assert np.array_equal(x, same)
    assert fingerprint(tmp_path / "copy") == fingerprint(tmp_path / "linked")
    assert not list(recwarn)


def test_links_that_lead_back_or_nowhere_end(tmp_path):
    put(tmp_path, "ill/x.png", "well/x.png")
    alone = fingerprint(tmp_path)
    (tmp_path / "ill" / "back").symlink_to(tmp_path)
    (tmp_path / "itself").symlink_to(tmp_path / "itself")
    (tmp_path / "unplugged").symlink_to(tmp_path / "nowhere")
    with pytest.warns(UserWarning, match="2 files are no images and are left out, such as itself"):
        assert read_samples(tmp_path)[1].tolist() == ["ill", "well"]
    assert len(files_of(tmp_path)) == 4
    assert fingerprint(tmp_path) == alone


def test_images_that_are_predicted_may_lie_anywhere(tmp_path):
    put(tmp_path, "x.png", "p0/y.png", "p0/deeper/z.png")
    assert read_inputs(tmp_path).shape == (3, 1, 4, 4)
    assert read_inputs(tmp_path / "x.png").shape == (1, 1, 4, 4)
    with pytest.raises(FedtctError, match=r"x\.png has no class"):
        read_samples(tmp_path)


def test_blanks_around_the_name_of_a_class_are_none_of_it(tmp_path):
    put(tmp_path, " ill/x.png", "ill /y.png", "well/z.png")
    assert sorted(Silo(*read_samples(tmp_path)).y.tolist()) == ["ill", "ill", "well"]


def test_files_that_are_no_images_are_counted_once_for_a_silo(tmp_path, recwarn):
    put(tmp_path, "ill/x.png", "well/x.png")
    for name in ("ill/scan1.dcm", "well/scan2.dcm", "well/notes.txt"):
        (tmp_path / name).write_text("")
    assert len(read_samples(tmp_path)[1]) == 2
    (told,) = [str(w.message) for w in recwarn]
    assert re.search(r"3 files .*scan1\.dcm.*\.png, \.jpg", told)


def test_what_systems_leave_in_folders_is_nothing_to_tell(tmp_path, recwarn):
    put(tmp_path, "ill/x.png", "well/x.png", "well/.copies/x.png", ".copies/x.png")
    for name in ("ill/Thumbs.db", "well/desktop.ini", "well/.DS_Store", "well/._x.png", ".copies/notes.txt"):
        (tmp_path / name).write_text("")
    assert read_samples(tmp_path)[1].tolist() == ["ill", "well"]
    assert not list(recwarn)


def test_a_folder_of_other_files_is_told_what_is_read(tmp_path):
    (tmp_path / "ill").mkdir()
    (tmp_path / "ill" / "scan.dcm").write_text("")
    with pytest.raises(FedtctError, match=r"there are no images \(\.png, \.jpg, .*\) in "):
        read_samples(tmp_path)


@pytest.mark.parametrize("read", [read_samples, read_inputs])
def test_a_folder_is_not_taken_for_the_table_in_it(read, tmp_path):
    (tmp_path / "patients.csv").write_text("age,ill\n30,no\n")
    with pytest.raises(
        FedtctError, match=r"there are no images .*: .*patients\.csv is given as it is, without a folder"
    ):
        read(tmp_path)


def test_all_damaged_images_are_named_at_once(tmp_path):
    put(tmp_path, "ill/0.png", "well/0.png", *(f"well/{place}.png" for place in range(10, 40)))
    for name in ("ill/1.png", "well/2.png"):
        (tmp_path / name).write_text("damaged")
    with pytest.raises(FedtctError, match=r"ill/1\.png, well/2\.png cannot be read as images: mend") as caught:
        read_samples(tmp_path)
    assert "UnidentifiedImageError" in str(caught.value)
    for place in range(10, 40):
        (tmp_path / f"well/{place}.png").write_text("damaged")
    with pytest.raises(FedtctError, match="and 20 more cannot be read as images"):
        read_samples(tmp_path)


def test_images_that_are_refused_are_named_with_the_damaged_ones(tmp_path):
    """Before anything is predicted: among thousands, one would otherwise be found after the other."""
    put(tmp_path, "0.png", "1.png", "4.png")
    Image.fromarray(np.full((4, 4), 1000, np.uint16)).save(tmp_path / "2.png")
    pages = [Image.new("L", (4, 4), shade) for shade in (0, 9)]
    pages[0].save(tmp_path / "3.tif", save_all=True, append_images=pages[1:])
    (tmp_path / "4.png").write_text("damaged")
    told = (
        r"2\.png, 3\.tif, 4\.png cannot be read as images: mend or remove them\. The first: .*2\.png has pixels of more"
    )
    with pytest.raises(FedtctError, match=told):
        read_inputs(tmp_path)


def drawing(mode):
    """Black on nothing, half of it faintly."""
    alpha = np.repeat(np.array([[0, 255, 128, 0]], np.uint8), 4, 0)
    image = Image.new(mode.removesuffix("A"), (4, 4))
    image.putalpha(Image.fromarray(alpha))
    return image


@pytest.mark.parametrize("mode", ["LA", "RGBA"])
def test_what_is_transparent_is_seen_on_white(mode, tmp_path):
    drawing(mode).save(tmp_path / "x.png")
    seen = np.broadcast_to(np.array([255, 0, 127, 255], np.uint8), (1, len(mode) - 1, 4, 4))
    assert np.array_equal(read_inputs(tmp_path / "x.png"), seen)


def test_a_colour_that_is_transparent_is_seen_on_white(tmp_path):
    black = Image.fromarray(np.array([[0, 9], [9, 0]], np.uint8))
    black.save(tmp_path / "grey.png", transparency=0)
    assert read_inputs(tmp_path / "grey.png").tolist() == [[[[255, 9], [9, 255]]]]
    black.convert("P").save(tmp_path / "palette.png", transparency=0)
    assert read_inputs(tmp_path / "palette.png").tolist() == [[[[255, 9], [9, 255]]]]


@pytest.mark.parametrize("opaque", [255, 0])
def test_an_image_that_is_as_opaque_everywhere_is_as_one_without_opacity(opaque, tmp_path):
    """Some programs write zeros there: a viewer shows nothing, and nobody means that."""
    image = Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3))
    image.save(tmp_path / "without.png")
    image.putalpha(opaque)
    image.save(tmp_path / "with.png")
    assert np.array_equal(*(read_inputs(tmp_path / f"{name}.png") for name in ("with", "without")))


@pytest.mark.parametrize("kind", ["tif", "png"])
def test_a_file_of_several_images_is_refused(kind, tmp_path):
    pages = [Image.fromarray(np.full((4, 4), place, np.uint8)) for place in range(3)]
    pages[0].save(tmp_path / f"x.{kind}", save_all=True, append_images=pages[1:])
    with pytest.raises(FedtctError, match=rf"x\.{kind} holds 3 images: save each as a file of its own"):
        read_inputs(tmp_path)


def test_a_photograph_with_a_smaller_one_behind_it_is_one_image(tmp_path):
    photograph, preview = (Image.new("RGB", (side, side)) for side in (8, 4))
    photograph.save(tmp_path / "x.jpg", "MPO", save_all=True, append_images=[preview])
    assert read_inputs(tmp_path).shape == (1, 3, 8, 8)


def test_grey_images_are_grey_however_they_were_saved(tmp_path):
    grey = Image.fromarray(np.arange(0, 256, 16, dtype=np.uint8).reshape(4, 4))
    (tmp_path / "a").mkdir()
    for name, picture in {"l": grey, "p": grey.convert("P"), "la": grey.convert("LA")}.items():
        picture.save(tmp_path / "a" / f"{name}.png")
    x, _ = read_samples(tmp_path)
    assert x.shape == (3, 1, 4, 4)
    assert (x == x[0]).all()
    coloured = grey.convert("P")
    coloured.putpalette([value for level in range(256) for value in (level, 0, 0)])
    coloured.save(tmp_path / "a" / "q.png")
    with pytest.raises(FedtctError, match="image_size"):
        read_samples(tmp_path)
