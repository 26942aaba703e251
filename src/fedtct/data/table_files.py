"""Tables in CSV and Parquet files: what pandas would guess wrongly is read as it was meant, or refused."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedtct.data.csv_lines import refuse_nul, warn_of_short_rows
from fedtct.data.numbers_as_texts import are_comma_numbers, written
from fedtct.data.texts import composed
from fedtct.errors import FedtctError

if TYPE_CHECKING:
    import pandas as pd

TRUTHS = {word: str(value) for value in (True, False) for word in (str(value), str(value).upper(), str(value).lower())}
WHOLE_CODE = re.compile(r"\d+\.0")  # as pandas writes codes where some were missing
DOTTED = re.compile(r"[+-]?\d{1,3}(\.\d{3})?")  # as whole numbers are where dots are between thousands
SEPARATOR = re.compile(r'"?sep=([^\w"\n])"?\s*', re.IGNORECASE)  # a first line that is meant for Excel
PADDED = re.compile(r"[+-]?0\d+")  # a whole number as codes are written


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
        if error.strerror is None:  # a library's error, not the system's
            raise FedtctError(f"cannot read {path}", error) from error
        raise FedtctError(f"cannot read {path}: {error.strerror}") from error
    except pd.errors.EmptyDataError as error:
        raise FedtctError(f"{path} cannot be read as a table: it is empty") from error
    except UnicodeDecodeError as error:
        raise FedtctError(f"{path} cannot be read as a table: it is not UTF-8 text; save it as CSV in UTF-8") from error
    except Exception as error:
        raise FedtctError(f"{path} cannot be read as a table", error) from error
    if table.empty:
        raise FedtctError(f"{path} is a table without rows")
    return table


def _read_parquet(path: Path, texts: Sequence[str]) -> pd.DataFrame:
    """The table in a Parquet file, with numbers as texts where they are codes."""
    import pandas as pd

    table = _with_index(pd.read_parquet(path))
    _refuse_twins(path, list(table.columns))
    for name in texts:
        if name in table.columns and pd.api.types.is_numeric_dtype(table[name]):
            table[name] = table[name].map(written, na_action="ignore")
    return table


def _with_index(table: pd.DataFrame) -> pd.DataFrame:
    """The table with named levels of its index, in which pandas hides columns, as columns again."""
    index = [name for name in table.index.names if name is not None and name not in table.columns]
    return table.reset_index(index).rename(columns=_name)


def _read_csv(path: Path, texts: Sequence[str]) -> pd.DataFrame:
    """The table in a CSV file; refused where pandas would move columns under other names, or make up names."""
    import pandas as pd

    how = _how_written(path)
    refuse_nul(path)
    header = pd.read_csv(path, **how, header=None, nrows=1, dtype=str, keep_default_na=False)
    names = [str(name) for name in header.loc[0]] if len(header) else []
    table = _parsed(path, how, as_texts=[name for name in names if _name(name) in texts])
    _refuse_twins(path, [_name(name) for name in names])
    named = max((place for place, name in enumerate(names, 1) if _name(name)), default=0)
    if named and table.iloc[:, named - 1].isna().any():  # perhaps because a row ends too early
        warn_of_short_rows(path, how, named)
    table = _without_row_numbers(_without_nameless(path, table, names).rename(columns=_name))
    _mend_words(path, how, table, texts)
    _refuse_repeated_names(path, table)
    return table


def _parsed(path: Path, how: dict[str, Any], as_texts: Sequence[str]) -> pd.DataFrame:
    """What pandas makes of a CSV file, without empty rows at its end; refused if rows have more fields than names."""
    import pandas as pd

    types = dict.fromkeys(as_texts, str)
    table: pd.DataFrame = pd.read_csv(path, **how, dtype=types)
    if (rows := _rows_to_the_last_value(table)) < len(table):  # read again: the empty rows made 1.0 of 1
        table = pd.read_csv(path, **how, dtype=types, nrows=rows)
    if len(table) and not isinstance(table.index, pd.RangeIndex):  # pandas takes surplus fields as an index
        raise FedtctError(
            f"{path}: rows have more fields than the first line has names: name every column, remove separators at "
            "the ends of rows, and put semicolons between columns if numbers have decimal commas"
        )
    return table


def _mend_words(path: Path, how: dict[str, Any], table: pd.DataFrame, texts: Sequence[str]) -> None:
    """In columns without numbers, strip blanks, read decimal commas and truth values; of codes drop what pandas added.

    Works in place. If some column has decimal commas, a dot in another may be between thousands: that is refused.
    """
    with_dots = [name for name in table.columns if table[name].dtype.kind == "f"]
    for name in table.columns:
        if table[name].dtype.kind == "O":
            table[name] = _words(table[name], decimal_commas=how["sep"] == ";" and name not in texts)
            if table[name].dtype.kind == "f":
                _refuse_dots_between_thousands(path, how, with_dots)
        codes = table[name].dropna() if name in texts else ()
        if len(codes) and all(map(WHOLE_CODE.fullmatch, codes)):
            table[name] = table[name].str.removesuffix(".0")


def _refuse_dots_between_thousands(path: Path, how: dict[str, Any], names: Sequence[str]) -> None:
    """Refuse columns with dots between thousands: 1.234 was read as a number below two, 999 as it is."""
    import pandas as pd

    table: pd.DataFrame = pd.read_csv(path, **how, usecols=lambda name: _name(name) in names, dtype=str)
    for name, column in table.items():
        values = column.dropna().str.strip()
        if values.str.fullmatch(DOTTED).all() and values.str.contains(".", regex=False).any():
            raise FedtctError(
                f"{path}: column '{_name(name)}' has dots between thousands, as others have decimal commas: write "
                "1234, without dots"
            )


def _name(written: object) -> str:
    """The name of a column as it is meant: without blanks around it, in one form."""
    return composed(str(written))


def _refuse_twins(path: Path, names: Sequence[str]) -> None:
    """Refuse columns of the same name: nobody knows which is meant."""
    if twice := [name for name, count in Counter(names).items() if name and count > 1]:
        raise FedtctError(f"{path}: there are several columns called '{twice[0]}': rename or drop all but one")


def _without_nameless(path: Path, table: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """The table without columns that have neither name nor value: spreadsheets may end all rows with a separator.

    Only the first column may have values without a name: pandas writes row numbers like that.
    """
    nameless = [place for place, name in enumerate(names) if place and not _name(name)]
    if filled := [place for place in nameless if table.iloc[:, place].map(_word).notna().any()]:
        raise FedtctError(f"{path}: column {filled[0] + 1} has no name in the first line: name it, or drop it")
    return table.iloc[:, [place for place in range(len(names)) if place not in nameless]] if nameless else table


def _refuse_repeated_names(path: Path, table: pd.DataFrame) -> None:
    """Refuse a row that repeats the first line, as in files that were joined: it would be taken as a sample."""
    if any(values.dtype.kind != "O" for _, values in table.items()):  # such a row makes texts of all columns
        return
    again = (table == table.columns.to_numpy()).all(axis=1).to_numpy().nonzero()[0]
    if len(again):
        raise FedtctError(f"{path}: row {again[0] + 1} repeats the column names: remove it, and any like it")


def _words(column: pd.Series[Any], decimal_commas: bool) -> pd.Series[Any]:
    """A column in which pandas found no numbers, with decimal commas read, or else texts and truth values in one form.

    Pandas itself reads a column with nothing but TRUE and FALSE as truth values.
    """
    if decimal_commas and are_comma_numbers(column.dropna().tolist()):
        return column.str.replace(",", ".").astype(float)
    return column.map(_word)


def _word(value: Any) -> Any:
    """A text without blanks around it; if that leaves nothing, a missing value."""
    return TRUTHS.get(value.strip(), value.strip()) or None if isinstance(value, str) else value


def _how_written(path: Path) -> dict[str, Any]:
    """What pandas must know to read a CSV file."""
    import pandas as pd

    with path.open(encoding="utf-8-sig") as file:  # empty lines are skipped, as pandas does
        place, first = next(((place, line) for place, line in enumerate(file) if line.strip()), (0, ""))
    header = re.sub('"[^"]*"', "", first)  # names in quotes may hold anything
    told = SEPARATOR.fullmatch(first)
    how: dict[str, Any] = {
        "sep": told[1] if told else max(";\t|,", key=header.count),
        "skiprows": place + 1 if told else 0,
        "encoding": "utf-8-sig",
        "low_memory": False,  # else it guesses a part of a large file at a time: a category is 1 here and 1.0 there
    }
    return how if int(pd.__version__.split(".")[0]) >= 3 else how | {"float_precision": "round_trip"}


def as_written(path: Path, names: Sequence[str], rows: int) -> pd.DataFrame:
    """Columns of a file's first rows as they are written: of a CSV file all texts, empty if missing."""
    import pandas as pd

    if path.suffix.lower() == ".parquet":  # whose whole numbers pandas would else turn into real ones beside gaps
        return _with_index(pd.read_parquet(path, dtype_backend="numpy_nullable"))[list(names)]
    how = _how_written(path) | {"dtype": str, "keep_default_na": False, "nrows": rows}
    table: pd.DataFrame = pd.read_csv(path, **how, usecols=lambda name: _name(name) in names)
    return table.rename(columns=_name)[list(names)]


def zeros_kept(path: Path, numbers: pd.Series[Any]) -> pd.Series[Any]:
    """A CSV file's column of whole numbers; as texts if some begin with a zero: 01 is the name of a class."""
    written = as_written(path, [str(numbers.name)], len(numbers)).iloc[:, 0].str.strip()
    return written if any(map(PADDED.fullmatch, written)) else numbers


def padded_columns(path: Path, table: pd.DataFrame) -> list[str]:
    """A CSV file's columns that were read as numbers, but have whole ones beginning with 0, as codes like 01 do.

    Columns are read again only if there is such a number somewhere in the file.
    """
    data = path.read_bytes()
    before = (re.escape(mark.encode()) for mark in (_how_written(path)["sep"], "\n", '"'))
    if not any(re.search(mark + rb"0\d", data) for mark in before):  # one by one: each is found fast
        return []
    whole = [
        str(name) for name, column in table.items() if column.dtype.kind in "iuf" and not (column.dropna() % 1).any()
    ]
    written = as_written(path, whole, len(table))
    return [name for name in whole if written[name].str.strip().str.fullmatch(PADDED).any()]


def _rows_to_the_last_value(table: pd.DataFrame) -> int:
    """How many rows there are without the empty ones that spreadsheets leave at the end."""
    filled = table.notna().any(axis=1).to_numpy().nonzero()[0]
    return int(filled[-1]) + 1 if len(filled) else 0


def _without_row_numbers(table: pd.DataFrame) -> pd.DataFrame:
    """The table without a first column that has no name: pandas writes row numbers as one by default."""
    return table.drop(columns="Unnamed: 0") if table.columns[0] == "Unnamed: 0" else table
