"""What a store of draws counts: an append-only text, whose every line is under a checksum.

A commit is some lines `chunk ARRAY INDEX DRAWS CHECKSUM`, for the chunks that were written, and one
line `draws COUNT NUMBER CHECKSUM`. The checksum of the last covers the lines of its commit and, by
the checksum before, all earlier ones. A commit that a power cut has left half written is not one:
the log ends before it. The count can fall, when a run is resumed from an earlier checkpoint.
"""

import os
from pathlib import Path

from google_crc32c import extend, value

from ergodax.errors import CheckpointError
from ergodax.persist import disk

NAME = "log"  # in the folder of draws
FIRST = b"ergodax-draws-2"

Chunks = dict[tuple[int, int], tuple[int, int]]


class Log:
    """The log of a folder of draws, as far as it is whole.

    Args:
        path: the file.

    Attributes:
        draws: how many are counted.
        number: of commits.
        chunks: (array, index) to (draws in the chunk that are counted, their checksum).

    Raises:
        CheckpointError: missing, or damaged where it begins.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.draws, self.number, self.chunks = path, 0, -1, {}
        self.end, self.checksum = 0, value(FIRST)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise CheckpointError(missing(path, error)) from error
        begun: Chunks = {}
        position = 0
        for line in content.split(b"\n")[:-1]:
            position += len(line) + 1
            try:
                if line.startswith(b"draws "):
                    self._commit(line, content[self.end : position])
                    self.chunks |= begun
                    self.end, begun = position, {}
                else:
                    _, array, index, draws, checksum = line.split(b" ")
                    begun[int(array), int(index)] = int(draws), int(checksum, 16)
            except ValueError:
                break  # a half-written commit; where more was lost, zarr.json counts more
        if self.number < 0:
            raise CheckpointError(f"{path} is damaged: its first line is not whole. {RESTORE}")

    def _commit(self, line: bytes, commit: bytes) -> None:
        """Read the last line of a commit, and check all of it. Raises: ValueError."""
        _, draws, number, checksum = line.split(b" ")
        found = extend(self.checksum, commit[: -len(checksum) - 1])
        if found != int(checksum, 16) or int(number) != self.number + 1:
            raise ValueError
        self.draws, self.number, self.checksum = int(draws), int(number), found

    def append(self, draws: int, chunks: Chunks) -> None:
        """Commit chunks, which are on the disk, and the number of draws."""
        lines = [f"chunk {a} {k} {n} {c:08x}\n" for (a, k), (n, c) in chunks.items()]
        begun = ("".join(lines) + f"draws {draws} {self.number + 1} ").encode()
        checksum = extend(self.checksum, begun)
        commit = begun + b"%08x\n" % checksum
        with disk.naming(self.path), open(self.path, "r+b") as file:
            file.truncate(self.end)  # what a kill has left half written
            file.seek(self.end)
            file.write(commit)
            file.flush()
            os.fsync(file.fileno())
        self.end, self.checksum = self.end + len(commit), checksum
        self.draws, self.number = draws, self.number + 1
        self.chunks |= chunks


def first_commit() -> bytes:
    """The content of a log that counts nothing."""
    begun = b"draws 0 0 "
    return begun + b"%08x\n" % extend(value(FIRST), begun)


RESTORE = "Restore it from a copy, or run again in another folder."


def missing(path: Path, error: OSError) -> str:
    """What to say of a file that can't be read."""
    if isinstance(error, FileNotFoundError):
        return f"{path} is missing. {RESTORE}"
    return f"{path} can't be read: {error}. {RESTORE}"
