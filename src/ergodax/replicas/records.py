"""What replicas leave in a folder: a manifest, and for each worker a log of its results.

A log is a line that names the manifest, and then records of one length: the number of the replica,
what it cost, its value, and a checksum. One worker at a time appends to a log. A record that a kill
has left half written, or that a disk has damaged, does not count, and a number counts once however
often it stands there. So logs may be copied, and folders of one manifest be put together.
"""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from google_crc32c import value as checksum
from jaxtyping import PyTree

from ergodax.errors import CheckpointError
from ergodax.persist import fingerprint, structure

FORMAT = "ergodax-replicas-1"
ENDED = -1  # the number in the last record of a worker that has stopped of itself
HEAD = [
    ("number", "<i8"),
    ("level", "<i4"),
    ("evaluations", "<f8"),
    ("seconds", "<f8"),
    ("time", "<f8"),  # since 1970
]


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What all results in a folder are results of.

    Attributes:
        facts: digests by name, of the program, its arrays, the key and the versions.
        bias: of a result, in words.
        shapes: the tree of a result, as `structure.encode` has it.
        leaves: [dtype, shape] of its arrays.
    """

    facts: dict[str, str]
    bias: str
    shapes: Any
    leaves: list[Any]

    @classmethod
    def of(cls, facts: dict[str, str], bias: str, value: PyTree) -> "Manifest":
        """That of results like this value, whose arrays may be `jax.ShapeDtypeStruct`.

        Raises: TypeError: it has no arrays.
        """
        found: list[np.ndarray] = []
        like = jax.tree.map(lambda x: np.broadcast_to(np.zeros((), _kept(x)), np.shape(x)), value)
        shapes = structure.encode(like, found)
        if not found:
            raise TypeError(f"function must return a tree of arrays, not {value!r}.")
        return cls(facts, bias, shapes, [[x.dtype.str, list(x.shape)] for x in found])

    @classmethod
    def parse(cls, content: bytes, where: str) -> "Manifest":
        """What `content` says. Raises: CheckpointError."""
        try:
            fields = json.loads(content)
            fields = fields if fields.pop("format") == FORMAT else {}
            manifest = cls(**fields)
            manifest.record  # noqa: B018
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CheckpointError(
                f"{where} is not the manifest of a folder of replicas of this version: {error}. "
                "Restore it from a copy, or choose another folder."
            ) from error
        return manifest

    def content(self) -> bytes:
        """As a file."""
        return json.dumps({"format": FORMAT} | dataclasses.asdict(self), indent=1).encode()

    @property
    def first(self) -> bytes:
        """The first line of every log."""
        digest = hashlib.blake2b(self.content(), digest_size=16).hexdigest()
        return f"{FORMAT} {digest}\n".encode()

    @property
    def record(self) -> np.dtype:
        """The dtype of a record."""
        fields = [(f"f{k}", kind, tuple(shape)) for k, (kind, shape) in enumerate(self.leaves)]
        return np.dtype([*HEAD, ("value", fields), ("checksum", "<u4")])

    def write(self, number: int, value: PyTree, **head: float | int) -> bytes:
        """A record."""
        row = np.zeros((), self.record)
        row["number"] = number
        for name, x in head.items():
            row[name] = x
        for k, leaf in enumerate(self._arrays(value) if value is not None else ()):
            row["value"][f"f{k}"] = leaf
        body = row.tobytes()[:-4]
        return body + checksum(body).to_bytes(4, "little")

    def _arrays(self, value: PyTree) -> list[np.ndarray]:
        found: list[np.ndarray] = []
        # As arrays before they are told apart from plain values, which have no place in a record.
        structure.encode(jax.tree.map(lambda x: np.asarray(x, _kept(x)), value), found)
        if [[x.dtype.str, list(x.shape)] for x in found] != self.leaves:
            raise ValueError(
                f"function returned arrays of shapes {[x.shape for x in found]}, and before of "
                f"{[tuple(shape) for _, shape in self.leaves]}; all results must be alike."
            )
        return found

    def tree(self, arrays: list[Any]) -> PyTree:
        """Arrays as a tree like a result."""
        return structure.decode(self.shapes, [np.asarray(x) for x in arrays])

    def check(self, facts: dict[str, str], where: Path | str) -> None:
        """Refuse other facts. Raises: CheckpointError."""
        fingerprint.compare(facts, self.facts, Path(where))


class Content:
    """The records of one log that count.

    Args:
        manifest: of the folder.
        content: of the log.

    Attributes:
        rows: an array of records, each number once.
        end: how many bytes are whole records.
        ended: whether its worker has stopped of itself.
        foreign: whether it is the log of another folder.
        ignored: what does not count, in words.
    """

    def __init__(self, manifest: Manifest, content: bytes) -> None:
        first, kind = manifest.first, manifest.record
        self.rows, self.end, self.ended = np.empty(0, kind), 0, False
        self.ignored: list[str] = []
        begun = content.startswith(first)
        self.foreign = not begun and not first.startswith(content)  # not a kill at the very start
        if self.foreign:
            self.ignored = ["a log of another model, or damaged where it begins"]
        if not begun:
            return
        count, rest = divmod(len(content) - len(first), kind.itemsize)
        self.end = len(first) + count * kind.itemsize
        if rest:
            self.ignored.append(f"a half-written record of {rest} of {kind.itemsize} bytes")
        rows = np.frombuffer(content, kind, count, len(first))
        places = range(len(first), self.end, kind.itemsize)
        sums = [checksum(content[k : k + kind.itemsize - 4]) for k in places]
        whole = rows["checksum"] == np.array(sums, np.uint32)
        if not whole.all():
            self.ignored.append(f"{int((~whole).sum())} damaged records")
        self.ended = bool(count and whole[-1] and rows["number"][-1] == ENDED)
        counts = np.flatnonzero(whole & (rows["number"] >= 0))
        counts = counts[np.unique(rows["number"][counts], return_index=True)[1]]
        if np.array_equal(counts, np.arange(len(counts))):
            self.rows = rows[: len(counts)]  # as always, where nothing is amiss; it copies nothing
        else:
            self.rows = rows[counts]

    def missing(self) -> Iterator[int]:
        """The numbers that are still to be made, the lowest first."""
        done = set(self.rows["number"].tolist())
        return (number for number in itertools.count() if number not in done)


def _kept(x: Any) -> np.dtype:
    """The dtype in which numbers are kept. Raises: TypeError: what is none."""
    dtype = jnp.dtype(x.dtype) if hasattr(x, "dtype") else np.asarray(x).dtype
    if dtype.kind in "fiub":
        return np.dtype(dtype).newbyteorder("<")
    if jnp.issubdtype(dtype, jnp.floating):  # JAX's own small precisions
        return np.dtype("<f4")
    raise TypeError(f"function must return a tree of arrays of numbers, not {dtype}.")
