"""What a silo says about itself, in a silo.toml of its own: its name, where its data is, how to reach the server."""

import importlib
import os
import re
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedtct.errors import FedtctError
from fedtct.runs.config import parse_toml
from fedtct.silo import Silo

SECRET = "noise.key"
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff")


@dataclass(frozen=True)
class SiloConfig:
    """A silo. Paths are relative to the file that it was read from."""

    name: str
    data: str  # an .npz file, a folder of class-named image folders, or module:function
    holdout: float = 0.0
    classes: tuple[str, ...] = ()  # for image folders: all classes of the federation, in the order they agreed on
    image_size: tuple[int, ...] = ()  # height, width that images are scaled to
    server: str = "127.0.0.1:8000"
    ca: str = "ca.crt"
    key: str = ""  # this silo's private key
    device: str = "auto"
    cache: str = "cache"
    cache_gb: float = 50.0
    folder: Path = Path()

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w-]+", self.name):
            raise FedtctError(f"a silo's name is of letters, digits, - and _: '{self.name}' is not")

    @classmethod
    def read(cls, path: str | Path) -> "SiloConfig":
        """The silo that a file describes."""
        path = Path(path).expanduser()
        return cls.of(parse_toml(path), path)

    @classmethod
    def of(cls, values: dict[str, Any], path: Path) -> "SiloConfig":
        """The silo of these settings, checked by name and kind."""
        known = {spec.name: spec for spec in fields(cls) if spec.name != "folder"}
        for name, value in values.items():
            if name not in known:
                raise FedtctError(f"{path} has an unknown setting '{name}': known are {', '.join(known)}")
            default = known[name].default
            kinds = {float: (int, float), tuple: (list,)}.get(type(default), (str,))
            if not isinstance(value, kinds) or isinstance(value, bool):
                raise FedtctError(f"{path}: {name} must not be {value!r}")
        for name in ("name", "data"):
            if name not in values:
                raise FedtctError(f"{path} does not say {name} = ...")
        given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return replace(cls(**given), folder=path.absolute().parent)

    def path(self, text: str) -> Path:
        """A path of this file."""
        return self.folder / Path(text).expanduser()

    def secret(self) -> str:
        """What this silo's noise is drawn with: made once, and nobody else's."""
        file = self.path(SECRET)
        try:
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as new:
                new.write(secrets.token_hex(32))
        except FileExistsError:
            pass
        return file.read_text().strip()

    def load(self) -> Silo:
        """The silo with its data."""
        x, y = load_data(self)
        return Silo(x, y, holdout=self.holdout, name=self.name)


def load_data(silo: SiloConfig) -> tuple[Any, Any]:
    """Samples and labels, from wherever the silo says they are."""
    path = silo.path(silo.data)
    if path.suffix == ".npz" or path.is_file():
        return load_npz(path)
    if path.is_dir():
        return load_images(path, silo.classes, silo.image_size)
    if re.fullmatch(r"[\w.]+:\w+", silo.data):
        return call(silo.data, silo.folder)
    raise FedtctError(f"{silo.name}: there is no data at {path}; give an .npz file, a folder or module:function")


def load_npz(path: Path) -> tuple[Any, Any]:
    """The arrays x and y of a file; nothing in it can run."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return arrays["x"], arrays["y"]
    except KeyError as error:
        raise FedtctError(f"{path} must hold the arrays x and y") from error
    except (OSError, ValueError, AttributeError) as error:
        raise FedtctError(f"{path} cannot be read as an .npz file of plain arrays: {error}") from error


def load_images(folder: Path, classes: Sequence[str], size: Sequence[int]) -> tuple[Any, Any]:
    """Images in folders named by class, as pixels (N, C, H, W)."""
    from PIL import Image, UnidentifiedImageError

    if not classes:
        raise FedtctError(
            "image folders need classes = [...] in silo.toml: all of them, in the same order at each silo"
        )
    if unknown := sorted(f.name for f in folder.iterdir() if f.is_dir() and f.name not in classes):
        raise FedtctError(f"{folder / unknown[0]} is no class that silo.toml names")
    pixels, labels = [], []
    for label, name in enumerate(classes):
        for file in sorted(f for f in (folder / name).glob("*") if f.suffix.lower() in IMAGES):
            try:
                with Image.open(file) as image:
                    picture = image.convert("L" if image.mode in ("1", "L", "I;16") else "RGB")
                    picture = picture.resize((size[1], size[0])) if size else picture
                    pixels.append(np.atleast_3d(np.asarray(picture)).transpose(2, 0, 1))
            except (OSError, UnidentifiedImageError) as error:
                raise FedtctError(f"{file} cannot be read as an image: {error}") from error
            if pixels[-1].shape != pixels[0].shape:
                raise FedtctError(f"{file} has shape {pixels[-1].shape}, others {pixels[0].shape}: set image_size")
            labels.append(label)
    if not pixels:
        raise FedtctError(f"there are no images in {folder}: it needs a folder for each class")
    return np.stack(pixels), np.array(labels)


def call(name: str, folder: Path) -> tuple[Any, Any]:
    """What a function of the silo's own returns: samples and labels."""
    module, function = name.split(":")
    sys.path.insert(0, str(folder))
    try:
        x, y = getattr(importlib.import_module(module), function)()
    except (ImportError, AttributeError) as error:
        raise FedtctError(f"there is no {name} to import: {error}") from error
    except (TypeError, ValueError) as error:
        raise FedtctError(f"{name}() must return samples and labels: {error}") from error
    finally:
        sys.path.remove(str(folder))
    return x, y
