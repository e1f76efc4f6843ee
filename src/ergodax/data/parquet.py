"""Data in Parquet files: columns of numbers, row group by row group."""

import bisect
import functools
import threading
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from ergodax.data.paged import Paged
from ergodax.data.reader import Ranges, Reader, delivered, put

KEPT = 2  # decoded row groups, since a block may end inside one


def parquet(
    path: Any,
    columns: Any = None,
    *,
    target: str | None = None,
    block_rows: Any = None,
    passes: Any = 1,
    dtype: Any = None,
) -> Paged:
    """Data in one Parquet file or a folder of them, read in blocks while a chain runs.

    A page is a row group, which is decoded as a whole. Where row groups are as large as a block, or
    the rows in no random order, write a copy with ex.data.shuffle.

    Args:
        path: a file, or a folder whose .parquet files are read in the order of their names.
        columns: names of the columns that make the rows of X; by default all but `target`.
        target: the column that is y, optional.
        block_rows: rows of a block, in memory twice for each chain, three times for one alone;
            32 MiB of them by default, or all rows where they take no more.
        passes: how often each row of a block is used before the next block.
        dtype: what a batch is cast to on the device, one for all arrays or a tree like the data
            with None for as stored.

    Returns:
        A source: the `data` of ex.Posterior. A row is X, or (X, y) if there is a target; X has
        the common dtype of its columns.

    Raises:
        ImportError: pyarrow is missing.
        FileNotFoundError: no such file.
        TypeError: a column of something other than numbers, or an argument of the wrong type.
        ValueError: not Parquet files, no such column, missing values, a number out of range; when
            read, NaN or infinity.
    """
    reader = ParquetReader(Path(path), columns, target)
    return Paged(reader, block_rows=block_rows, passes=passes, dtype=dtype)


class ParquetReader(Reader):
    """Reads Parquet files.

    Args:
        path: a file or folder.
        columns: of X, or None.
        target: of y, or None.

    Raises:
        ValueError: no files, no rows, or files that differ in their columns.
    """

    grain = 1

    def __init__(self, path: Path, columns: Any, target: str | None) -> None:
        self.files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        if not self.files:
            raise ValueError(f"the folder {path} has no .parquet files.")
        opened = [_opened(file) for file in self.files]
        schema = opened[0].schema_arrow
        for file, one in zip(self.files, opened, strict=True):
            if not one.schema_arrow.equals(schema):
                raise ValueError(f"{file} has other columns than {self.files[0]}.")
        self.target = target
        self.columns = [str(c) for c in (columns or schema.names) if c != target]
        kinds = {name: _kind(schema, name, path) for name in [*self.columns, *self._target]}
        if not self.columns:
            raise ValueError(f"columns leaves nothing of {path} but the target {target!r}.")
        rows = {
            (f, g): one.metadata.row_group(g).num_rows
            for f, one in enumerate(opened)
            for g in range(one.num_row_groups)
        }
        self.groups = [group for group, count in rows.items() if count]
        lengths = np.array([rows[group] for group in self.groups], np.int64)
        self.pages, self.ends = lengths, np.cumsum(lengths).tolist()
        self.num_rows = int(lengths.sum())
        if self.num_rows == 0:
            raise ValueError(f"{path} is empty: there is nothing to learn from.")
        common = np.result_type(*(kinds[name] for name in self.columns))
        x = jax.ShapeDtypeStruct((len(self.columns),), delivered(common, str(path)))
        y = [jax.ShapeDtypeStruct((), delivered(kinds[c], f"{path}: {c}")) for c in self._target]
        self.row = (x, *y) if y else x
        label = f"{path} (columns {', '.join(self.columns[:3])}, ...)"
        self.names = (label, f"{path} (column {target})") if y else label
        self._group = functools.lru_cache(maxsize=KEPT)(self._decoded)
        self._lock = threading.Lock()  # so that two chains do not decode the same rows at once

    @property
    def _target(self) -> list[str]:
        return [] if self.target is None else [self.target]

    def read(self, ranges: Ranges, out: PyTree) -> None:
        """Decode the row groups that these ranges are in.

        Args:
            ranges: first row, and the row after the last, of each.
            out: where.
        """
        arrays, done = jax.tree.leaves(out), 0
        for begin, end in ranges.tolist():
            while begin < end:
                k = bisect.bisect_right(self.ends, begin)
                with self._lock:
                    group = self._group(k)
                first, last = self.ends[k] - len(group[0]), min(end, self.ends[k])
                count = last - begin
                for array, part in zip(arrays, group, strict=True):
                    array[done : done + count] = part[begin - first : last - first]
                begin, done = last, done + count

    def identity(self) -> tuple:
        """Paths, what the file system says of them, and the columns."""
        stats = [(path.resolve(), path.stat()) for path in self.files]
        files = tuple((str(path), x.st_ino, x.st_size, x.st_mtime_ns) for path, x in stats)
        return files, tuple(self.columns), self.target

    def facts(self) -> dict[str, Any]:
        """Names and sizes of the files, and the columns."""
        files = [{"name": path.name, "bytes": path.stat().st_size} for path in self.files]
        return {"format": "parquet", "files": files, "columns": [*self.columns, *self._target]}

    def _decoded(self, k: int) -> list[np.ndarray]:
        file, group = self.groups[k]
        names = [*self.columns, *self._target]
        table = _opened(self.files[file]).read_row_group(group, columns=names, use_threads=True)
        shapes = jax.tree.leaves(self.row)
        parts = [np.empty((table.num_rows, *x.shape), x.dtype) for x in shapes]
        for j, name in enumerate(names):
            column = table.column(name)
            if column.null_count:
                raise ValueError(
                    f"{self.files[file]}: column {name!r} has {column.null_count} missing values "
                    f"in row group {group}. Drop or impute these rows."
                )
            values = np.asarray(column.to_numpy())
            out = parts[0][:, j] if j < len(self.columns) else parts[1]
            put(out, values, f"{self.files[file]}: column {name!r}")
        return parts


def _opened(path: Path) -> Any:
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise ImportError(
            "Parquet files need pyarrow, which is in the extra `app`: pip install 'ergodax[app]'."
        ) from error
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}.")
    try:
        return parquet.ParquetFile(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is not a Parquet file: {error}") from error


def _kind(schema: Any, name: str, path: Path) -> np.dtype:
    if name not in schema.names:
        raise ValueError(f"{path} has no column {name!r}, only {schema.names}.")
    kind = schema.field(name).type
    try:
        found = np.dtype(kind.to_pandas_dtype())
        if found.kind in "biuf":
            return found
    except (NotImplementedError, TypeError):
        pass
    raise TypeError(f"{path}: column {name!r} has type {kind}; data must be numbers.")
