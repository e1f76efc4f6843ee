"""The columns of a CSV or Parquet file: what is refused before any work begins, and what is coded.

Thresholds follow from the data: a file may have at most `COLUMNS_A_ROW` columns for each row, a
column of text a level for every two rows, and all such columns together an indicator a row.
"""

import collections
import csv
import itertools
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ergodax.checks import file_path, instance, shown

COLUMNS_A_ROW = 10  # beyond, next to nothing is known of any coefficient
ROWS_A_LEVEL = 2  # of a column of text, on average; with fewer, its values name the rows
# 2026-11-23, 23.11.2026, 11/23/26, 23 Nov 2026, November 23, 2026; a time may follow
MONTH = "(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
DATE = re.compile(
    rf"\s*(\d{{4}}([-/.])\d\d?\2\d\d?|\d\d?([-/.])\d\d?\3(\d{{4}}|\d\d)"
    rf"|\d\d?[- ]{MONTH}[-, ]+\d{{2,4}}|{MONTH} \d\d?,? \d{{4}})(?!\d|[-/.]\d)",
    re.IGNORECASE,
)
READERS = {".csv": "CSV", ".parquet": "Parquet", ".pq": "Parquet"}


def read_columns(path: Any, target: Any) -> tuple[pd.DataFrame, pd.Series]:
    """The features, all numbers, and the target.

    Text becomes an indicator for each value but the first.

    Args:
        path: of a file .csv, .parquet or .pq.
        target: the name of a column.

    Raises:
        FileNotFoundError: no such file.
        TypeError: a path or a name that is none, or a column of something else than numbers
            and text.
        ValueError: a file that can't be read; no such column; missing values; a name that stands
            twice; numbers and text, or an integer too large, in one column; dates as text; text
            with a level for fewer than 2 rows on average, or more indicators than rows in all;
            more than 10 columns for each row.
    """
    path = file_path("path", path)
    if not path.exists():
        raise FileNotFoundError(f"no such file: {path}")
    if path.suffix not in READERS:
        raise ValueError(f"{path} must end in .csv, .parquet or .npz.")
    if target is None:
        raise ValueError("--target COLUMN is needed: the column of the table to predict.")
    instance("target", target, str, "the name of a column")
    try:
        names, enough = (_csv_header if path.suffix == ".csv" else _parquet_header)(path)
        _check_names(path, names, enough)
        if target not in names:
            raise ValueError(f"target={target!r} is not a column of {path}: {shown(names, 300)}.")
        frame = _read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
    except _Refused:
        raise
    # A damaged file can fail in any stage of a decoder, in its own kinds of errors.
    except Exception as error:
        words = str(error).strip() or type(error).__name__
        raise ValueError(f"{path} can't be read as {path.suffix}: {words}") from None
    _check_complete(path, frame)
    outcome = frame.pop(target)
    return _coded(path, frame), outcome


class _Refused(ValueError):
    """A file that can be read and is refused."""


def _csv_header(path: Path) -> tuple[list[str], bool]:
    """The names, and whether there are rows enough for them."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        names = next((row for row in csv.reader(file) if row), None)
    if names is None:
        raise ValueError("No columns to parse from file")
    needed = -(-len(names) // COLUMNS_A_ROW)
    with path.open("rb") as file:  # lines, of which a quoted text may have several
        return names, sum(1 for _ in itertools.islice(file, needed + 1)) - 1 >= needed


def _parquet_header(path: Path) -> tuple[list[str], bool]:
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(path) as file:
        names = list(file.schema_arrow.names)
        return names, file.metadata.num_rows * COLUMNS_A_ROW >= len(names)


def _check_names(path: Path, names: list[str], enough: bool) -> None:
    if not enough:
        raise _Refused(
            f"{path} has {len(names)} columns, more than {COLUMNS_A_ROW} for each of its rows: "
            "the data say next to nothing of most of them. Pick some; or, if the file has its "
            "variables in rows, transpose it."
        )
    twice = [name for name, count in collections.Counter(names).items() if count > 1]
    if twice:
        places = [k + 1 for k, name in enumerate(names) if name == twice[0]]
        raise _Refused(
            f"{path}: the name {shown(twice[0])} stands over the columns {places[0]} and "
            f"{places[1]}. Give each a name of its own, or drop one{_and_others(twice)}."
        )


def _read_csv(path: Path) -> pd.DataFrame:
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # of rows longer than the header
        return pd.read_csv(path, low_memory=False, index_col=False)


def _check_complete(path: Path, frame: pd.DataFrame) -> None:
    bad = frame.isna()
    if bad.any(axis=None):
        raise ValueError(
            f"{int(bad.any(axis=1).sum())} of {len(frame)} rows of {path} have missing values, in "
            f"the columns {shown(list(frame.columns[bad.any()]), 300)}. Drop or impute them first."
        )


def _coded(path: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """The same with indicators for text."""
    columns: dict[Any, pd.Series] = dict(frame.items())
    text = [name for name, column in columns.items() if _is_text(path, str(name), column)]
    levels = {str(name): columns[name].nunique() for name in text}
    rows = len(frame)
    for name in text:
        if (count := levels[str(name)]) > max(2, rows / ROWS_A_LEVEL):
            raise ValueError(
                f"{path}: column {shown(name)} is text with {count} different values in {rows} "
                f"rows, such as {shown(columns[name].iloc[0])} in row 0, more than one for every "
                f"{ROWS_A_LEVEL} rows: it names the rows and predicts nothing. Drop it, or join "
                "its values into fewer."
            )
    if (total := sum(levels.values()) - len(levels)) > rows:
        most = sorted(levels, key=lambda name: -levels[name])[:3]
        raise ValueError(
            f"{path}: the columns of text become {total} indicators, more than the {rows} rows; "
            f"most are of {', '.join(f'{shown(name)} ({levels[name]} values)' for name in most)}. "
            "Drop some of these columns, or join their values into fewer."
        )
    coded = pd.get_dummies(frame, columns=text, drop_first=True, dtype=float)
    return coded.astype(np.float64).rename(columns=str)


def _is_text(path: Path, name: str, column: pd.Series) -> bool:
    """Whether a column becomes indicators; it is refused where it is neither text nor numbers."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return True
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_complex_dtype(column):
        return False
    values = column.to_list()
    other = next((k for k, value in enumerate(values) if not isinstance(value, str | int)), None)
    if other is not None:
        raise TypeError(
            f"{path}: column {shown(name)} has neither numbers nor text, but "
            f"{shown(values[other])} in row {other}. Code it as a number, or drop it."
        )
    parsed = np.isnan(np.asarray(pd.to_numeric(column, errors="coerce"), float))
    if not parsed.any():  # they are numbers, and were not read as such
        row = max(range(len(values)), key=lambda k: abs(float(values[k])))
        raise ValueError(
            f"{path}: column {shown(name)} has an integer too large for 64 bits, "
            f"{shown(values[row])} in row {row}. Write it as a floating-point number, such as "
            "1e23; drop it if it is no quantity."
        )
    if all(DATE.match(str(value)) for value in column.unique()):
        raise ValueError(
            f"{path}: column {shown(name)} has dates as text, such as {shown(values[0])} in row 0: "
            "each would become an indicator. Code it as a number, such as days since the first, or "
            "as its month or weekday, or drop it."
        )
    if 2 * int(parsed.sum()) < len(values):  # most are numbers
        row = int(np.argmax(parsed))
        raise ValueError(
            f"{path}: column {shown(name)} has numbers, but also text: {shown(values[row])} in row "
            f"{row}, the first of {int(parsed.sum())} rows. Correct or drop these rows; if the "
            "numbers are codes of categories, put a letter before each."
        )
    return True


def _and_others(names: Sequence[str]) -> str:
    return f"; so do {len(names) - 1} other names" if len(names) > 1 else ""
