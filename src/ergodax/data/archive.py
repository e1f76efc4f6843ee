"""Arrays of an .npz file, and what is refused in them."""

import contextlib
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

from ergodax.checks import file_path

DAMAGE = (
    zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError,
    NotImplementedError, RuntimeError,  # it seems compressed unknown to Python, or encrypted
)  # fmt: skip
REAL = "buif"  # kinds of NumPy's real numbers


def names(path: str | Path) -> list[str]:
    """The names of the arrays in a file, sorted.

    Args:
        path: the file.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not an .npz file, or a damaged one.
    """
    with _opened(path) as archive:
        return sorted(archive.files)


def read(
    path: str | Path, wanted: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, np.ndarray]:
    """Some of the arrays by name.

    Args:
        path: the file.
        wanted: what it must have.
        optional: what it may have.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not an .npz file, a damaged one, or one without an array that is wanted.
    """
    there = names(path)
    for name in wanted:
        if name not in there:
            raise ValueError(
                f"{path} has no array {name!r}: it must have the arrays {' and '.join(wanted)}, "
                f"and has {', '.join(there) or 'none'}."
            )
    chosen = [name for name in (*wanted, *optional) if name in there]
    with _opened(path) as archive:
        found = {name: archive[name] for name in chosen}
        for name, array in found.items():
            if not isinstance(array, np.ndarray):  # NumPy hands out raw what begins like none
                raise ValueError(f"{name} is not an array")
        return found


def check_lengths(path: str | Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Refuse arrays of a file that do not have the same number of rows, one at least.

    Raises:
        ValueError: a single number, different numbers of rows, or none.
    """
    counts = {array.shape[:1] for array in arrays.values()}
    if len(counts) > 1 or counts & {(), (0,)}:
        shapes = " and ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise ValueError(
            f"{path}: {' and '.join(arrays)} must have as many rows, one at least; their shapes "
            f"are {shapes}."
        )


def check_real(path: str | Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Refuse arrays of text or of complex numbers.

    Raises:
        ValueError: there is one.
    """
    for name, array in arrays.items():
        if array.dtype.kind not in REAL:
            raise ValueError(
                f"{path}: {name} must be real numbers, not {array.dtype}. Code text as numbers."
            )


def check_finite(path: str | Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Refuse real arrays with NaN or infinity.

    Raises:
        ValueError: there is one; says in how many rows.
    """
    for name, array in arrays.items():
        bad = ~np.isfinite(array).reshape(len(array), -1).all(axis=1)
        if bad.any():
            raise ValueError(
                f"{path}: {name} is NaN or infinite in {bad.sum()} of {len(bad)} rows, the first "
                f"of them row {bad.argmax()}. Drop or impute these rows."
            )


@contextlib.contextmanager
def _opened(path: str | Path) -> Iterator[NpzFile]:
    path = file_path("path", path)
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    with path.open("rb") as file:  # NumPy leaves a damaged one open
        if not zipfile.is_zipfile(file):
            raise ValueError(
                f"{path} is not an .npz file, or it is damaged. np.savez makes an .npz file; if "
                "it was copied, copy it again."
            )
        try:
            with NpzFile(file) as archive:
                yield archive
        except DAMAGE as error:
            raise ValueError(
                f"{path} can't be read: {str(error).rstrip('.')}. Write it again with np.savez, as "
                "arrays of numbers or text."
            ) from None
