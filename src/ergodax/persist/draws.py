"""The draws of a run: a buffer on the device, and a Zarr group that they go to as they come.

ArviZ and xarray read the group, and it survives a kill and a power cut. Each variable is an array
(chain, draw, ...) in uncompressed chunks. They are written whole, beside their place, and renamed,
so a file is there as it was written or not at all. Three things then say how many draws there are,
each on the disk before the next is written: the shapes in the arrays' zarr.json, the log, and the
zarr.json of the group. So a folder that a kill or a power cut has left holds what the log counts,
and a file that is missing, older than the log says or of another place is found. A reader needs no
lock: it sees the count of one moment, and chunks that have at least the draws of that count.
"""

import json
import os
import re
import secrets
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
from google_crc32c import extend, value
from jaxtyping import PyTree

from ergodax import tree
from ergodax.data.prefetch import Place
from ergodax.errors import CheckpointError
from ergodax.persist import disk, structure
from ergodax.persist.log import NAME as LOG
from ergodax.persist.log import RESTORE, Chunks, Log, first_commit, missing

FORMAT = "ergodax-draws-2"
DESCRIPTION = "zarr.json"
CHUNK_BYTES = 2**22
MOST_DRAWS = 4096  # of a chunk
CHECKSUM = 4  # bytes of CRC-32C at the end of a chunk's file, as Zarr's codec has them
PATIENCE = 10  # times that a reader begins anew, since a run has changed the store meanwhile
# Of the folder of one of several processes, inside the one of their run.
NAME = re.compile(r"process-(\d+)\.chains-(\d+)-(\d+)-of-(\d+)")
ROWS_AT_LEAST, BYTES_AT_LEAST = 4096, 2**22  # of the buffer, all chains together
BYTES_ON_THE_DEVICE = 2**28  # of draws, all chains together, before they go to the host


class StoredArray:
    """One variable: an array (chain, draw, ...) in a folder of its own.

    Args:
        store: the folder of draws.
        name: of the array, and of its folder in the store.
        description: what its zarr.json says.
        dtype: of the draws; what Zarr does not know is stored as float32 or int8, exactly.

    Attributes:
        size: draws of a chunk.
    """

    def __init__(self, store: Path, name: str, description: dict[str, Any], dtype: Any) -> None:
        self.name, self.path, self.description = name, store / name, description
        self.dtype = np.dtype(jax.numpy.dtype(dtype))
        self.stored = _stored(self.dtype)
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
        return disk.put(self.file(index), *_checked(chunk.tobytes()))

    def read(self, index: int, counted: tuple[int, int] | None) -> np.ndarray:
        """Read a chunk and check it.

        Args:
            index: of the chunk.
            counted: what the log has of it: draws, and their checksum.

        Raises:
            CheckpointError: missing, damaged, or not the one that is counted.
        """
        file = self.file(index)
        content = _whole(file)
        if counted is not None and len(content) == self.bytes:
            chunk = np.frombuffer(content, self.stored).reshape(self.chunk)
            if self.checksum(index, chunk, counted[0]) == counted[1]:
                return chunk
        raise CheckpointError(
            f"{file} does not have the draws that were counted: it is older, or of another place "
            f"or run. {RESTORE}"
        )

    def put(self, length: int) -> set[Path]:
        """Write the zarr.json of so many draws; return the folders that are to be synced."""
        self.description["shape"][1] = length
        return disk.put(self.path / DESCRIPTION, _rendered(self.description, self.name))


class DrawStore:
    """A folder of draws.

    Args:
        path: the folder, which exists.

    Attributes:
        draws: that are counted.
        identity: no other store has the same.

    Raises:
        CheckpointError: not a store of draws, or damaged.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not (self.path / DESCRIPTION).exists():
            raise CheckpointError(
                f"{path} is not a store of draws: {self.path / DESCRIPTION} is missing."
            )
        try:
            self._open()
        except CheckpointError:
            raise
        # What has the right checksum, which anybody can compute, can still be nonsense.
        except Exception as error:
            raise CheckpointError(f"{path} is not a store of draws: {error}") from error

    def _open(self) -> None:
        # A store that is being written counts no less in the log, and its arrays are no shorter,
        # if they are read in this order.
        self.description = _described(self.path / DESCRIPTION, "")
        attributes: dict[str, Any] = self.description["attributes"]
        if attributes["format"] != FORMAT:
            raise ValueError(f"its format is {attributes['format']!r}, not {FORMAT!r}")
        self.log = Log(self.path / LOG)
        if self.log.number < attributes["commit"]:
            raise CheckpointError(
                f"{self.log.path} is damaged or cut short: it has {self.log.number} commits, but "
                f"{self.path / DESCRIPTION} is of {attributes['commit']}. {RESTORE}"
            )
        self.draws, self.identity = self.log.draws, str(attributes["identity"])
        self.structure = json.loads(attributes["structure"])
        names: list[str] = attributes["names"]
        for group in {name.partition("/")[0] for name in names}:
            _described(self.path / group / DESCRIPTION, group)
        self.arrays = [
            StoredArray(self.path, name, _described(self.path / name / DESCRIPTION, name), dtype)
            for name, dtype in zip(names, attributes["dtypes"], strict=True)
        ]
        for name in attributes["labels"]:
            _described(self.path / name / DESCRIPTION, name)
            _whole(self.path / name / "c" / "0")
        for array in self.arrays:
            if array.length < self.draws:
                raise CheckpointError(
                    f"{array.path / DESCRIPTION} is older than the log: it has {array.length} "
                    f"draws, but {self.draws} are counted. {RESTORE}"
                )

    def fits(self, row: PyTree) -> bool:
        """Whether these are draws like `row`: (collected, info) of all chains."""
        leaves = jax.tree.leaves(row)
        shapes = [((a.chunk[0], *a.inner), a.dtype) for a in self.arrays]
        return shapes == [(x.shape, x.dtype) for x in leaves]

    def append(self, rows: PyTree) -> None:
        """Add draws: (collected, info), leaves of shape (chains, new draws, ...)."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(rows)]
        first, end = self.draws, self.draws + leaves[0].shape[1]
        written: Chunks = {}
        folders: set[Path] = set()
        for number, (array, new) in enumerate(zip(self.arrays, leaves, strict=True)):
            for index in array.indices(first, end):
                begin = index * array.size
                place = slice(max(first - begin, 0), min(end - begin, array.size))
                chunk = np.zeros(array.chunk, array.stored)
                if place.start:
                    chunk[:, : place.start] = self._chunk(number, index)[:, : place.start]
                chunk[:, place] = new[:, begin + place.start - first : begin + place.stop - first]
                folders |= array.write(index, chunk)
                written[number, index] = place.stop, array.checksum(index, chunk, place.stop)
        disk.sync(folders)
        self._commit(end, written)

    def truncate(self, draws: int) -> None:
        """Check all draws, and forget all but the first `draws`.

        Raises:
            CheckpointError: there are fewer, or some are damaged.
        """
        if draws > self.draws:
            raise CheckpointError(
                f"{self.path} has {self.draws} draws, but {draws} had been stored when the run's "
                "checkpoint was written. Restore the folder, or begin a new run in another one."
            )
        last: Chunks = {}
        for number, array in enumerate(self.arrays):
            for index in array.indices(0, self.draws):
                chunk, left = self._chunk(number, index), draws - index * array.size
                if 0 < left < array.size:
                    last[number, index] = left, array.checksum(index, chunk, left)
        lengths = {array.length for array in self.arrays}
        if lengths != {draws} or self.description["attributes"]["commit"] != self.log.number:
            self._commit(draws, last)
        for half_written in self.path.rglob(disk.BESIDE.format("*")):  # when the run was killed
            half_written.unlink()

    def read(self, draws: int | None = None) -> list[np.ndarray]:
        """The arrays, or the first `draws` of them: of shape (chains, draws, ...).

        Raises:
            CheckpointError: a chunk is missing, damaged, or another one.
        """
        return [self._read(k, self.draws if draws is None else draws) for k in range(len(self.arrays))]

    def content(self) -> dict[str, Any]:
        """{"position": ..., "info": ...}, leaves of shape (chains, draws, ...).

        Raises:
            CheckpointError: a chunk is missing, damaged, or another one.
        """
        arrays = self.read()
        try:
            content = structure.decode(self.structure, arrays)
            return {"position": content["position"], "info": content["info"]}
        except Exception as error:
            raise CheckpointError(f"{self.path} is not a store of draws: {error}") from error

    def _read(self, number: int, draws: int) -> np.ndarray:
        array = self.arrays[number]
        found = None
        for index in array.indices(0, draws):
            chunk, begin = self._chunk(number, index), index * array.size
            if found is None:  # after the first chunk is there, so that nonsense takes no memory
                found = np.empty((array.chunk[0], draws, *array.inner), array.stored)
            found[:, begin : begin + array.size] = chunk[:, : draws - begin]
        if found is None:
            found = np.empty((array.chunk[0], draws, *array.inner), array.stored)
        return found.astype(array.dtype, copy=False)

    def _chunk(self, number: int, index: int) -> np.ndarray:
        """A chunk with the draws that are counted, checked."""
        array, counted = self.arrays[number], self.log.chunks.get((number, index))
        if counted is not None and counted[0] < min(array.size, self.draws - index * array.size):
            counted = None
        return array.read(index, counted)

    def _commit(self, draws: int, written: Chunks) -> None:
        """Count so many draws. The arrays are never shorter than the log says."""
        if draws > self.draws:
            self._describe(draws)
        self.log.append(draws, written)
        if draws <= self.draws:
            self._describe(draws)
        self.description["attributes"] |= {"draws": draws, "commit": self.log.number}
        known = self.description["consolidated_metadata"]["metadata"]
        known |= {array.name: array.description for array in self.arrays}
        disk.write(self.path / DESCRIPTION, _rendered(self.description, ""))
        self.draws = draws

    def _describe(self, draws: int) -> None:
        disk.sync(set().union(*(array.put(draws) for array in self.arrays)))


def create(path: str | Path, row: PyTree, dims: Any = None, coords: Any = None) -> DrawStore:
    """Make the folder for draws like `row`, which is (collected, info) of all chains.

    Args:
        path: the folder.
        row: leaves of shape (chains, ...).
        dims: {variable: names of its axes after chain and draw}, optional.
        coords: {axis: labels}, optional.
    """
    path, axes = Path(path), {f"posterior/{name}": of for name, of in (dims or {}).items()}
    beside = path.with_name(disk.BESIDE.format(path.name))
    shutil.rmtree(beside, ignore_errors=True)
    folders = disk.make_folder(beside)
    leaves: list[np.ndarray] = [np.asarray(x) for x in jax.tree.leaves(row)]
    collected, info = jax.tree.unflatten(jax.tree.structure(row), leaves)
    encoded: list[np.ndarray] = []
    encoding = structure.encode({"position": tree.thaw(collected), "info": tree.thaw(info)}, encoded)
    order = [next(k for k, y in enumerate(encoded) if y is x) for x in leaves]
    names = _names(collected, info)
    described = {group: _group({}) for group in sorted({name.partition("/")[0] for name in names})}
    for name, leaf in zip(names, leaves, strict=True):
        described[name] = _array(name, leaf, axes.get(name))
    labels = {f"posterior/{axis}": [str(x) for x in of] for axis, of in (coords or {}).items()}
    described |= {name: _labels(name, of) for name, of in labels.items()}
    whole = _group({
        "format": FORMAT, "identity": secrets.token_hex(8), "draws": 0, "commit": 0, "names": names,
        "dtypes": [leaf.dtype.name for leaf in leaves],
        "structure": json.dumps(_renumbered(encoding, order)), "labels": list(labels),
    })  # fmt: skip
    for name, description in described.items():
        folders |= disk.put(beside / name / DESCRIPTION, _rendered(description, name))
    for name, of in labels.items():
        folders |= disk.put(beside / name / "c" / "0", *_checked(_texts(of)))
    # With it, readers need not look for the arrays, and don't stumble over the log.
    whole["consolidated_metadata"] = {
        "kind": "inline", "must_understand": False, "metadata": described
    }  # fmt: skip
    folders |= disk.put(beside / LOG, first_commit())
    folders |= disk.put(beside / DESCRIPTION, _rendered(whole, ""))
    disk.sync(folders)
    os.replace(beside, path)
    disk.sync({path.parent})
    return DrawStore(path)


def _group(attributes: dict[str, Any]) -> dict[str, Any]:
    """What the zarr.json of a group says."""
    return {"attributes": attributes, "zarr_format": 3, "node_type": "group"}


def _array(name: str, leaf: np.ndarray, axes: Any = None) -> dict[str, Any]:
    """What the zarr.json of an array of no draws like `leaf` says."""
    dtype, (chains, *inner) = _stored(leaf.dtype), leaf.shape
    bytes_a_draw = max(1, leaf.size * dtype.itemsize)
    chunk = [chains, max(1, min(MOST_DRAWS, CHUNK_BYTES // bytes_a_draw)), *(max(1, n) for n in inner)]
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


def _labels(name: str, texts: list[str]) -> dict[str, Any]:
    """What the zarr.json of an axis's labels says."""
    description = _array(name, np.zeros((len(texts), 0), np.int8), ())
    description["chunk_grid"]["configuration"]["chunk_shape"] = [max(1, len(texts))]
    return description | {
        "shape": [len(texts)], "data_type": "string", "fill_value": "",
        "codecs": [{"name": "vlen-utf8"}, {"name": "crc32c"}],
        "dimension_names": [name.rpartition("/")[2]],
    }  # fmt: skip


def _texts(texts: list[str]) -> bytes:
    """Texts as Zarr's codec vlen-utf8 writes them."""
    encoded = [text.encode() for text in texts]
    numbered = [len(text).to_bytes(4, "little") + text for text in encoded]
    return len(texts).to_bytes(4, "little") + b"".join(numbered)


def _checked(content: bytes) -> tuple[bytes, bytes]:
    """The content of a chunk's file, and the checksum after it."""
    return content, value(content).to_bytes(CHECKSUM, "little")


def _whole(file: Path) -> bytes:
    """The content of a chunk's file without its checksum.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise CheckpointError(missing(file, error)) from error
    if _checked(content[:-CHECKSUM])[1] != content[-CHECKSUM:]:
        raise CheckpointError(f"{file} is damaged or cut short. {RESTORE}")
    return content[:-CHECKSUM]


def _stored(dtype: np.dtype) -> np.dtype:
    """The type in which draws are stored: one that Zarr has."""
    if dtype.type.__module__ == "numpy":
        return dtype
    return np.dtype(np.int8 if jax.numpy.issubdtype(dtype, jax.numpy.integer) else np.float32)


def _rendered(description: dict[str, Any], name: str) -> bytes:
    """The text of a zarr.json: with its checksum, which covers its place in the store too."""
    attributes = {k: v for k, v in description["attributes"].items() if k != "checksum"}
    text = json.dumps({**description, "attributes": attributes}, separators=(",", ":"))
    attributes["checksum"] = value(f"{name} {text}".encode())
    return json.dumps({**description, "attributes": attributes}, separators=(",", ":")).encode()


def _described(file: Path, name: str) -> dict[str, Any]:
    """What a zarr.json says, if every byte of it is as it was written.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise CheckpointError(missing(file, error)) from error
    try:
        description = json.loads(content)
        if _rendered(description, name) == content:
            return description
    except Exception:  # a damaged or hostile file can fail in the text or in the structure
        pass
    raise CheckpointError(
        f"{file} is damaged, or another program or version has written it. {RESTORE}"
    )


def _names(collected: PyTree, info: PyTree) -> list[str]:
    """Names of the arrays in the order of the leaves, ArviZ's groups before them."""
    names: list[str] = []
    for group, part in (("posterior", collected), ("sample_stats", info)):
        for path, _ in jax.tree_util.tree_leaves_with_path(part):
            name = re.sub(r"[^\w.-]", "_", tree.path_name(path) or "position")
            full = f"{group}/{'_' if name[0] in '._' else ''}{name}"
            names.append(full if full not in names else f"{full}_{len(names)}")
    return names


def _renumbered(node: Any, order: list[int]) -> Any:
    """The structure with its arrays numbered as the leaves are."""
    if isinstance(node, dict) and set(node) == {"array"}:
        return {"array": order.index(node["array"])}
    if isinstance(node, dict):
        return {key: _renumbered(value, order) for key, value in node.items()}
    if isinstance(node, list):
        return [_renumbered(value, order) for value in node]
    return node


def name_of(process: int, first: int, end: int, num_chains: int) -> str:
    """The folder of one process, whose chains are [first, end)."""
    return f"process-{process}.chains-{first}-{end}-of-{num_chains}"


def read(path: str | Path) -> dict[str, Any]:
    """The draws in a folder, of one process or of several: as many of each chain as all have.

    Raises:
        CheckpointError: not a store of draws, damaged, or without the draws of some chains.
    """
    folder = Path(path)
    parts = [
        (found, one) for one in folder.glob("process-*") if (found := NAME.fullmatch(one.name))
    ]
    if not parts:
        return _read_one(folder)[1]
    # Processes that share the data of a chain have the same draws of it.
    places = {(int(found[2]), int(found[3])): one for found, one in parts}
    chains = max(int(found[4]) for found, _ in parts)
    present = {chain for first, end in places for chain in range(first, end)}
    if missing := set(range(chains)) - present:
        raise CheckpointError(
            f"{folder} has no draws of the chains {sorted(missing)} of {chains}. Copy the folders "
            "process-* of the other processes into it, from the hosts that they ran on."
        )
    stores = [_read_one(places[place]) for place in sorted(places)]
    draws = min(draws for draws, _ in stores)
    return jax.tree.map(lambda *x: _joined(draws, *x), *(content for _, content in stores))


def _read_one(folder: Path) -> tuple[int, dict[str, Any]]:
    """The draws in the folder of one process and their number.

    Where a run goes back to its last checkpoint meanwhile, chunks change: then they are read anew.
    """
    for left in reversed(range(PATIENCE)):
        before = _stamp(folder)
        try:
            store = DrawStore(folder)
            return store.draws, store.content()
        except CheckpointError:
            if not left or _stamp(folder) == before:
                raise
    raise AssertionError


def _stamp(folder: Path) -> tuple[int, int] | None:
    """What changes with the log."""
    try:
        found = (folder / LOG).stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _joined(draws: int, *parts: Any) -> Any:
    if not isinstance(parts[0], np.ndarray):
        return parts[0]
    return np.concatenate([part[:, :draws] for part in parts])


class DrawBuffer:
    """The draws so far.

    Args:
        where: the run lives, which has the buffer.
        row: (collected, info) of one draw of this process's chains, leaves of shape (chains, ...).
        num_draws: how many there will be.
        store: where they go, or None to keep them in memory.

    Attributes:
        buffer: leaves (chains, rows, ...); the compiled loop fills it.
        filled: rows of it that hold draws which are nowhere else.
        made: draws in all.
    """

    def __init__(self, where: Place, row: PyTree, num_draws: int, store: DrawStore | None) -> None:
        self.where, self.row, self.store = where, row, store
        size = max(1, sum(x.nbytes for x in jax.tree.leaves(row)))
        # A power of two, and not a small one where that is cheap, so that runs of different
        # lengths share a compiled program.
        cheap = min(ROWS_AT_LEAST, BYTES_AT_LEAST // size)
        most = max(1, cheap, min(2 * num_draws - 1, BYTES_ON_THE_DEVICE // size))
        self.capacity = 2 ** int(np.log2(most))
        self.buffer = where.buffer(row, self.capacity)
        self.filled = 0
        self.made = 0 if store is None else store.draws
        in_memory = store is None and num_draws > self.capacity
        self.host = None
        if in_memory:
            empty = lambda x: np.empty((x.shape[0], num_draws, *x.shape[1:]), x.dtype)  # noqa: E731
            self.host = jax.tree.map(empty, row)

    @property
    def room(self) -> int:
        """Rows of the buffer that are free."""
        return self.capacity - self.filled

    def add(self, count: int) -> None:
        """Count rows that have been written into the buffer."""
        self.filled += count
        self.made += count

    def flush(self) -> None:
        """Bring the buffer's rows to the host's memory or to the store.

        Where the store can't be written they stay in the buffer.
        """
        if not self.filled or (self.store is None and self.host is None):
            return
        rows = self._left()
        if self.store is not None:
            self.store.append(rows)
        else:
            begin = self.made - self.filled
            jax.tree.map(lambda h, new: _put(h, begin, new), self.host, rows)
        self.buffer, self.filled = self.where.buffer(self.row, self.capacity), 0

    def drawn(self) -> tuple[PyTree, PyTree]:
        """What `collect` made of the positions, and the Info, of all draws.

        Draws that could not be written to the store are among them.
        """
        left = self._left()
        if self.store is not None:
            stored = jax.tree.unflatten(jax.tree.structure(self.row), self.store.read())
            both = lambda old, new: np.concatenate([old, new], axis=1)  # noqa: E731
            left = jax.tree.map(both, stored, left) if self.filled else stored
        elif self.host is not None:
            self.flush()
            left = jax.tree.map(lambda x: x[:, : self.made], self.host)
        position, info = left
        return tree.thaw(position), info

    def _left(self) -> PyTree:
        """The buffer's rows on the host."""
        mine = self.where.mine(self.buffer)
        return jax.tree.map(lambda x: np.asarray(x)[:, : self.filled], mine)


def _put(host: np.ndarray, begin: int, new: np.ndarray) -> None:
    host[:, begin : begin + new.shape[1]] = new
