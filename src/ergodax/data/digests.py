"""What files contain, in short texts: whole files are read, once each until they change.

A digest is remembered by the file's device and inode, its size and the times at which the system
last noted a change of its content and of its entry, in `digests.json` of the user's cache folder,
so that a run that is resumed need not read its data again.

Not remembered is that of a file which has just been changed, since its next change may bear the
same times. What is written to a memory map is noted when a page of it is first written after it
has gone to the disk; so the file is brought there before its times are looked at.
"""

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from ergodax.cache import cache_folder

PIECE = 2**24  # bytes that a thread reads and digests at a time
THREADS = 8  # at most
SETTLED = 2.0  # seconds after a change until the next one has other times, on any file system
MOST_REMEMBERED = 10_000  # files; the oldest are forgotten


def of_files(paths: list[Path]) -> list[dict[str, Any]]:
    """Of each file its name, its size and the digest of its bytes."""
    known = _remembered()
    found, new = [], {}
    for path in paths:
        _bring_to_disk(path)
        begin, stat = time.time(), path.stat()
        digest = known.get(_stamp(stat))
        if digest is None:
            digest = _of_file(path, stat.st_size)
            changed = max(stat.st_mtime, stat.st_ctime)
            if changed + SETTLED < begin and _stamp(path.stat()) == _stamp(stat):
                new[_stamp(stat)] = digest
        found.append({"name": path.name, "bytes": stat.st_size, "digest": digest})
    if new:
        _remember(new)
    return found


def _stamp(stat: os.stat_result) -> str:
    """What a digest is remembered by."""
    return ":".join(
        str(x) for x in (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    )


def _bring_to_disk(path: Path) -> None:
    """Write what the system holds back of a file, where it lets a reader ask for that."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        os.fsync(file.fileno())


def of_rows(pieces: Iterator[PyTree]) -> str:
    """Of all rows, trees of arrays, however they are cut into pieces."""
    digests: list[Any] = []
    for piece in pieces:
        leaves = [np.ascontiguousarray(leaf) for leaf in jax.tree.leaves(piece)]
        digests = digests or [hashlib.blake2b(digest_size=16) for _ in leaves]
        for digest, leaf in zip(digests, leaves, strict=True):
            digest.update(leaf.view(np.uint8).data)
    return "".join(digest.hexdigest() for digest in digests)


def of_names(values: dict[str, str]) -> str:
    """Of texts by name."""
    return hashlib.blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=16).hexdigest()


def _of_file(path: Path, size: int) -> str:
    """The digest of the digests of its pieces, which threads make side by side."""

    def piece(begin: int) -> bytes:
        with open(path, "rb") as file:
            file.seek(begin)
            return hashlib.blake2b(file.read(PIECE), digest_size=16).digest()

    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as threads:
        pieces = b"".join(threads.map(piece, range(0, size, PIECE)))
    return hashlib.blake2b(pieces, digest_size=16).hexdigest()


def _file() -> Path:
    return cache_folder() / "digests.json"


def _remembered() -> dict[str, str]:
    try:
        known = json.loads(_file().read_text(encoding="utf-8"))
    except (OSError, ValueError, RuntimeError):  # none yet, damaged, or nobody's home
        return {}
    return known if isinstance(known, dict) else {}


def _remember(new: dict[str, str]) -> None:
    """Write them beside the file and put them in its place; without a place nothing is kept."""
    with contextlib.suppress(OSError, RuntimeError):
        file = _file()
        file.parent.mkdir(parents=True, exist_ok=True)
        known = list((_remembered() | new).items())[-MOST_REMEMBERED:]
        handle, beside = tempfile.mkstemp(dir=file.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            json.dump(dict(known), out)
        os.replace(beside, file)
