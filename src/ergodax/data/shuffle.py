"""A copy of the data in random order, made with little memory."""

import contextlib
import os
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any, BinaryIO

import jax
import numpy as np
from jaxtyping import PyTree

from ergodax import tree
from ergodax.data.files import npy
from ergodax.data.paged import Paged
from ergodax.data.source import Source, row_bytes, stacked

MEMORY = 2**28


def shuffle(
    source: Any,
    folder: str | os.PathLike,
    *,
    seed: int = 0,
    memory: int = MEMORY,
    **options: Any,
) -> Paged:
    """Write the rows in random order, every order equally likely, and open the copy.

    Two passes: each row goes to a random one of several piles on disk; then each pile, which fits
    the memory, is read, put in random order and written behind those before. Needs room on disk
    for the data twice, and leaves it taken once.

    Args:
        source: of the rows.
        folder: made for the copy; has one .npy file for each array, named by its place in the
            tree of the data, such as 0.npy, or data.npy where there is one array alone.
        seed: of the order.
        memory: bytes of rows that are held at a time.
        options: block_rows, page_rows, passes and dtype of the source that is returned, as in
            ex.data.npy.

    Returns:
        The copy as a source of the same structure.

    Raises:
        FileExistsError: the folder exists.
        OSError: the folder can't be written, or has no room. What was written is removed.
        TypeError: not a source.
        ValueError: memory for fewer than 1024 rows, or for so few that there would be more than
            1024 piles.

    Example:
        >>> import ergodax as ex, numpy as np, pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> np.save(folder / "x.npy", np.arange(1_000.0, dtype=np.float32))
        >>> shuffled = ex.data.shuffle(ex.data.npy(folder / "x.npy"), folder / "shuffled")
        >>> shuffled.num_rows
        1000

    Reference:
        Rao, Generation of random permutation of given number of elements using random sampling
        numbers, 1961.
    """
    if not isinstance(source, Source):
        raise TypeError(f"source must be a source such as ex.data.npy gives, not {source!r}.")
    size = row_bytes(source.row)
    # A pile is read and put in order, which takes it twice, and piles differ in size.
    piles = -(-4 * source.num_rows * size // memory)
    if memory < 1024 * size or piles > 1024:
        least = max(1024 * size, 4 * source.num_rows * size // 1024 + 1)
        raise ValueError(f"memory={memory} is too little for these data. Try {least}.")
    folder = Path(folder)
    try:
        folder.mkdir(parents=True)
    except FileExistsError as error:
        raise FileExistsError(
            f"{folder} is there already. Choose another folder; or, if it was left behind by a "
            "shuffle that was killed, remove it."
        ) from error
    names = jax.tree_util.tree_map_with_path(
        lambda path, _: folder / f"{tree.path_name(path) or 'data'}.npy", source.row
    )
    rng = np.random.default_rng(seed)
    places = [folder / f"pile-{k}" for k in range(piles)]
    with _whole_or_gone(folder, 2 * source.num_rows * size):
        _deal(source, places, rng, max(1, memory // (4 * size)))
        _collect(source, places, jax.tree.leaves(names), rng)
    return npy(names, **options)


@contextlib.contextmanager
def _whole_or_gone(folder: Path, size: int) -> Generator[None]:
    """A context that fills a folder; on an error it is removed. Raises: OSError: can't be filled.

    `size`: bytes that it needs.
    """
    try:
        yield
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        # Of the rows that are read an error names the file; of a write NumPy's does not.
        if isinstance(error, OSError) and error.filename is None:
            raise OSError(
                f"the shuffled copy can't be written to {folder}, and is removed: {error}. Make "
                f"room for {size:,} bytes (the data twice), or choose a folder on another disk."
            ) from error
        raise


def _deal(source: Source, piles: list[Path], rng: np.random.Generator, rows: int) -> None:
    """Deal the rows to the piles, so many at a time."""
    for some in source.scan(rows):
        records = _records(some)
        which = rng.integers(len(piles), size=len(records))
        order = np.argsort(which, kind="stable")
        ends = np.searchsorted(which[order], np.arange(len(piles) + 1))
        for k, pile in enumerate(piles):
            with open(pile, "ab") as file:
                records[order[ends[k] : ends[k + 1]]].tofile(file)


def _collect(
    source: Source, piles: list[Path], names: list[Path], rng: np.random.Generator
) -> None:
    """Put each pile in order and write it behind those before; the pile is deleted."""
    shapes = jax.tree.leaves(stacked(source.row, source.num_rows))
    with contextlib.ExitStack() as opened:
        files = [opened.enter_context(_begun(n, x)) for n, x in zip(names, shapes, strict=True)]
        for pile in piles:
            records = np.fromfile(pile, np.uint8).reshape(-1, row_bytes(source.row))
            records = records[rng.permutation(len(records))]
            begin = 0
            for file, x in zip(files, jax.tree.leaves(source.row), strict=True):
                end = begin + row_bytes(x)
                np.ascontiguousarray(records[:, begin:end]).tofile(file)
                begin = end
            pile.unlink()


def _records(rows: PyTree) -> np.ndarray:
    """Rows as bytes, the arrays side by side: shape (rows, bytes)."""
    parts = [np.ascontiguousarray(x) for x in jax.tree.leaves(rows)]
    return np.concatenate([x.reshape(len(x), -1).view(np.uint8) for x in parts], axis=1)


def _begun(path: Path, x: jax.ShapeDtypeStruct) -> BinaryIO:
    """A .npy file with its header written."""
    file = open(path, "wb")
    descr = np.lib.format.dtype_to_descr(np.dtype(x.dtype))
    header = {"descr": descr, "fortran_order": False, "shape": x.shape}
    np.lib.format.write_array_header_2_0(file, header)
    return file
