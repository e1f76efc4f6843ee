"""Data in Parquet files and Zarr arrays, which their own libraries decode."""

import bisect
import functools
import math
import os
import threading
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from ergodax.checks import file_path, flag, instance, shown
from ergodax.data import digests
from ergodax.data.paged import AsOpened, Paged, Reader, stamp
from ergodax.data.source import Ranges, check_rows, delivered, put

KEPT = 2  # decoded row groups, since a block may end inside one
METADATA = ("zarr.json", ".zarray")  # of a Zarr array, in the third format and the second


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

    Example:
        >>> import ergodax as ex, pandas as pd, pathlib, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "table.parquet"
        >>> pd.DataFrame({"age": range(1_000), "died": [0, 1] * 500}).to_parquet(file)
        >>> ex.data.parquet(file, target="died").num_rows
        1000
    """
    reader = _ParquetReader(file_path("path", path), columns, target)
    return Paged(reader, block_rows=block_rows, passes=passes, dtype=dtype)


def zarr(
    path: Any,
    names: Any = None,
    *,
    block_rows: Any = None,
    page_rows: Any = None,
    passes: Any = 1,
    dtype: Any = None,
    allow_missing_chunks: bool = False,
) -> Paged:
    """Data in a Zarr array or group, read in blocks while a chain runs.

    Args:
        path: the folder, or whatever else zarr.open takes.
        names: the arrays of the group, one name or a tree of them, such as ("X", "y"); its
            structure is that of the data. By default the array at `path`, or a dict of all
            arrays of the group.
        block_rows: rows of a block, in memory twice for each chain, three times for one alone;
            32 MiB of them by default, or all rows where they take no more.
        page_rows: contiguous rows that are read together, best a multiple of the rows of a
            chunk; by default whole chunks of 128 KiB or more.
        passes: how often each row of a block is used before the next block.
        dtype: what a batch is cast to on the device, one for all arrays or a tree like the data
            with None for as stored.
        allow_missing_chunks: read a chunk without a file as the fill value. Zarr leaves the files
            of such chunks out, unless it is told to write them; but a file that was lost looks the
            same, so that a missing one is refused by default.

    Returns:
        A source: the `data` of ex.Posterior.

    Raises:
        FileNotFoundError: nothing at `path`.
        TypeError: an array of something other than numbers, or an argument of the wrong type.
        ValueError: no such array in the group, arrays that differ in their number of rows, chunks
            without a file, a number out of range; when read, NaN or infinity, or a file that has
            changed since it was opened.

    Example:
        >>> import ergodax as ex, numpy as np, tempfile, zarr
        >>> folder = tempfile.mkdtemp()
        >>> group = zarr.open_group(folder, mode="w")
        >>> _ = group.create_array("x", data=np.ones((1_000, 3), np.float32), chunks=(100, 3))
        >>> ex.data.zarr(folder).num_rows
        1000
    """
    reader = _ZarrReader(path, names, flag("allow_missing_chunks", allow_missing_chunks))
    return Paged(reader, block_rows=block_rows, page_rows=page_rows, passes=passes, dtype=dtype)


class _ParquetReader(Reader):
    """Reads the columns of a file or of a folder of files."""

    grain = 1

    def __init__(self, path: Path, columns: Any, target: str | None) -> None:
        self.files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        if not self.files:
            raise ValueError(f"the folder {path} has no .parquet files.")
        self.opened = [AsOpened(file) for file in self.files if file.exists()]
        opened = [_opened(file) for file in self.files]
        schema = opened[0].schema_arrow
        for file, one in zip(self.files, opened, strict=True):
            if not one.schema_arrow.equals(schema):
                raise ValueError(f"{file} has other columns than {self.files[0]}.")
        if columns is None:
            columns = [name for name in schema.names if name != target]
        if not isinstance(columns, list | tuple) or not all(isinstance(c, str) for c in columns):
            raise TypeError(f"columns must be a list of names of columns, not {shown(columns)}.")
        if target is not None:
            instance("target", target, str, "the name of a column")
        self.x = list(columns)
        self.columns = self.x if target is None else [*self.x, target]
        kinds = {name: _kind(schema, name, path) for name in self.columns}
        if not self.x:
            raise ValueError(f"columns leaves nothing of {path} but the target {target!r}.")
        rows = {
            (f, g): one.metadata.row_group(g).num_rows
            for f, one in enumerate(opened)
            for g in range(one.num_row_groups)
        }
        self.groups = [group for group, count in rows.items() if count]
        self.pages = np.array([rows[group] for group in self.groups], np.int64)
        self.ends = np.cumsum(self.pages).tolist()
        self.num_rows = check_rows({str(path): int(self.pages.sum())})
        common = np.result_type(*(kinds[name] for name in self.x))
        x = jax.ShapeDtypeStruct((len(self.x),), delivered(common, str(path)))
        label = f"{path} (columns {', '.join(self.x[:3])}, ...)"
        self.row, self.names = x, label
        if target is not None:
            y = jax.ShapeDtypeStruct((), delivered(kinds[target], f"{path}: {target}"))
            self.row, self.names = (x, y), (label, f"{path} (column {target})")
        self._group = functools.lru_cache(maxsize=KEPT)(self._decoded)
        self._lock = threading.Lock()  # so that two chains do not decode the same rows at once

    def read(self, ranges: Ranges, out: PyTree) -> None:
        """Decode the row groups that these ranges are in."""
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
        """What the file system said of the files, and the columns."""
        files = tuple(file.identity for file in self.opened)
        return files, tuple(self.columns), len(self.x)

    def facts(self) -> dict[str, Any]:
        """Names, sizes and digests of the files, and the columns."""
        files = digests.of_files(self.files)
        return {"format": "parquet", "files": files, "columns": self.columns}

    def _decoded(self, k: int) -> list[np.ndarray]:
        number, group = self.groups[k]
        with self.opened[number]:
            return self._columns(self.files[number], group)

    def _columns(self, file: Path, group: int) -> list[np.ndarray]:
        try:
            table = _opened(file).read_row_group(group, columns=self.columns, use_threads=True)
        # A damaged file can fail in any stage of the decoder, in errors of several kinds.
        except Exception as error:
            raise damage(file, f"row group {group}", error) from error
        shapes = jax.tree.leaves(self.row)
        parts = [np.empty((table.num_rows, *x.shape), x.dtype) for x in shapes]
        for j, name in enumerate(self.columns):
            column = table.column(name)
            if column.null_count:
                raise ValueError(
                    f"{file}: column {name!r} has {column.null_count} missing values in row group "
                    f"{group}. Drop or impute these rows."
                )
            out = parts[0][:, j] if j < len(self.x) else parts[1]
            put(out, np.asarray(column.to_numpy()), f"{file}: column {name!r}")
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
    except Exception as error:  # as where a part is read
        raise ValueError(f"{path} is not a Parquet file: {error}") from error


def damage(path: Any, place: str, error: Exception) -> ValueError:
    """What to raise where a part of a file can't be read, whatever its decoder raised."""
    words = str(error).strip().rstrip(".") or type(error).__name__
    return ValueError(
        f"{path} can't be read in {place}: {words}. If it is damaged, copy or make it again."
    )


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


class _ZarrReader(Reader):
    """Reads an array, or a tree of the arrays of a group."""

    pages = None

    def __init__(self, path: Any, names: Any, allow_missing: bool) -> None:
        self.arrays, structure = jax.tree.flatten(_arrays(path, names))
        labels = [f"{path}/{array.path}".rstrip("/") for array in self.arrays]
        shapes = []
        for array, label in zip(self.arrays, labels, strict=True):
            dtype = delivered(array.dtype, label)
            if array.ndim == 0:
                raise ValueError(f"{label} is a single number; it needs a leading axis.")
            shapes.append(jax.ShapeDtypeStruct(array.shape[1:], dtype))
        counts = {name: a.shape[0] for name, a in zip(labels, self.arrays, strict=True)}
        self.num_rows = check_rows(counts)
        self.grain = min(self.num_rows, max((a.shards or a.chunks)[0] for a in self.arrays))
        self.row, self.names = structure.unflatten(shapes), structure.unflatten(labels)
        named = zip(self.arrays, labels, strict=True)
        self.chunks = [_Chunks(array, label, allow_missing) for array, label in named]

    def read(self, ranges: Ranges, out: PyTree) -> None:
        """Read range by range; chunks are decoded by Zarr's own threads."""
        each = zip(self.chunks, jax.tree.leaves(self.names), jax.tree.leaves(out), strict=True)
        for chunks, name, whole in each:
            done = 0
            for begin, end in ranges.tolist():
                rows = chunks.read(begin, end)
                put(whole[done : done + end - begin], rows, name)
                done += end - begin

    def identity(self) -> tuple:
        """Of arrays in folders, their files; others are themselves alone."""
        return tuple(chunks.identity for chunks in self.chunks)

    def facts(self) -> dict[str, Any]:
        """Names, shapes, dtypes, chunks, and a digest of the files or, elsewhere, of the rows."""
        arrays = []
        for array in self.arrays:
            shape, chunks = list(array.shape), list(array.chunks)
            content = _content(array, self.grain)
            arrays.append({"name": array.path, "shape": shape, "chunks": chunks, "is": content})
        return {"format": "zarr", "arrays": arrays}


class _Chunks:
    """An array's chunks, or shards, and in a folder the files of them as they were when opened.

    Args:
        array: of Zarr.
        label: what to call it in an error.
        allow_missing: whether a chunk without a file is the fill value.

    Raises:
        ValueError: a chunk has no file.
    """

    def __init__(self, array: Any, label: str, allow_missing: bool) -> None:
        self.array, self.label, self.allow_missing = array, label, allow_missing
        size = array.shards or array.chunks
        self.rows, root = size[0], getattr(array.store, "root", None)
        self.grid = tuple(-(-n // max(1, k)) for n, k in zip(array.shape, size, strict=True))
        self.folder = root.resolve() / array.path if isinstance(root, Path) else None
        self.identity: Any = id(array)
        if self.folder is not None:
            every = np.ndindex(self.grid)
            self.seen = np.fromiter((self._stamp(at) for at in every), np.int64).reshape(self.grid)
            about = [str(stamp(x)) for x in (self.folder / n for n in METADATA) if x.exists()]
            self.identity = str(self.folder), *about, hash(self.seen.tobytes()), allow_missing
        elif not allow_missing:
            each = math.prod(-(-n // k) for n, k in zip(size, array.chunks, strict=True))
            if (missing := math.prod(self.grid) - array.nchunks_initialized // each) > 0:
                raise self._missing(f"{missing} of {math.prod(self.grid)} chunks are")

    def read(self, begin: int, end: int) -> np.ndarray:
        """The rows [begin, end). Raises: ValueError: they can't be read, or files have changed."""
        try:
            rows = self.array[begin:end]
        except Exception as error:  # as of Parquet
            self._compare(begin, end)
            raise damage(self.label, f"the rows {begin} to {end}", error) from error
        self._compare(begin, end)
        return rows

    def _compare(self, begin: int, end: int) -> None:
        if self.folder is None:
            return
        first, last = begin // self.rows, -(-end // self.rows)
        for k, *rest in np.ndindex(last - first, *self.grid[1:]):
            if self._stamp(at := (first + k, *rest)) != self.seen[at]:
                raise ValueError(
                    f"{self.label} has changed since it was opened, in its chunk {self._key(at)}. "
                    "Open the data again, and begin anew with them."
                )

    def _stamp(self, at: tuple[int, ...]) -> int:
        """A number that the file of a chunk is told by; 0 without one."""
        try:
            found = os.stat(f"{self.folder}/{self._key(at)}")
        except FileNotFoundError:
            if self.allow_missing:
                return 0
            raise self._missing(f"the file of the chunk {self._key(at)} is") from None
        return hash((found.st_ino, found.st_size, found.st_mtime_ns)) or 1

    def _key(self, at: tuple[int, ...]) -> str:
        return self.array.metadata.encode_chunk_key(at)

    def _missing(self, what: str) -> ValueError:
        return ValueError(
            f"{self.label} is not complete: {what} missing. Copy the array again; or, where a "
            "chunk without a file is meant to be the fill value, pass allow_missing_chunks=True."
        )


def _content(array: Any, rows: int) -> Any:
    root = getattr(array.store, "root", None)
    if not isinstance(root, Path):
        return digests.of_rows(
            np.asarray(array[begin : begin + rows]) for begin in range(0, array.shape[0], rows)
        )
    folder = root.resolve() / array.path
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    found = [one["digest"] for one in digests.of_files(files)]
    names = [path.relative_to(folder).as_posix() for path in files]
    return digests.of_names(dict(zip(names, found, strict=True)))


def _arrays(path: Any, names: Any) -> PyTree:
    """A tree of Zarr arrays."""
    import zarr

    if isinstance(path, str | Path) and "://" not in str(path) and not Path(path).exists():
        raise FileNotFoundError(f"there is no Zarr array or group at {path}.")
    try:
        found = zarr.open(path, mode="r")
        arrays = {} if isinstance(found, zarr.Array) else dict(found.arrays())
    # Damaged or foreign metadata can fail in any stage of a parser.
    except Exception as error:
        raise ValueError(
            f"path must be that of a Zarr array or group; {path} can't be opened: {error}"
        ) from error
    if isinstance(found, zarr.Array):
        if names is not None:
            raise ValueError(f"names={names!r}, but {path} is a single array. Leave names out.")
        return found
    if names is None:
        if not arrays:
            raise ValueError(f"the Zarr group {path} has no arrays.")
        return arrays

    def one(name: Any) -> Any:
        if name not in arrays:
            raise ValueError(f"the Zarr group {path} has no array {name!r}, only {list(arrays)}.")
        return arrays[name]

    return jax.tree.map(one, names)
