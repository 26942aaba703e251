"""Images in files, as pixels."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedtct.errors import FedtctError, listing
from fedtct.files import files_of, is_hidden

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff")
WHOLE = (".csv", ".parquet", ".npz")  # endings of files that hold all samples of a silo
LARGEST_SIDE = 10_000  # of the size that images are scaled to: an image then takes 100 MB or more
MODES = {1: "L", 3: "RGB"}  # Pillow's names of images with so many channels


def check_image_size(size: Sequence[Any]) -> None:
    """Refuse anything but a height and width, with or without a number of channels before them."""
    whole = all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in size)
    if size and not (whole and (len(size) == 2 or (len(size) == 3 and size[0] in MODES))):
        raise FedtctError(
            "image_size must be a height and a width such as 32,32; 3,32,32 makes all images coloured, 1,32,32 grey"
        )


def read_images(folder: Path, size: Sequence[int] = ()) -> tuple[Any, list[Path]]:
    """The images below a folder as pixels (N, C, H, W), and their files, in order of their names.

    All are scaled to a ``size``, (H, W) or (C, H, W), if one is given.
    """
    if max(size, default=0) > LARGEST_SIDE:
        raise FedtctError(f"image_size must be at most {LARGEST_SIDE},{LARGEST_SIDE}")
    files, pixels = image_files(folder), []
    _warn_of_others(folder)
    unread: dict[Path, Exception] = {}
    for file in files:
        try:
            pixels.append(_read_image(file, size))
        except Exception as error:  # PIL has many, some of them Python's own, for a damaged file
            unread[file] = error.with_traceback(None)  # a traceback would keep all images in memory
            continue
        if pixels[-1].shape != pixels[0].shape:
            todo = to_be_alike(pixels[-1].shape, pixels[0].shape)
            raise FedtctError(f"{file} has shape {pixels[-1].shape}, but others have {pixels[0].shape}: {todo}")
    if unread:
        raise _of_unread(folder, unread)
    return np.stack(pixels), files


def _of_unread(folder: Path, errors: Mapping[Path, Exception]) -> FedtctError:
    """The error about images that cannot be read: it names all, and says what is wrong with the first."""
    (file, first), *others = errors.items()
    ours = isinstance(first, FedtctError)  # it says what to do about the file
    if not others:
        return FedtctError(str(first)) if ours else FedtctError(f"{file} cannot be read as an image", first)
    names = listing(path.relative_to(folder).as_posix() for path in errors)
    told = f"{folder}: {names} cannot be read as images: fix or remove them. The first"
    return FedtctError(f"{told}: {first}") if ours else FedtctError(told, first)


def _warn_of_others(folder: Path) -> None:
    """Warn of files that are left out, as they may be meant as samples."""
    others = [f for f in _visible(folder) if not _is_image(f)]
    if others:
        count = "1 file is not an image and is" if len(others) == 1 else f"{len(others)} files are not images and are"
        example = others[0].relative_to(folder).as_posix()
        warnings.warn(f"{folder}: {count} left out, such as {example}; fedtct reads {listing(IMAGES)}", stacklevel=3)


def to_be_alike(*shapes: Sequence[int]) -> str:
    """What to do about images of several shapes (C, H, W)."""
    channels = {shape[0] for shape in shapes}
    size = ",".join(map(str, shapes[0][1:]))
    which = f" to 3,{size} for colour, or to 1,{size} for grey" if len(channels) > 1 else ""
    return f"set image_size{which} (--image-size in a command)"


def holds_images(path: Path) -> bool:
    """Whether a path is a folder of images, or a single one."""
    return path.is_dir() or _is_image(path)


def image_files(folder: Path) -> list[Path]:
    """The images below a folder, in order of their names; or a single one."""
    if not folder.is_dir():
        return [folder]
    if not (files := [file for file in _visible(folder) if _is_image(file)]):
        meant = [file for file in _visible(folder) if file.suffix.lower() in WHOLE]
        todo = "it needs a folder for each class"
        if meant:
            todo = f"{meant[0]} must be used as it is, without a folder around it"
        raise FedtctError(f"there are no images ({listing(IMAGES)}) in {folder}: {todo}")
    return files


def _visible(folder: Path) -> list[Path]:
    """The files below a folder, in order of names, without hidden ones, which copies and thumbnails are."""
    found = files_of(folder) if folder.is_dir() else []
    return [path for path in found if not any(map(is_hidden, path.relative_to(folder).parts))]


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGES


def _read_image(file: Path, size: Sequence[int]) -> Any:
    """The pixels of one image, (C, H, W): grey or in colour as it is, unless the size says it."""
    from PIL import Image

    with Image.open(file) as image:
        if image.mode[0] in "IF":  # of which PIL would cut off all above 255
            raise FedtctError(
                f"{file} has pixels of more than 8 bits ({image.mode}): save images with 8 bits, scaled as they should "
                "be seen, or give arrays of real numbers (.npz)"
            )
        count = getattr(image, "n_frames", 1)
        if count > 1 and image.format != "MPO":  # a phone's photograph has previews of itself behind it
            raise FedtctError(f"{file} holds {count} images: save each as a file of its own")
        picture = _as_seen(image)
        if len(size) == 3:
            picture = picture.convert(MODES.get(size[0], picture.mode))
        picture = picture.resize((size[-1], size[-2])) if size else picture
        return np.atleast_3d(np.asarray(picture)).transpose(2, 0, 1)


def _is_grey(image: Image) -> bool:
    """Whether an image was saved as a grey one: without colours, or with a palette that has none."""
    if image.mode != "P":
        return image.mode in ("1", "L", "LA")
    colours = np.reshape(image.getpalette() or [], (-1, 3))
    return bool((colours == colours[:, :1]).all())


def _as_seen(image: Image) -> Image:
    """An image as a viewer shows it, grey or in colour: upright, and on white where it is transparent."""
    from PIL import ImageOps
    from PIL.Image import alpha_composite, new

    kind = "L" if _is_grey(image) else "RGB"
    image = ImageOps.exif_transpose(image)  # a camera writes beside the pixels how it was turned
    if image.mode[-1] == "A" or "transparency" in image.info:
        image = image.convert("RGBA")
        if np.ptp(np.asarray(image)[..., 3]):  # else it means nothing: some programs write zeros everywhere
            image = alpha_composite(new("RGBA", image.size, "white"), image)
    return image.convert(kind)
