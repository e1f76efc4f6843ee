"""Files that are there whole or not at all, and on the disk when they are counted."""

import contextlib
import os
from collections.abc import Generator, Iterable
from pathlib import Path

BESIDE = ".{}.new"  # the name of a file that is being written, beside its place


def put(path: Path, *content: bytes) -> set[Path]:
    """Write a file beside its place, flush it to the disk, and rename it; missing folders are made.

    New entries of the folders that are returned are on the disk after `sync`.
    """
    changed = make_folder(path.parent) | {path.parent}
    beside = path.with_name(BESIDE.format(path.name))
    try:
        with naming(path), open(beside, "wb") as file:
            file.writelines(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    return changed


@contextlib.contextmanager
def naming(path: Path) -> Generator[None]:
    """Let an OSError say which file it is about, which that of a write does not."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def make_folder(path: Path) -> set[Path]:
    """Make a folder and those that it is in; return the folders that are to be synced."""
    changed, missing = set(), path
    while not missing.exists():
        missing = missing.parent
        changed.add(missing)
    path.mkdir(parents=True, exist_ok=True)
    return changed


def sync(folders: Iterable[Path]) -> None:
    """Wait until the entries of folders are on the disk."""
    for folder in folders:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all, even if the power fails."""
    sync(put(path, content))
