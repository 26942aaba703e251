"""Images in files, as pixels."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedtct.errors import FedtctError

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff")
LARGEST_SIDE = 10_000  # that images are scaled to: an image then takes 100 MB and more


def read_images(folder: Path, size: Sequence[int] = ()) -> tuple[Any, list[Path]]:
    """Images of a folder and of its folders as pixels (N, C, H, W), and their files, in order of their names."""
    if max(size, default=0) > LARGEST_SIDE:
        raise FedtctError(f"image_size must be at most {LARGEST_SIDE},{LARGEST_SIDE}")
    files, pixels = image_files(folder), []
    for file in files:
        try:
            pixels.append(_read_image(file, size))
        except FedtctError:
            raise
        except Exception as error:  # PIL has many, some of them Python's own, for a damaged file
            raise FedtctError(f"{file} cannot be read as an image", error) from error
        if pixels[-1].shape != pixels[0].shape:
            todo = to_be_alike(pixels[-1].shape, pixels[0].shape)
            raise FedtctError(f"{file} has shape {pixels[-1].shape}, others {pixels[0].shape}: {todo}")
    return np.stack(pixels), files


def to_be_alike(*shapes: Sequence[int]) -> str:
    """What to do about images of several shapes (C, H, W)."""
    channels = {shape[0] for shape in shapes}
    return "set image_size" if len(channels) == 1 else "save all of them in grey, or all in colour"


def holds_images(path: Path) -> bool:
    """Whether these are images: a folder of them, or a single one."""
    return path.is_dir() or path.suffix.lower() in IMAGES


def image_files(folder: Path) -> list[Path]:
    """The images of a folder and of its folders, in order of their names; or a single one."""
    if not folder.is_dir():
        return [folder]
    files = [file for file in sorted(folder.rglob("*")) if file.suffix.lower() in IMAGES and file.name[0] != "."]
    if not files:
        raise FedtctError(f"there are no images in {folder}: it needs a folder for each class")
    return files


def _read_image(file: Path, size: Sequence[int]) -> Any:
    """The pixels of one image, (C, H, W): grey or in colour."""
    from PIL import Image, ImageOps

    with Image.open(file) as image:
        if image.mode[0] in "IF":  # PIL would cut at 255 what is beyond it
            raise FedtctError(
                f"{file} has pixels of more than 8 bits ({image.mode}): save images with 8 bits, scaled as they should "
                "be seen, or give arrays of real numbers (.npz)"
            )
        upright = ImageOps.exif_transpose(image)  # a camera that was turned writes so beside the pixels
        picture = upright.convert("L" if image.mode in ("1", "L") else "RGB")
        picture = picture.resize((size[1], size[0])) if size else picture
        return np.atleast_3d(np.asarray(picture)).transpose(2, 0, 1)
