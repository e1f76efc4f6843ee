"""The draws of a run: a buffer on the device, and a Zarr group that they go to as they come.

ArviZ and xarray read the group, and it survives a kill. Each variable is an array (chain, draw,
...) in uncompressed chunks with a checksum. The number of draws that all arrays have in full is an
attribute of the group, raised after the arrays are written, so whatever instant a run is killed at,
the draws that it counts are there and whole.
"""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from ergodax import tree
from ergodax.data.prefetch import Place
from ergodax.errors import CheckpointError
from ergodax.persist import npz

FORMAT = "ergodax-draws-1"
CHUNK_BYTES = 2**22
MOST_DRAWS = 4096  # of a chunk
# Of the folder of one of several processes, inside the one of their run.
NAME = re.compile(r"process-(\d+)\.chains-(\d+)-(\d+)-of-(\d+)")
ROWS_AT_LEAST, BYTES_AT_LEAST = 4096, 2**22  # of the buffer, all chains together
BYTES_ON_THE_DEVICE = 2**28  # of draws, all chains together, before they go to the host


class DrawStore:
    """A folder of draws.

    Args:
        path: the folder, which exists.
        writable: whether draws may be added.

    Raises:
        CheckpointError: not a store of draws.
    """

    def __init__(self, path: str | Path, *, writable: bool = False) -> None:
        import zarr

        self.path = Path(path)
        if not (self.path / "zarr.json").exists():
            raise CheckpointError(f"{path} is not a store of draws: it has no zarr.json.")
        try:
            self.group = zarr.open_group(self.path, mode="r+" if writable else "r")
            attributes: dict[str, Any] = dict(self.group.attrs)
            if attributes.get("format") != FORMAT:
                raise CheckpointError(f"its format is {attributes.get('format')!r}, not {FORMAT!r}")
            self.names: list[str] = json.loads(str(attributes["names"]))
            self.structure = json.loads(str(attributes["structure"]))
            self.arrays: list[Any] = [self.group[name] for name in self.names]
            self.draws = int(attributes["draws"])
        # A damaged or hostile folder can fail in the text, the structure or an array.
        except Exception as error:
            raise CheckpointError(f"{path} is not a store of draws: {error}") from error

    def append(self, rows: PyTree) -> None:
        """Add draws: (collected, info), leaves of shape (chains, new draws, ...)."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(rows)]
        first, end = self.draws, self.draws + leaves[0].shape[1]
        for name, array, new in zip(self.names, self.arrays, leaves, strict=True):
            array.resize((array.shape[0], end, *array.shape[2:]))
            array[:, first:end] = new
            self._flush_to_disk(name, array, first, end)
        self._count(end)

    def truncate(self, draws: int) -> None:
        """Forget all but the first `draws`.

        Raises:
            CheckpointError: there are fewer.
        """
        if draws > self.draws:
            raise CheckpointError(
                f"{self.path} has {self.draws} draws, but {draws} had been stored when the run's "
                "checkpoint was written. Restore the folder, or begin a new run in another one."
            )
        self._count(draws)
        for array in self.arrays:
            array.resize((array.shape[0], draws, *array.shape[2:]))
        for half_written in self.path.rglob("*.partial"):  # when the run was killed
            half_written.unlink()

    def read(self) -> dict[str, Any]:
        """The content: {"position": ..., "info": ...}, leaves of shape (chains, draws, ...).

        Raises:
            CheckpointError: a chunk is damaged.
        """
        found = {}
        for k, (name, array) in enumerate(zip(self.names, self.arrays, strict=True)):
            try:
                found[f"array_{k}"] = np.asarray(array[:, : self.draws])
            except Exception as error:
                raise CheckpointError(
                    f"{self.path / name} is damaged: {error}. Restore it from a copy, or run again "
                    "in another folder."
                ) from error
        try:
            return npz.decode(self.structure, found)
        except Exception as error:  # whatever was made of the text
            raise CheckpointError(f"the structure in {self.path} is damaged: {error}") from error

    def _count(self, draws: int) -> None:
        self.group.attrs["draws"] = draws
        self.draws = draws

    def _flush_to_disk(self, name: str, array: Any, first: int, end: int) -> None:
        """Wait until the chunks of these draws are on the disk."""
        size, rest = array.chunks[1], (0,) * (array.ndim - 2)
        for k in range(first // size, -(-end // size)):
            file = self.path / name / array.metadata.encode_chunk_key((0, k, *rest))
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def create(path: str | Path, row: PyTree) -> DrawStore:
    """Make the folder for draws like `row`, which is (collected, info) of all chains."""
    import zarr
    from zarr.codecs import Crc32cCodec

    path = Path(path)
    beside = path.with_name(f".{path.name}.new")
    shutil.rmtree(beside, ignore_errors=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    group = zarr.create_group(beside)
    leaves: list[np.ndarray] = [np.asarray(x) for x in jax.tree.leaves(row)]
    collected, info = jax.tree.unflatten(jax.tree.structure(row), leaves)
    content = {"position": tree.thaw(collected), "info": info}
    encoded: list[np.ndarray] = []
    structure = npz.encode(content, encoded)
    names = _names(collected, info)
    order = [next(k for k, y in enumerate(encoded) if y is x) for x in leaves]
    for name, leaf in zip(names, leaves, strict=True):
        bytes_a_draw = max(1, leaf.nbytes)
        group.create_array(
            name,
            shape=(leaf.shape[0], 0, *leaf.shape[1:]),
            chunks=(leaf.shape[0], max(1, min(MOST_DRAWS, CHUNK_BYTES // bytes_a_draw)))
            + tuple(max(1, n) for n in leaf.shape[1:]),
            dtype=leaf.dtype,
            compressors=Crc32cCodec(),
            dimension_names=("chain", "draw", *_axes(name, leaf.ndim - 1)),
        )
    group.attrs.update({
        "format": FORMAT, "draws": 0, "names": json.dumps(names),
        "structure": json.dumps(_renumbered(structure, order)),
    })  # fmt: skip
    os.replace(beside, path)
    return DrawStore(path, writable=True)


def _names(collected: PyTree, info: PyTree) -> list[str]:
    """Names of the arrays in the order of the leaves, ArviZ's groups before them."""
    names: list[str] = []
    for group, part in (("posterior", collected), ("sample_stats", info)):
        for path, _ in jax.tree_util.tree_leaves_with_path(part):
            name = (tree.path_name(path) or "position").replace("/", "_")
            full = f"{group}/{name}"
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


def _axes(name: str, count: int) -> list[str]:
    return [f"{name.rpartition('/')[2]}_dim_{k}" for k in range(count)]


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
        return DrawStore(folder).read()
    # Processes that share the data of a chain have the same draws of it.
    places = {(int(found[2]), int(found[3])): one for found, one in parts}
    chains = max(int(found[4]) for found, _ in parts)
    present = {chain for first, end in places for chain in range(first, end)}
    if missing := set(range(chains)) - present:
        raise CheckpointError(
            f"{folder} has no draws of the chains {sorted(missing)} of {chains}. Copy the folders "
            "process-* of the other processes into it, from the hosts that they ran on."
        )
    stores = [DrawStore(places[place]) for place in sorted(places)]
    draws = min(store.draws for store in stores)
    return jax.tree.map(lambda *x: _joined(draws, *x), *(store.read() for store in stores))


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
            content = self.store.read()
            stored = (content["position"], content["info"])
            if not self.filled:
                return stored
            position, info = left
            return jax.tree.map(_appended, stored, (tree.thaw(position), info))
        if self.host is not None:
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


def _appended(stored: Any, new: Any) -> Any:
    return np.concatenate([stored, new], axis=1) if isinstance(stored, np.ndarray) else stored
