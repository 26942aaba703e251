"""Samples from a silo's own files: arrays (.npz), tables (.csv, .parquet), or images in folders named by class."""

from __future__ import annotations

import warnings
import zipfile
import zlib
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from fedtct.data.image_files import WHOLE, holds_images, read_images
from fedtct.data.numbers_as_texts import refuse_numbers, refuse_slips
from fedtct.data.samples import FEW_WHOLE, MANY_WHOLE, numbers_or_names
from fedtct.data.table_files import padded_columns, read_table, zeros_kept
from fedtct.data.tables import from_matrix
from fedtct.data.texts import all_composed, composed
from fedtct.errors import FedtctError, listing, probably, quoted
from fedtct.files import is_hidden

if TYPE_CHECKING:
    import pandas as pd

TABLES = (".csv", ".parquet")
MANY_CLASSES = 100


def silo_paths(folder: Path) -> dict[str, Path]:
    """The silos in a folder, by name: a file or a folder of images each."""
    if not folder.is_dir():
        here = "" if folder.is_absolute() else f" in {Path.cwd()}"
        what = f"{folder} is a file, not a folder" if folder.exists() else f"there is no folder {folder}{here}"
        raise FedtctError(f"{what}: it should hold a file for each silo, or a folder of images")
    found: dict[str, Path] = {}
    others: list[str] = []
    for path in sorted(folder.iterdir()):
        if is_hidden(path.name):
            continue
        if not (path.is_dir() or path.suffix.lower() in WHOLE):
            others.append(path.name)
            continue
        name = path.name if path.is_dir() else path.stem  # folders may have dots in their names
        if name in found:
            raise FedtctError(f"{path} and {found[name]} would be silos of the same name: rename one of them")
        found[name] = path
    if not found:
        has = f"; it has {listing(others, 3)}" if others else ""
        raise FedtctError(f"{folder} holds no silos: it needs .npz, .csv or .parquet files, or folders of images{has}")
    if others:
        are = "is left out: it is not an" if len(others) == 1 else "are left out: none is an"
        warnings.warn(f"{folder}: {listing(others, 3)} {are} .npz, .csv or .parquet file", stacklevel=2)
    return found


class NothingToIgnore(UserWarning):
    """A file has no such column; another silo's may have it."""


class Reading(NamedTuple):
    """How silos' files are read: the settings for it of a run or a silo.toml."""

    target: str = ""
    task: str = "auto"
    image_size: Sequence[int] = ()
    texts: Sequence[str] = ()
    ignore: Sequence[str] = ()
    group: str = ""

    @classmethod
    def of(cls, config: Any) -> Self:
        """The settings of a run or a silo."""
        return cls(*(getattr(config, name) for name in cls._fields))

    def with_composed_names(self) -> Self:
        """The same with names of columns in the form that they have in tables that were read."""
        texts, ignore = all_composed(self.texts), all_composed(self.ignore)
        return self._replace(target=composed(self.target), texts=texts, ignore=ignore, group=composed(self.group))


def read_silo(path: Path, how: Reading) -> tuple[Any, Any, Any]:
    """Samples, their answers and, if ``group`` names a column, whose each is; see ``read_samples``."""
    how = how.with_composed_names()
    group = how.group
    if not group:
        return *read_samples(path, how), None
    if path.is_dir() or path.suffix.lower() not in TABLES:
        raise FedtctError(
            f"{path} is not a .csv or .parquet file and has no column '{group}': leave out group (--group)"
        )
    texts, ignore = ([name for name in names if name != group] for names in (how.texts, how.ignore))
    how = how._replace(texts=texts, ignore=ignore)
    table = read_table(path, texts)
    if group not in table.columns:
        raise FedtctError(f"{path} has no column '{group}', which is set as group{_those_there(group, table)}")
    if group == how.target:
        raise FedtctError(f"'{group}' is the target: group must be another column, which says whose each row is")
    groups = table.pop(group)
    return *_rows_of(table, path, how), groups


def _those_there(name: str, table: pd.DataFrame) -> str:
    """The end of an error about a column that is not there: the columns that are."""
    hint = probably(name, table.columns)
    return f"{': ' if hint else '.'}{hint} It has {listing(table.columns)}"


def read_samples(path: Path, how: Reading, only: Sequence[str] = ()) -> tuple[Any, Any]:
    """Samples and their answers, which are a table's column ``target``, the folders of images, or the array ``y``.

    If it is known which columns the model takes, ``only`` those are looked at.
    """
    if path.is_dir():
        x, files = read_images(path, how.image_size)
        if loose := [file for file in files if file.parent == path]:
            raise FedtctError(f"{loose[0]} has no class: put it into a folder named after its class, in {path}")
        classes = [file.relative_to(path).parts[0].strip() for file in files]  # the top folder is the class
        return x, numbers_or_names(classes, how.task, f"{path}: the class")
    if path.suffix.lower() in TABLES:
        how = how.with_composed_names()
        return _rows_of(read_table(path, how.texts), path, how, all_composed(only))
    x, y = load_npz(path, "x", "y")
    y = _decoded(y, path) if y.dtype.kind == "S" else y
    return _as_table(x), y if how.task == "auto" else numbers_or_names(y.tolist(), how.task, f"{path}: y")


def _rows_of(table: pd.DataFrame, path: Path, how: Reading, only: Sequence[str] = ()) -> tuple[pd.DataFrame, Any]:
    """A table's rows and their answers."""
    if not (target := how.target):
        raise FedtctError(
            f"{path} is a table: set target (--target) to the column to learn, one of {listing(table.columns)}"
        )
    if target not in table.columns:
        raise FedtctError(f"{path} has no column '{target}'{_those_there(target, table)}")
    if missing := int(table[target].isna().sum()):
        raise FedtctError(
            f"{path}: {missing} of {len(table)} rows have no '{target}' (empty, NA, None or null): fill it in, or "
            "drop these rows"
        )
    others = [name for name in table.columns if name not in (target, *only)] if only else []
    inputs, answers = _inputs(table.drop(columns=others), how, path), table[target]
    if how.task != "regression" and path.suffix.lower() == ".csv" and answers.dtype.kind in "iu":
        answers = zeros_kept(path, answers)
    return inputs, _column_answers(answers, how.task, f"{path}: column '{target}'")


def _inputs(table: pd.DataFrame, how: Reading, path: Path) -> pd.DataFrame:
    """The columns that are learnt from; refused if named columns are missing, or if texts were meant as numbers."""
    if how.target in how.ignore:
        raise FedtctError(f"'{how.target}' is the target: remove it from ignore")
    if both := [name for name in how.texts if name in how.ignore]:
        raise FedtctError(f"'{both[0]}' is in texts and in ignore: remove it from one of them")
    if lacking := [name for name in how.texts if name not in table.columns]:
        raise FedtctError(f"{path} has no column {quoted(lacking)}, which texts lists. It has {listing(table.columns)}")
    for unknown in (name for name in how.ignore if name not in table.columns):  # other silos may have it
        warnings.warn(f"{path} has no column '{unknown}' to ignore", NothingToIgnore, stacklevel=2)
    inputs = table.drop(columns=[how.target, *how.ignore], errors="ignore")
    for name, column in inputs.items():
        if column.dtype.kind == "O" and name not in how.texts:
            refuse_slips(column.dropna().tolist(), f"{path}: column '{name}'")
    for name in padded_columns(path, inputs) if path.suffix.lower() == ".csv" else ():
        warnings.warn(
            f"column '{name}' has whole numbers that begin with 0, as codes do, and is read as numbers: if these are "
            "codes, list it in texts (--texts)",
            stacklevel=2,
        )
    return inputs


def unread(paths: Sequence[Path]) -> dict[str, str]:
    """The settings that ``read_samples`` does not read for any of these paths, with what they are for."""
    tables, images = any(path.suffix.lower() in TABLES for path in paths), any(path.is_dir() for path in paths)
    found = {} if tables else dict.fromkeys(("target", "texts", "ignore"), "tables")
    return found if images else found | {"image_size": "folders of images"}


def read_inputs(path: Path, image_size: Sequence[int] = (), texts: Sequence[str] = ()) -> Any:
    """Samples alone, to predict from: a table may have more columns, images may lie in folders or not, or be one."""
    if holds_images(path):
        return read_images(path, image_size)[0]
    if path.suffix.lower() in TABLES:
        return read_table(path, all_composed(texts))
    return _as_table(*load_npz(path, "x"))


def load_npz(path: Path, *names: str) -> list[Any]:
    """Arrays of a file, of which no code is executed."""
    if path.is_file() and path.suffix.lower() != ".npz":
        raise FedtctError(
            f"{path} is not an .npz, .csv or .parquet file, nor a folder of images: save it as one of these"
        )
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return [arrays[name] for name in names]
    except KeyError as error:
        there = listing(arrays.files) or "none"
        raise FedtctError(f"{path} must hold the arrays {' and '.join(names)}. It has {there}") from error
    except FileNotFoundError as error:
        raise FedtctError(f"cannot read {path}: {error.strerror}") from error
    except (OSError, ValueError, AttributeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        if "Object arrays" in str(error):  # numpy has no error of its own for that
            kinds = "texts with astype(str), numbers with astype(float)"
            raise FedtctError(f"{path} must hold plain arrays, not Python objects: save {kinds}") from error
        raise FedtctError(f"{path} cannot be read as an .npz file of plain arrays", error) from error


def _decoded(y: Any, path: Path) -> Any:
    """Bytes decoded as texts."""
    try:
        return np.char.decode(y, "utf-8")
    except UnicodeDecodeError as error:
        raise FedtctError(f"{path}: y holds bytes that are not UTF-8 text: save it with astype(str)") from error


def _column_answers(column: pd.Series[Any], task: str, whose: str) -> Any:
    """A table's target; with task "auto" real numbers are a regression's, everything else is classes."""
    import pandas as pd

    if all(isinstance(value, Decimal) for value in column):
        column = pd.Series([_plain_number(value) for value in column])
    values = column.tolist()
    different = len(set(values))
    if task == "auto":
        refuse_numbers(values, whose)
    if task == "auto" and pd.api.types.is_float_dtype(column.dtype):
        task = "regression"
        if different <= FEW_WHOLE and different < len(values) and all(value.is_integer() for value in values):
            warnings.warn(
                f"column '{column.name}' holds a few different whole numbers, written like 1.0, and they are taken as "
                "quantities: if they are classes, set task = classification (--task in a command); if not, set task "
                "= regression",
                stacklevel=2,
            )
    whole = all(isinstance(value, int) and not isinstance(value, bool) for value in values)
    if task == "auto" and whole and different > max(MANY_CLASSES, len(values) // 10):
        raise FedtctError(
            f"{whose} holds {different} different whole numbers: say whether they are classes or quantities, "
            "with task = classification or task = regression"
        )
    if task == "auto" and whole and different > MANY_WHOLE:  # in the same words for every silo, so that it is said once
        warnings.warn(
            f"column '{column.name}' holds more than {MANY_WHOLE} different whole numbers, and they are taken as "
            "classes: if they are quantities, such as ages, set task = regression (--task in a command); if not, set "
            "task = classification",
            stacklevel=2,
        )
    return numbers_or_names(values, task, whose)


def _plain_number(value: Decimal) -> int | float:
    """An exact decimal, as databases and Parquet files have them: a whole number unless it has decimal places."""
    return float(value) if int(value.as_tuple().exponent) < 0 else int(value)


def _as_table(x: Any) -> Any:
    """A matrix of real numbers is a table, standardised like any other; other arrays stay as they are."""
    return from_matrix(x) if x.ndim == 2 and x.dtype.kind == "f" else x
