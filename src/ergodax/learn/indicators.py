"""Columns of text as indicators, and what looks like text and is none."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ergodax.checks import shown

ROWS_A_LEVEL = 2  # of a column of text, on average; with fewer, its values name the rows
# 2026-11-23, 23.11.2026, 11/23/26, 23 Nov 2026, November 23, 2026; a time may follow
MONTH = "(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
DATE = re.compile(
    rf"\s*(\d{{4}}([-/.])\d\d?\2\d\d?|\d\d?([-/.])\d\d?\3(\d{{4}}|\d\d)"
    rf"|\d\d?[- ]{MONTH}[-, ]+\d{{2,4}}|{MONTH} \d\d?,? \d{{4}})(?!\d|[-/.]\d)",
    re.IGNORECASE,
)
# 1,234.5, 1.234,5, 0,5, 1 234, 5 %, -$5; and plain ones, which stand among them
SIGN, UNIT = "[-+\u2212]?", "[$\u00a2-\u00a5\u20a0-\u20bf]"
NUMBER = re.compile(
    rf"\s*{SIGN}({UNIT}\s?{SIGN})?(\d{{1,3}}([,.'\u2019\s]\d{{3}})+([.,]\d*)?|\d+[.,]?\d*|[.,]\d+)"
    rf"\s?(%|{UNIT})?\s*\Z"
)
TIME = re.compile(r"\s*\d{1,3}:\d\d(:\d\d([.,]\d+)?)?\s*([ap]\.?m\.?)?\s*\Z", re.IGNORECASE)
# 1/4, 0x1f, and 1.5D+01 of Fortran
OTHER = re.compile(rf"\s*{SIGN}(\d+/\d+|0x[\da-f]+|(\d+\.?\d*|\.\d+)d[-+]?\d+)\s*\Z", re.IGNORECASE)
MEASURED = re.compile(
    rf"\s*{SIGN}\d+[.,]?\d*\s?([^\W\d_]+|\u00b0[^\W\d_]?)\s*\Z"
)  # 3 kg, with its unit
UNITS_FROM = 3  # different values; 2WD and 4WD are categories
LOOKALIKES = {
    "dates as text": (
        DATE,
        "Code it as a number, such as days since the first, or as its month or weekday, or drop it",
    ),
    "numbers as text": (
        NUMBER,
        "Write them as in 1234.5, without separators and signs of percent or currency; if they "
        "are codes of categories, put a letter before each",
    ),
    "times as text": (TIME, "Code it as a number, such as minutes, or drop it"),
    "numbers in another writing": (
        OTHER,
        "Write them as in 1234.5; if they are codes of categories, put a letter before each",
    ),
}


def coded(path: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """The columns of a frame without gaps, all as numbers: text with indicators.

    Args:
        path: of the file that it is from.
        frame: columns of numbers and of text.

    Returns:
        Columns of float64; text `k` has one, `k[v]`, for each value v but the first.

    Raises:
        TypeError: a column of something else than numbers and text.
        ValueError: numbers and text, or an integer too large, in one column; dates or numbers
            written as text; too many values of text.
    """
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
    dummies = pd.get_dummies(frame, columns=text, prefix_sep="[", drop_first=True, dtype=float)
    others = frame.shape[1] - len(text)  # which stand first
    dummies.columns = [str(n) + "]" * (k >= others) for k, n in enumerate(dummies.columns)]
    return dummies.astype(np.float64)


def _is_text(path: Path, name: str, column: pd.Series) -> bool:
    """Whether a column becomes indicators; it is refused where it is neither text nor numbers."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return True
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_complex_dtype(column):
        _check_integers(path, name, column)
        return False
    values = column.to_list()
    wrong = next((k for k, value in enumerate(values) if not isinstance(value, str | int)), None)
    if wrong is not None:
        raise TypeError(
            f"{path}: column {shown(name)} has neither numbers nor text, but "
            f"{shown(values[wrong])} in row {wrong}. Code it as a number, or drop it."
        )
    other = _no_numbers(column)
    if not other.any():  # they are numbers, and were not read as such
        row = max(range(len(values)), key=lambda k: abs(float(values[k])))
        raise ValueError(
            f"{path}: column {shown(name)} has an integer too large for 64 bits, "
            f"{shown(values[row])} in row {row}. Write it as a floating-point number, such as "
            "1e23; drop it if it is no quantity."
        )
    check_words(path, name, column)
    if _mostly_numbers(other):
        row = int(np.argmax(other))
        raise ValueError(
            f"{path}: column {shown(name)} has numbers, but also text: {shown(values[row])} in row "
            f"{row}, the first of {int(other.sum())} rows. Correct or drop these rows; if the "
            "numbers are codes of categories, put a letter before each."
        )
    return True


def _check_integers(path: Path, name: str, column: pd.Series) -> None:
    """Refuse integers that differ, and would not as floating-point numbers."""
    if not pd.api.types.is_integer_dtype(column) or abs(column.to_numpy(float)).max() < 2.0**53:
        return
    if column.astype(np.float64).nunique() < column.nunique():
        raise ValueError(
            f"{path}: column {shown(name)} has integers that differ by less than a floating-point "
            f"number of their size can tell, such as {column.iloc[0]}. Subtract the least of them "
            "first; drop it if it is no quantity."
        )


def check_words(path: Path, name: str, column: pd.Series) -> None:
    """Refuse text each value of which would become a category, though it is none.

    Raises:
        ValueError: all of it are dates, or numbers with separators or signs.
    """
    if kind := _lookalike(column):
        raise ValueError(
            f"{path}: column {shown(name)} has {kind}, such as {shown(str(column.iloc[0]))} in "
            f"row 0: each would become a category. {LOOKALIKES[kind][1]}."
        )
    values = [MEASURED.match(str(value)) for value in column.unique()]
    units = {value and value[1] for value in values}
    if len(values) >= UNITS_FROM and len(units) == 1 and None not in units:
        raise ValueError(
            f"{path}: column {shown(name)} has numbers with the unit {shown(units.pop())}, such as "
            f"{shown(str(column.iloc[0]))} in row 0: each would become a category. Write them "
            "without it; if they are categories, put a letter before each."
        )


def _lookalike(column: pd.Series) -> str | None:
    """What all values of a column of text are, where they are no words."""
    values = [str(value) for value in column.unique()]
    return next((k for k, (of, _) in LOOKALIKES.items() if all(map(of.match, values))), None)


def are_words(column: pd.Series) -> bool:
    """Whether what is not missing in a column with gaps is words, in which "None" is one."""
    if not column.hasnans or pd.api.types.is_numeric_dtype(column):
        return False
    rest = column.dropna()
    if not all(isinstance(value, str) for value in rest.unique()) or _lookalike(rest):
        return False
    return not _mostly_numbers(_no_numbers(rest))


def _no_numbers(column: pd.Series) -> np.ndarray:
    """Where the values are no numbers; each is parsed once, since text is slow to parse."""
    codes, values = pd.factorize(column)
    return np.isnan(np.asarray(pd.to_numeric(values, errors="coerce"), float))[codes]


def _mostly_numbers(other: np.ndarray) -> bool:
    return 2 * int(other.sum()) < len(other)
