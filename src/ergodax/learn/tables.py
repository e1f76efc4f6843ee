"""Tables from files: CSV, Parquet and npz, as features in their own units and a target.

Much of a CSV or Parquet file is refused before any work begins. Thresholds follow from the data: it
may have at most `COLUMNS_A_ROW` columns for each row, a column of text a level for every two rows,
and all such columns together an indicator a row.
"""

import collections
import csv
import dataclasses
import functools
import itertools
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from ergodax.checks import file_path, flag, instance, numbers, real_number, shown, whole_number
from ergodax.data import archive
from ergodax.learn.indicators import ROWS_A_LEVEL, are_words, check_words, coded

ARRAYS = (np.ndarray, jax.Array, pd.Series, list, tuple)


@dataclasses.dataclass(frozen=True)
class Table:
    """Features and a target of classes, or a number."""

    features: np.ndarray  # shape (rows, columns), numbers
    target: np.ndarray  # shape (rows,), of classes 0.0, 1.0, ...
    names: list[str]  # of the columns
    classes: tuple[str, ...]  # the values of the target in the order of codes; () for a number

    def rows(self, which: np.ndarray) -> "Table":
        """Some of the rows."""
        return dataclasses.replace(self, features=self.features[which], target=self.target[which])


def suitable(outcome: pd.Series, classes: Sequence[str] | None = None) -> str:
    """The model for a target: logistic of two values, linear of numbers, multinomial of others.

    `classes` are those of its values that are kept, where they are given.

    Example:
        >>> [suitable(pd.Series(y)) for y in ([0, 1, 1], [0.5, 2.0, 1.5], ["a", "b", "c"])]
        ['logistic', 'linear', 'multinomial']
    """
    if classes or outcome.nunique() == 2:
        return "logistic"
    return "linear" if pd.api.types.is_numeric_dtype(outcome) else "multinomial"


def of_columns(
    features: pd.DataFrame,
    outcome: pd.Series,
    model: str,
    classes: Sequence[str] | None = None,
) -> Table:
    """What `read_columns` returns as a Table for a model.

    Raises:
        ValueError: what `make_table` refuses; a target that is not a number, or one of classes
            with fewer than two rows each on average.
    """
    names = list(features.columns)
    if model == "logistic":
        return make_table(features.to_numpy(), outcome.to_numpy(), names, classes)
    x = features.to_numpy()
    if model == "multinomial":
        found, codes = np.unique(outcome.astype(str).to_numpy(), return_inverse=True)
        if not 2 < len(found) <= len(x) / ROWS_A_LEVEL:
            raise ValueError(
                f"the target has {len(found)} different values in {len(x)} rows; --model "
                "multinomial is for three or more classes of several rows each."
            )
        _check_finite(x, names)
        return Table(x, codes.astype(np.float64), names, tuple(str(name) for name in found))
    if not pd.api.types.is_numeric_dtype(outcome):
        raise ValueError(
            f"target={str(outcome.name)!r} is not a number; try --model logistic, or multinomial."
        )
    y = outcome.to_numpy(np.float64)
    _check_finite(np.column_stack([x, y]), [*names, str(outcome.name)])
    return Table(x, y, names, ())


def read_npz(
    path: str | Path,
    features: str,
    target: str,
    classes: Sequence[str] | None = None,
    categorical: str | None = None,
    *,
    test: bool = False,
) -> Table:
    """Read the arrays of an .npz file.

    Args:
        path: the file.
        features: the name of the array of features; axes after the first are flattened.
        target: the name of the array of outcomes.
        classes: keep the rows with these two values of the target.
        categorical: the name of an array of codes, a column or several, if there is one; each
            becomes one indicator for each of its values.
        test: these rows are held out, so that those of one class are enough.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a damaged file, no such array, arrays that do not fit, features that
            are not finite real numbers, or not two classes.
    """
    wanted = (features, target) if categorical is None else (features, target, categorical)
    for name in wanted:
        instance("each of features, target and categorical", name, str, "the name of an array")
    arrays = archive.read(path, wanted)
    archive.check_lengths(path, arrays)
    archive.check_real(path, {features: arrays[features]})
    x, y, *codes = (arrays[name] for name in wanted)
    names = [f"{features}[{k}]" for k in range(int(np.prod(x.shape[1:])))]
    parts = [x.reshape(len(x), -1)]
    for k, column in enumerate(codes[0].reshape(len(x), -1).T if codes else ()):
        values = np.unique(column)
        names += [f"{categorical}[{k}]={value}" for value in values]
        parts.append(column[:, None] == values)
    return make_table(np.hstack(parts), y, names, classes, test=target if test else "")


def make_table(
    features: np.ndarray,
    target: Any,
    names: list[str],
    classes: Sequence[str] | None = None,
    *,
    test: str = "",
) -> Table:
    """Features and any two-valued outcome as a Table; of a `test`, so named, one class will do.

    Raises:
        TypeError: features that are not numbers.
        ValueError: the target has not exactly two values and `classes` does not pick two, a
            feature is not finite, or shapes that do not fit.
    """
    instance("names", names, list | tuple, "a list of the columns' names")
    if getattr(instance("target", target, ARRAYS, "an array"), "ndim", 1) != 1:
        raise ValueError(f"target must be a value for each row, not of shape {np.shape(target)}.")
    target = pd.Series(list(target)).to_numpy()
    shapes = np.shape(numbers("features", features)), target.shape
    if target.ndim != 1 or shapes[0] != (len(target), len(names)):
        raise ValueError(
            f"features must have shape (rows, {len(names)} names), and target a value for each "
            f"row; their shapes are {shapes[0]} and {shapes[1]}."
        )
    outcome = np.asarray([_class_name(value) for value in np.asarray(target).tolist()])
    values = sorted(set(outcome.tolist()))
    instance("classes", () if classes is None else classes, tuple | list, "two values")
    asked = () if classes is None else map(str, classes)
    chosen = tuple(c if c in values else c.removesuffix(".0") for c in asked) or tuple(values)
    missing = [c for c in chosen if c not in values]
    if len(chosen) != 2 or len(missing) > bool(test):
        some = ", ".join(values[:10]) + (", ..." if len(values) > 10 else "")
        raise ValueError(
            f"{test or 'the target'} must have two classes; it has {len(values)} values ({some}). "
            "Pick two of them, as in --classes 7 9; or try --model multinomial, or linear."
        )
    kept = np.isin(outcome, chosen)
    x = np.asarray(features, np.float64)[kept]
    _check_finite(x, names)
    return Table(x, (outcome[kept] == chosen[1]).astype(np.float64), names, chosen)


def _class_name(value: Any) -> str:
    """A value of the target in words; one gap in a column of integers makes them floats."""
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _check_finite(x: np.ndarray, names: Sequence[str]) -> None:
    if (bad := ~np.isfinite(x)).any():
        row, column = map(int, np.argwhere(bad)[0])
        name = shown(names[column])
        raise ValueError(f"{name} is NaN or infinite in row {row}; drop or impute such rows.")


def split(table: Table, held_out: float, seed: int) -> tuple[Table, Table]:
    """Shuffle the rows and hold a part out.

    Raises:
        ValueError: a part would be empty.
    """
    instance("table", table, Table, "a Table, as of tables.make_table")
    held_out = real_number("held_out", held_out)
    seed = whole_number("seed", seed, at_least=0, below=None)
    count = round(held_out * len(table.target))
    if not 0 < count < len(table.target):
        raise ValueError(f"held_out={held_out} of {len(table.target)} rows leaves a part empty.")
    order = np.random.default_rng(seed).permutation(len(table.target))
    return table.rows(order[count:]), table.rows(order[:count])


def varying(
    tables: Sequence[Table],
    components: int | None = None,
    tell: Callable[[str], object] = lambda sentence: None,
) -> list[Table]:
    """The columns that are not constant, or their principal components, in their own units.

    Args:
        tables: the first is of the training rows.
        components: how many; None for the columns themselves.
        tell: is given a sentence about the columns that are left out.

    Raises:
        ValueError: other columns, more components than columns, or no column that varies.
    """
    for table in tables:
        instance("each of tables", table, Table, "a Table, as of tables.make_table")
        if table.features.shape[1] != tables[0].features.shape[1]:
            both = (f"{t.features.shape} {shown(t.names)}" for t in (tables[0], table))
            raise ValueError(f"the tables must have the same columns, not {' and '.join(both)}.")
    varies = np.ptp(tables[0].features, axis=0) > 0
    names = [name for name, keep in zip(tables[0].names, varies, strict=True) if keep]
    if not names:
        raise ValueError("every feature is constant over the training rows.")
    if not varies.all():
        constant = [name for name, keep in zip(tables[0].names, varies, strict=True) if not keep]
        tell(f"Left out, since they are constant over the rows to fit: {shown(constant, 300)}.")
    parts = [table.features[:, varies] for table in tables]
    if components is not None:
        from sklearn.decomposition import PCA

        if not 0 < components <= min(parts[0].shape):
            raise ValueError(f"components={components} must lie in [1, {min(parts[0].shape)}].")
        reduce = PCA(components, svd_solver="full").fit(parts[0])
        parts = [reduce.transform(x) for x in parts]
        names = [f"component[{k}]" for k in range(components)]
    return [
        dataclasses.replace(table, features=x, names=names)
        for table, x in zip(tables, parts, strict=True)
    ]


COLUMNS_A_ROW = 10  # beyond, next to nothing is known of any coefficient
SUFFIXES = ".csv", ".parquet", ".pq"
NO_NAME = re.compile(r"__index_level_\d+__")  # of an index that had none: it numbers the rows


def read_columns(
    path: Any,
    target: Any,
    *,
    drop_missing: bool = False,
    tell: Callable[[str], object] = lambda sentence: None,
) -> tuple[pd.DataFrame, pd.Series]:
    """The features, all numbers, and the target.

    Text becomes an indicator for each value but the first.

    Args:
        path: of a file .csv, .parquet or .pq.
        target: the name of a column.
        drop_missing: leave out the rows with missing values.
        tell: is given a sentence about rows and columns that are left out.

    Raises:
        FileNotFoundError: no such file.
        TypeError: a path, a name or a flag that is none, or a column of something else than
            numbers and text.
        ValueError: a file that can't be read; no such column; missing values; a name that stands
            twice; the target alone; numbers and text, or an integer too large, in one column; dates
            or numbers with separators as text; text with a level for fewer than 2 rows on average,
            or more indicators than rows in all; more than 10 columns for each row.
    """
    path = file_path("path", path)
    if not path.exists():
        raise FileNotFoundError(f"no such file: {path}")
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path} must end in .csv, .parquet or .npz.")
    if target is None:
        raise ValueError("--target COLUMN is needed: the column of the table to predict.")
    instance("target", target, str, "the name of a column")
    drop_missing = flag("drop_missing", drop_missing)
    try:
        names, enough = (_csv_header if path.suffix == ".csv" else _parquet_header)(path)
        _check_names(path, names, enough)
        if target not in names:
            raise _Refused(f"target={target!r} is not a column of {path}: {shown(names, 300)}.")
        if len(names) == 1:
            raise _Refused(f"{path} has the target alone, and no columns to predict it from.")
        frame = _read_csv(path) if path.suffix == ".csv" else _read_parquet(path, names)
    except _Refused:
        raise
    # A damaged file can fail in any stage of a decoder, in its own kinds of errors.
    except Exception as error:
        words = str(error).strip() or type(error).__name__
        if isinstance(error, UnicodeDecodeError):
            words += "; save it as UTF-8"
        raise ValueError(f"{path} can't be read as {path.suffix}: {words}") from None
    if frame.empty:
        raise ValueError(f"{path} has a header and no rows.")
    frame = _without_row_numbers(frame, names, tell)
    frame = _complete(path, frame, tell if drop_missing else None)
    outcome = frame.pop(target)
    if outcome.nunique() > 2 and not pd.api.types.is_numeric_dtype(outcome):
        check_words(path, target, outcome)
    return coded(path, frame), outcome


def _without_row_numbers(
    frame: pd.DataFrame, names: list[str], tell: Callable[[str], object]
) -> pd.DataFrame:
    """What pandas and R write before the columns by default, without a name, predicts nothing."""
    column = frame.iloc[:, 0]
    if names[0].strip() or not pd.api.types.is_integer_dtype(column) or len(names) == 1:
        return frame
    if column.iloc[0] not in (0, 1) or (np.diff(column) != 1).any():
        return frame
    tell("The first column has no name and numbers the rows: it is left out.")
    return frame.iloc[:, 1:]


class _Refused(ValueError):
    """A file that can be read and is refused."""


def _csv_header(path: Path) -> tuple[list[str], bool]:
    """The names, and whether there are rows enough for them."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        names = next((row for row in csv.reader(file) if row), None)
    if names is None:
        raise ValueError("No columns to parse from file")
    if len(names) == 1 and (between := re.search(r"[;\t|]", names[0])):
        raise _Refused(
            f"{path} has {shown(between[0])} between its values. Write it again with commas, by "
            f"pandas.read_csv(path, sep={between[0]!r}).to_csv(path, index=False), and with "
            "decimal=',' if its numbers have commas."
        )
    needed = -(-len(names) // COLUMNS_A_ROW)
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        # lines, of which a quoted text may have several
        rows = sum(1 for _ in itertools.islice(file, needed + 1)) - 1
    if rows < 1:
        raise _Refused(f"{path} has a header and no rows.")
    return names, rows >= needed


def _parquet_header(path: Path) -> tuple[list[str], bool]:
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(path) as file:
        names = [name for name in file.schema_arrow.names if not NO_NAME.fullmatch(name)]
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
        others = f"; so do {len(twice) - 1} other names" if len(twice) > 1 else ""
        raise _Refused(
            f"{path}: the name {shown(twice[0])} stands over the columns {places[0]} and "
            f"{places[1]}. Give each a name of its own, or drop one{others}."
        )


def _read_csv(path: Path) -> pd.DataFrame:
    """A column of numbers lacks what is NA, null or the like; text what is empty, or R's NA."""
    read = functools.partial(pd.read_csv, path, low_memory=False, index_col=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # of rows longer than the header
        frame = read()
        if words := [k for k in range(frame.shape[1]) if are_words(frame.iloc[:, k])]:
            again = read(usecols=words, dtype=str, keep_default_na=False, na_values=["", "NA"])
            frame[list(again)] = again
    return frame


def _read_parquet(path: Path, names: list[str]) -> pd.DataFrame:
    """The columns that were the index of a frame, too."""
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(path) as file:
        frame = file.read().to_pandas(ignore_metadata=True)
    return frame[names]


def _complete(
    path: Path, frame: pd.DataFrame, drop: Callable[[str], object] | None
) -> pd.DataFrame:
    """The rows without gaps. `drop` is told of the others; where it is None, there may be none."""
    gaps = frame.isna()
    lacking = gaps.any(axis=1)
    if not lacking.any():
        return frame
    where = shown({name: int(count) for name, count in gaps.sum().items() if count}, 300)
    if drop is not None and not lacking.all():
        drop(f"{lacking.sum():,} of {len(frame):,} rows are left out, with gaps in {where}.")
        return frame.drop(index=frame.index[lacking]).reset_index(drop=True).infer_objects()
    advice = "Impute them first, or leave these rows out by --drop-missing."
    if lacking.all():
        empty = list(frame.columns[gaps.all()])
        worst = f"{shown(empty, 300)}, which are empty" if empty else "with the most gaps"
        advice = f"No row is complete: impute them, or drop the columns {worst}."
    raise ValueError(
        f"{int(lacking.sum())} of {len(frame)} rows of {path} have missing values, so many in the "
        f"columns {where}. {advice}"
    )
