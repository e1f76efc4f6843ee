"""The files of draws in Zarr's format: zarr.json and chunks, each with a checksum.

They are written here, and not by Zarr, so that the order in which they reach the disk is ours.
"""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
from google_crc32c import extend, value

from ergodax.errors import CheckpointError
from ergodax.persist import disk
from ergodax.persist.log import RESTORE, missing

DESCRIPTION = "zarr.json"
CHUNK_BYTES = 2**22
MOST_DRAWS = 4096  # of a chunk
CHECKSUM = 4  # bytes of CRC-32C at the end of a chunk's file, as Zarr's codec has them


class StoredArray:
    """One variable: an array (chain, draw, ...) in a folder of its own.

    Args:
        store: the folder of draws.
        name: of the array, and of its folder in the store.
        description: what its zarr.json says.
        dtype: of the draws; what Zarr does not know is stored as float32 or int8, exactly.

    Attributes:
        size: draws of a chunk.

    Raises:
        ValueError: the numbers that are stored are of another type.
    """

    def __init__(self, store: Path, name: str, description: dict[str, Any], dtype: Any) -> None:
        self.name, self.path, self.description = name, store / name, description
        self.dtype = np.dtype(jax.numpy.dtype(dtype))
        self.stored = stored_type(self.dtype)
        if description["data_type"] != self.stored.name:
            raise ValueError(f"{name} is of {description['data_type']}, not of {self.stored.name}")
        chains, self.size, *_ = description["chunk_grid"]["configuration"]["chunk_shape"]
        self.inner = tuple(description["shape"][2:])
        self.chunk = (chains, self.size, *self.inner)
        self.bytes = int(np.prod(self.chunk)) * self.stored.itemsize

    @property
    def length(self) -> int:
        """Draws that its zarr.json says it has."""
        return self.description["shape"][1]

    def indices(self, first: int, end: int) -> range:
        """The chunks that have the draws [first, end); none where a draw has no numbers."""
        return range(first // self.size, -(-end // self.size) if self.bytes else 0)

    def file(self, index: int) -> Path:
        """The file of a chunk."""
        return self.path.joinpath("c", "0", str(index), *("0" for _ in self.inner))

    def checksum(self, index: int, chunk: np.ndarray, draws: int) -> int:
        """Of the first draws of a chunk, with the array's name and the chunk's index."""
        return extend(value(f"{self.name} {index} ".encode()), chunk[:, :draws].tobytes())

    def write(self, index: int, chunk: np.ndarray) -> set[Path]:
        """Write a chunk; return the folders that are to be synced."""
        return disk.put(self.file(index), *with_checksum(chunk.tobytes()))

    def read(self, index: int, counted: tuple[int, int] | None) -> np.ndarray:
        """Read a chunk and check it against what the log counts of it: draws, and their checksum.

        Raises: CheckpointError where it is missing, damaged, or not the one that is counted.
        """
        file = self.file(index)
        content = content_of(file)
        if counted is not None and len(content) == self.bytes:
            chunk = np.frombuffer(content, self.stored).reshape(self.chunk)
            if self.checksum(index, chunk, counted[0]) == counted[1]:
                return chunk
        raise CheckpointError(
            f"{file} does not have the draws that were counted: it is older, or of another place "
            f"or run. {RESTORE}"
        )

    def describe(self, length: int) -> set[Path]:
        """Write the zarr.json of so many draws; return the folders that are to be synced."""
        self.description["shape"][1] = length
        return disk.put(self.path / DESCRIPTION, rendered(self.description, self.name))


def group_description(attributes: dict[str, Any]) -> dict[str, Any]:
    """What the zarr.json of a group says."""
    return {"attributes": attributes, "zarr_format": 3, "node_type": "group"}


def array_description(name: str, leaf: np.ndarray, axes: Any = None) -> dict[str, Any]:
    """What the zarr.json of an array of no draws like `leaf` says."""
    dtype, (chains, *inner) = stored_type(leaf.dtype), leaf.shape
    bytes_a_draw = max(1, leaf.size * dtype.itemsize)
    draws = max(1, min(MOST_DRAWS, CHUNK_BYTES // bytes_a_draw))
    chunk = [chains, draws, *(max(1, n) for n in inner)]
    grid = {"name": "regular", "configuration": {"chunk_shape": chunk}}
    keys = {"name": "default", "configuration": {"separator": "/"}}
    zero = {"b": False, "i": 0, "u": 0, "f": 0.0, "c": [0.0, 0.0]}[dtype.kind]
    known = list(axes or ())[: len(inner)]
    last = name.rpartition("/")[2]
    axes = [*known, *(f"{last}_dim_{k}" for k in range(len(known), len(inner)))]
    return {
        "shape": [chains, 0, *inner], "data_type": dtype.name, "chunk_grid": grid,
        "chunk_key_encoding": keys, "fill_value": zero,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
        "attributes": {}, "dimension_names": ["chain", "draw", *axes], "zarr_format": 3,
        "node_type": "array", "storage_transformers": [],
    }  # fmt: skip


def label_description(name: str, texts: list[str]) -> dict[str, Any]:
    """What the zarr.json of an axis's labels says."""
    description = array_description(name, np.zeros((len(texts), 0), np.int8), ())
    description["chunk_grid"]["configuration"]["chunk_shape"] = [max(1, len(texts))]
    return description | {
        "shape": [len(texts)], "data_type": "string", "fill_value": "",
        "codecs": [{"name": "vlen-utf8"}, {"name": "crc32c"}],
        "dimension_names": [name.rpartition("/")[2]],
    }  # fmt: skip


def texts_as_bytes(texts: list[str]) -> bytes:
    """Texts as Zarr's codec vlen-utf8 writes them."""
    encoded = [text.encode() for text in texts]
    numbered = [len(text).to_bytes(4, "little") + text for text in encoded]
    return len(texts).to_bytes(4, "little") + b"".join(numbered)


def with_checksum(content: bytes) -> tuple[bytes, bytes]:
    """The content of a chunk's file, and the checksum after it."""
    return content, value(content).to_bytes(CHECKSUM, "little")


def content_of(file: Path) -> bytes:
    """The content of a chunk's file without its checksum. Raises: CheckpointError."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise CheckpointError(missing(file, error)) from error
    if with_checksum(content[:-CHECKSUM])[1] != content[-CHECKSUM:]:
        raise CheckpointError(f"{file} is damaged or cut short. {RESTORE}")
    return content[:-CHECKSUM]


def stored_type(dtype: np.dtype) -> np.dtype:
    """The type in which draws are stored: one that Zarr has."""
    if dtype.type.__module__ == "numpy":
        return dtype
    return np.dtype(np.int8 if jax.numpy.issubdtype(dtype, jax.numpy.integer) else np.float32)


def rendered(description: dict[str, Any], name: str) -> bytes:
    """The text of a zarr.json: with its checksum, which covers its place in the store too."""
    attributes = {k: v for k, v in description["attributes"].items() if k != "checksum"}
    text = json.dumps({**description, "attributes": attributes}, separators=(",", ":"))
    attributes["checksum"] = value(f"{name} {text}".encode())
    return json.dumps({**description, "attributes": attributes}, separators=(",", ":")).encode()


def described(file: Path, name: str) -> dict[str, Any]:
    """What a zarr.json says, if every byte of it is as it was written. Raises: CheckpointError."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise CheckpointError(missing(file, error)) from error
    try:
        description = json.loads(content)
        if rendered(description, name) == content:
            return description
    except Exception:  # a damaged or hostile file can fail in the text or in the structure
        pass
    raise CheckpointError(
        f"{file} is damaged, or another program or version has written it. {RESTORE}"
    )
