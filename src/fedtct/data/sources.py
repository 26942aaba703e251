"""Samples from a silo's own files: arrays (.npz), tables (.csv, .parquet), or images in folders named by class."""

from __future__ import annotations

import re
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedtct.data.samples import MANY_WHOLE
from fedtct.data.tables import are_comma_numbers, from_matrix, refuse_numbers, refuse_slips, written
from fedtct.errors import FedtctError, listing

if TYPE_CHECKING:
    import pandas as pd

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff")
TABLES = (".csv", ".parquet")
TASKS = ("auto", "classification", "regression")
READING = ("target", "task", "image_size", "texts", "ignore")  # the settings that say how files are read
MANY_CLASSES = 100
FEW_WHOLE = 10  # different real numbers, all of them whole: pandas writes classes so where some were missing
LARGEST_SIDE = 10_000  # that images are scaled to: an image then takes 100 MB and more
TRUTHS = {word: str(value) for value in (True, False) for word in (str(value), str(value).upper(), str(value).lower())}
WHOLE_CODE = re.compile(r"\d+\.0")  # as pandas writes codes where some were missing
PADDED = re.compile(r"[+-]?0\d+")  # a whole number as codes are written


def silo_paths(folder: Path) -> dict[str, Path]:
    """The silos in a folder, by name: a file or a folder of images each."""
    if not folder.is_dir():
        here = "" if folder.is_absolute() else f" in {Path.cwd()}"
        what = f"{folder} is a file, not a folder" if folder.exists() else f"there is no folder {folder}{here}"
        raise FedtctError(f"{what}: it should hold a file for each silo, or a folder of images")
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if not (path.is_dir() or path.suffix.lower() in (".npz", *TABLES)):
            warnings.warn(f"{path} is taken for no silo: it is no .npz, .csv or .parquet file", stacklevel=2)
            continue
        name = path.name if path.is_dir() else path.stem  # folders may have dots in their names
        if name in found:
            raise FedtctError(f"{path} and {found[name]} would be silos of the same name: rename one of them")
        found[name] = path
    if not found:
        raise FedtctError(f"{folder} holds no silos: it needs .npz, .csv or .parquet files, or folders of images")
    return found


def reading(config: Any) -> tuple[Any, ...]:
    """How a run, or a silo, says that files are read: what ``read_samples`` takes after the path."""
    return tuple(getattr(config, name) for name in READING)


def read_samples(
    path: Path,
    target: str = "",
    task: str = "auto",
    image_size: Sequence[int] = (),
    texts: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> tuple[Any, Any]:
    """Samples and what is to be learnt of them: of a table, its column ``target``; ``texts`` as in ``read_table``."""
    if path.is_dir():
        x, files = read_images(path, image_size)
        if loose := [file for file in files if file.parent == path]:
            raise FedtctError(f"{loose[0]} has no class: put it into a folder called like its class, in {path}")
        return x, _numbers_or_names([file.parent.name for file in files], task, f"{path}: the class")
    if path.suffix.lower() in TABLES:
        return _read_rows(path, target, task, texts, ignore)
    x, y = load_npz(path, "x", "y")
    return _as_table(x), y if task == "auto" else _numbers_or_names(y.tolist(), task, f"{path}: y")


def _read_rows(
    path: Path, target: str, task: str, texts: Sequence[str], ignore: Sequence[str]
) -> tuple[pd.DataFrame, Any]:
    table = read_table(path, texts)
    if not target:
        raise FedtctError(
            f"{path} is a table: say which column is to be learnt, as target (--target), of {listing(table.columns)}"
        )
    if target not in table.columns:
        raise FedtctError(f"{path} has no column '{target}'. It has {listing(table.columns)}")
    if missing := int(table[target].isna().sum()):
        raise FedtctError(
            f"{path}: {missing} of {len(table)} rows have no '{target}' (nothing, NA, None or null is there): "
            "fill it in, or drop them"
        )
    inputs, answers = _inputs(table, target, texts, ignore, path), table[target]
    if task != "regression" and path.suffix.lower() == ".csv" and answers.dtype.kind in "iu":
        answers = _codes(path, answers)
    return inputs, _column_answers(answers, task, f"{path}: column '{target}'")


def _inputs(table: pd.DataFrame, target: str, texts: Sequence[str], ignore: Sequence[str], path: Path) -> pd.DataFrame:
    """The columns that are learnt from; refused where columns are named that are not there, or numbers were meant."""
    if target in ignore:
        raise FedtctError(f"'{target}' is what is learnt: leave it out of ignore")
    if both := [name for name in texts if name in ignore]:
        raise FedtctError(f"'{both[0]}' is in texts and in ignore: take it out of one of them")
    if lacking := [name for name in texts if name not in table.columns]:
        raise FedtctError(f"{path} has no column '{lacking[0]}' of texts. It has {listing(table.columns)}")
    for unknown in (name for name in ignore if name not in table.columns):  # other silos may have it
        warnings.warn(f"{path} has no column '{unknown}' to ignore", stacklevel=2)
    inputs = table.drop(columns=[target, *ignore], errors="ignore")
    for name, column in inputs.items():
        if column.dtype.kind == "O" and name not in texts:
            refuse_slips(column.dropna().tolist(), f"{path}: column '{name}'")
    return inputs


def unread(paths: Sequence[Path]) -> dict[str, str]:
    """The settings that ``read_samples`` takes no notice of for any of these paths, with what they are for."""
    tables, images = any(path.suffix.lower() in TABLES for path in paths), any(path.is_dir() for path in paths)
    found = {} if tables else dict.fromkeys(("target", "texts", "ignore"), "tables")
    return found if images else found | {"image_size": "folders of images"}


def read_inputs(path: Path, image_size: Sequence[int] = (), texts: Sequence[str] = ()) -> Any:
    """Samples alone, to predict from: a table may have more columns, images may lie in folders or not, or be one."""
    if holds_images(path):
        return read_images(path, image_size)[0]
    return read_table(path, texts) if path.suffix.lower() in TABLES else _as_table(*load_npz(path, "x"))


def read_table(path: Path, texts: Sequence[str] = ()) -> pd.DataFrame:
    """The table in a CSV or Parquet file; numbers are read to their last digit.

    A CSV file does not say what is a text, so it is guessed, of a file at a time: 01 is one beside X1 and a number
    beside 02. Columns that are known to hold ``texts`` are read as such, whatever else is in the file.
    """
    import pandas as pd

    try:
        table = _read_parquet(path, texts) if path.suffix.lower() == ".parquet" else _read_csv(path, texts)
    except FedtctError:
        raise
    except ImportError as error:
        raise FedtctError(f"{path}: reading Parquet files needs pyarrow: pip install 'fedtct[parquet]'") from error
    except OSError as error:
        if error.strerror is None:  # no word of the system's, but of a library
            raise FedtctError(f"cannot read {path}", error) from error
        raise FedtctError(f"cannot read {path}: {error.strerror}") from error
    except pd.errors.EmptyDataError as error:
        raise FedtctError(f"{path} cannot be read as a table: it is empty") from error
    except UnicodeDecodeError as error:
        raise FedtctError(f"{path} cannot be read as a table: it is no UTF-8 text; save it as CSV in UTF-8") from error
    except Exception as error:
        raise FedtctError(f"{path} cannot be read as a table", error) from error
    if table.empty:
        raise FedtctError(f"{path} is a table without rows")
    return table.rename(columns=str)


def _read_parquet(path: Path, texts: Sequence[str]) -> pd.DataFrame:
    """The table in a Parquet file, with numbers as texts where they are codes."""
    import pandas as pd

    table = pd.read_parquet(path).rename(columns=str)
    for name in texts:
        if name in table.columns and pd.api.types.is_numeric_dtype(table[name]):
            table[name] = table[name].map(written, na_action="ignore")
    return table


def _read_csv(path: Path, texts: Sequence[str]) -> pd.DataFrame:
    """The table in a CSV file; refused where pandas would move columns under other names, or make up names."""
    import pandas as pd

    how = _how_written(path)
    header = pd.read_csv(path, **how, header=None, nrows=1, dtype=str, keep_default_na=False)
    written = [str(name) for name in header.loc[0]] if len(header) else []
    table = pd.read_csv(path, **how, dtype={name: str for name in written if name.strip() in texts})
    if len(table) and not isinstance(table.index, pd.RangeIndex):  # what is too much became an index
        raise FedtctError(
            f"{path}: rows have more fields than the first line has names: name every column, end no row with a "
            "separator, and where numbers have decimal commas put semicolons between columns"
        )
    names = [name.strip() for name in written]
    if twice := [name for place, name in enumerate(names) if name and name in names[:place]]:
        raise FedtctError(f"{path}: there are several columns called '{twice[0]}': rename or drop all but one")
    table = _without_row_numbers(table.rename(columns=lambda name: str(name).strip()))
    for name in table.columns:
        if table[name].dtype.kind == "O":
            table[name] = _words(table[name], decimal_commas=how["sep"] == ";" and name not in texts)
        codes = table[name].dropna() if name in texts else ()
        if len(codes) and all(map(WHOLE_CODE.fullmatch, codes)):
            table[name] = table[name].str.removesuffix(".0")
    return table


def _words(column: pd.Series[Any], decimal_commas: bool) -> pd.Series[Any]:
    """What no numbers were found in: 3,5 is one where semicolons separate columns, and a truth is written in one way.

    In a file that has no other texts in that column, TRUE is read as a truth value.
    """
    if decimal_commas and are_comma_numbers(column.dropna().tolist()):
        return column.str.replace(",", ".").astype(float)
    return column.map(_word)


def _word(value: Any) -> Any:
    """A text without blanks around it; nothing but blanks is a missing value."""
    return TRUTHS.get(value.strip(), value.strip()) or None if isinstance(value, str) else value


def _how_written(path: Path) -> dict[str, Any]:
    """What pandas must know to read a CSV file."""
    import pandas as pd

    with path.open(encoding="utf-8-sig") as file:
        header = re.sub('"[^"]*"', "", file.readline())  # names in quotes may hold anything
    # Of a large file pandas would guess a part at a time: a category is then 1 in one part and 1.0 in another.
    how: dict[str, Any] = {"sep": max(";\t|,", key=header.count), "encoding": "utf-8-sig", "low_memory": False}
    return how if int(pd.__version__.split(".")[0]) >= 3 else how | {"float_precision": "round_trip"}


def _codes(path: Path, numbers: pd.Series[Any]) -> pd.Series[Any]:
    """A CSV file's column of whole numbers; as it is written, where zeros come first: 01 is the name of a class."""
    import pandas as pd

    def is_target(name: str) -> bool:
        return name.strip() == numbers.name

    written = pd.read_csv(path, **_how_written(path), usecols=is_target, dtype=str).iloc[:, 0].str.strip()
    return written if any(map(PADDED.fullmatch, written)) else numbers


def _without_row_numbers(table: pd.DataFrame) -> pd.DataFrame:
    """The table less a first column without a name: pandas writes one unless it is told not to, of row numbers."""
    return table.drop(columns="Unnamed: 0") if table.columns[0] == "Unnamed: 0" else table


def load_npz(path: Path, *names: str) -> list[Any]:
    """Arrays of a file; nothing in it can run."""
    if path.is_file() and path.suffix.lower() != ".npz":
        raise FedtctError(f"{path} is no .npz, .csv or .parquet file, nor a folder of images: save it as one of these")
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return [arrays[name] for name in names]
    except KeyError as error:
        raise FedtctError(f"{path} must hold the arrays {' and '.join(names)}") from error
    except FileNotFoundError as error:
        raise FedtctError(f"cannot read {path}: {error.strerror}") from error
    except (OSError, ValueError, AttributeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        if "Object arrays" in str(error):  # numpy tells them apart by its words alone
            kinds = "texts with astype(str), numbers with astype(float)"
            raise FedtctError(f"{path} must hold plain arrays, not Python objects: save {kinds}") from error
        raise FedtctError(f"{path} cannot be read as an .npz file of plain arrays", error) from error


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


def to_be_alike(one: Sequence[int], other: Sequence[int]) -> str:
    """What to do about images of two shapes (C, H, W)."""
    return "set image_size" if one[0] == other[0] else "save all of them in grey, or all in colour"


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


def _numbers_or_names(values: Sequence[Any], task: str, whose: str) -> Any:
    """Plain values as what is to be learnt: numbers of a regression, or else names of classes."""
    if task == "regression":
        try:
            return np.array([float(value) for value in values])
        except (TypeError, ValueError) as error:
            raise FedtctError(f"{whose} holds texts: a regression needs numbers") from error
    if any(isinstance(value, float) and not value.is_integer() for value in values):
        raise FedtctError(f"{whose} holds numbers that are not whole: they are no classes; try task = regression")
    return np.array([str(int(value)) if isinstance(value, float) else str(value) for value in values])


def _column_answers(column: pd.Series[Any], task: str, whose: str) -> Any:
    """A table's target; with task "auto" real numbers are a regression's, everything else is classes."""
    import pandas as pd

    if all(isinstance(value, Decimal) for value in column):
        column = pd.Series([_plain_number(value) for value in column])
    values = column.tolist()
    if task == "auto":
        refuse_numbers(values, whose)
    if task == "auto" and pd.api.types.is_float_dtype(column.dtype):
        task = "regression"
        if len(set(values)) <= FEW_WHOLE and all(value.is_integer() for value in values):
            warnings.warn(
                f"column '{column.name}' holds a few whole numbers written as real ones, as 1.0 is, and they are taken "
                "as quantities: if they are classes, set task = classification (--task in a command); if not, "
                "task = regression",
                stacklevel=2,
            )
    whole = all(isinstance(value, int) and not isinstance(value, bool) for value in values)
    different = len(set(values))
    if task == "auto" and whole and different > max(MANY_CLASSES, len(values) // 10):
        raise FedtctError(
            f"{whose} holds {different} different whole numbers: say whether they are classes or quantities, "
            "with task = classification or task = regression"
        )
    if task == "auto" and whole and different > MANY_WHOLE:  # the same words for every silo: they are said once
        warnings.warn(
            f"column '{column.name}' holds more than {MANY_WHOLE} different whole numbers, and they are taken as "
            "classes: if they are quantities, such as ages, set task = regression (--task in a command); if not, "
            "task = classification",
            stacklevel=2,
        )
    return _numbers_or_names(values, task, whose)


def _plain_number(value: Decimal) -> int | float:
    """An exact decimal, as databases and Parquet files have them: a whole number unless it has decimal places."""
    return float(value) if int(value.as_tuple().exponent) < 0 else int(value)


def _as_table(x: Any) -> Any:
    """A matrix of real numbers is a table, standardised like any other; other arrays stay as they are."""
    return from_matrix(x) if x.ndim == 2 and x.dtype.kind == "f" else x
