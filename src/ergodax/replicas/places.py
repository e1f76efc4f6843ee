"""Where replicas leave their results: a folder on a disk, or a prefix of an object store."""

import contextlib
import os
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from ergodax.checks import file_path
from ergodax.errors import StorageError
from ergodax.persist import disk
from ergodax.persist.checkpoint import Lock

MANIFEST, LOG = "replicas.json", ".log"


class FolderLog:
    """The log of a worker on a disk, and the right to append to it.

    Args:
        path: of the file.
        every: seconds after which what was appended outlives a power cut.

    Raises:
        CheckpointError: another process has it.
        OSError: it can't be made.
    """

    def __init__(self, path: Path, every: float) -> None:
        self.lock, self.path = Lock(path), path
        self.every, self.flushed = every, time.monotonic()
        try:
            self.file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            self.content = path.read_bytes()
        except OSError:
            self.lock.release()
            raise

    def begin(self, end: int) -> None:
        """Go on after `end` bytes; what a kill has left half written goes."""
        os.ftruncate(self.file, end)
        os.lseek(self.file, end, os.SEEK_SET)

    def append(self, content: bytes) -> None:
        """Add a record whole or not at all; it outlives a kill at once, a power cut after a while.

        Raises:
            OSError: the disk is full.
        """
        end = os.lseek(self.file, 0, os.SEEK_CUR)
        try:
            if os.write(self.file, content) < len(content):
                raise OSError(28, "No space left on device")
            if time.monotonic() - self.flushed > self.every:
                self.flush()
        except OSError:
            with contextlib.suppress(OSError):
                self.begin(end)
            raise

    def flush(self) -> None:
        """Wait until it is on the disk."""
        os.fsync(self.file)
        self.flushed = time.monotonic()

    def close(self, *, keep: bool = True) -> None:
        """Let others have it, when all is on the disk."""
        try:
            self.flush()
            if not keep:
                self.path.unlink(missing_ok=True)
        finally:
            os.close(self.file)
            self.lock.release()


class Folder:
    """A folder of the file system: one file a worker.

    Args:
        path: of the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def manifest(self) -> bytes | None:
        """What is there; None where nothing is."""
        with contextlib.suppress(FileNotFoundError):
            return (self.path / MANIFEST).read_bytes()

    def put_manifest(self, content: bytes) -> None:
        """Write it, unless one is there."""
        disk.make_folder(self.path)
        beside = self.path / f".{uuid4().hex}.new"
        try:
            disk.write(beside, content)
            os.link(beside, self.path / MANIFEST)
        except FileExistsError:
            pass
        finally:
            beside.unlink(missing_ok=True)

    def logs(self) -> dict[str, Path]:
        """The files by worker."""
        return {path.stem: path for path in sorted(self.path.glob(f"*{LOG}"))}

    def unfinished(self, first: int, size: int) -> list[str]:
        """Workers that have not ended of themselves, by a look at the last record of each."""
        found: list[str] = []
        for worker, path in self.logs().items():
            with open(path, "rb") as file:
                count = max(0, file.seek(0, os.SEEK_END) - first) // size
                file.seek(first + max(0, count - 1) * size)
                number = int.from_bytes(file.read(8), "little", signed=True)
            if number >= 0:  # and where there is none
                found.append(worker)
        return found

    def read(self) -> Iterator[tuple[str, bytes]]:
        """Worker and log, one after another."""
        for worker, path in self.logs().items():
            yield worker, path.read_bytes()

    def log(self, worker: str, every: float) -> FolderLog:
        """To append to."""
        return FolderLog(self.path / f"{worker}{LOG}", every)

    def process(self, worker: str) -> str:
        """Who has the log of a worker: `process PID on HOST`, or nobody."""
        with contextlib.suppress(OSError):
            return (self.path / f".{worker}{LOG}.process").read_text()
        return "nobody"


class StoreLog:
    """The log of a worker in an object store: an object for what came in `every` seconds.

    Args:
        store: where.
        worker: the name.
        every: seconds.
    """

    def __init__(self, store: "Store", worker: str, every: float) -> None:
        self.store, self.worker, self.every = store, worker, every
        self.content = dict(store.read()).get(worker, b"")
        self.pending, self.flushed = b"", time.monotonic()

    def begin(self, end: int) -> None:
        """What is there can't be cut; a half-written object is not one."""

    def append(self, content: bytes) -> None:
        """Add a record, which is there after `every` seconds."""
        self.pending += content
        if time.monotonic() - self.flushed > self.every:
            self.flush()

    def flush(self) -> None:
        """Write what has come."""
        self.flushed = time.monotonic()
        if self.pending:
            name = f"{self.worker}/{time.time_ns():020d}-{uuid4().hex[:8]}{LOG}"
            self.store.files.pipe_file(f"{self.store.path}/{name}", self.pending)
            self.pending = b""

    def close(self, *, keep: bool = True) -> None:
        """Write the rest."""
        self.pending = self.pending if keep else b""
        self.flush()


class Store:
    """A prefix of an object store, by fsspec. It has no locks: no worker goes on for another.

    Args:
        url: such as s3://bucket/run.

    Raises:
        ImportError: fsspec is missing.
    """

    def __init__(self, url: str) -> None:
        try:
            import fsspec  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise ImportError(
                f"folder={url!r} is an object store, which needs fsspec: pip install fsspec, and "
                "the package of the store, such as s3fs."
            ) from error
        self.files, self.path = fsspec.core.url_to_fs(url)

    def manifest(self) -> bytes | None:
        """What is there; None where nothing is."""
        with contextlib.suppress(FileNotFoundError):
            return self.files.cat_file(f"{self.path}/{MANIFEST}")

    def put_manifest(self, content: bytes) -> None:
        """Write it, unless one is there."""
        if self.manifest() is None:
            self.files.pipe_file(f"{self.path}/{MANIFEST}", content)

    def read(self) -> Iterator[tuple[str, bytes]]:
        """Worker and log, one after another."""
        self.files.invalidate_cache()
        found: dict[str, bytes] = {}
        names = sorted(self.files.glob(f"{self.path}/*/*{LOG}"))
        for name, content in sorted(self.files.cat(names).items()) if names else ():
            worker = name.rsplit("/", 2)[-2]
            begun = found.get(worker, b"")
            line = begun[: begun.find(b"\n") + 1]  # which two of one name may both have written
            found[worker] = begun + content.removeprefix(line)
        yield from found.items()

    def log(self, worker: str, every: float) -> StoreLog:
        """To append to."""
        return StoreLog(self, worker, every)

    def process(self, worker: str) -> str:
        """It is not known."""
        return "?"


Place = Folder | Store


def place_of(folder: Any) -> Place:
    """A folder by its path, or an object store by its URL. Raises: TypeError."""
    if isinstance(folder, str) and "://" in folder:
        return Store(folder)
    return Folder(file_path("folder", folder))


@contextlib.contextmanager
def writing(folder: Any, worker: str, count: int) -> Generator[None]:
    """While active, an OSError is one of a folder that is full or can't be written.

    Raises:
        StorageError: always, in place of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"worker {worker} can't write to {folder}: {error}. The {count} results that it had "
            "are there. Make room, and start it again: it goes on after them."
        ) from error
