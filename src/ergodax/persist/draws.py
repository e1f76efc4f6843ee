"""The store of draws: a Zarr group that the draws of a run go to as they come.

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
from jaxtyping import PyTree

from ergodax import tree
from ergodax.errors import CheckpointError
from ergodax.persist import disk, structure, zarr_files
from ergodax.persist.log import NAME as LOG
from ergodax.persist.log import RESTORE, Chunks, Log, first_commit
from ergodax.persist.zarr_files import DESCRIPTION, StoredArray

FORMAT = "ergodax-draws-2"
PATIENCE = 10  # times that a reader begins anew, since a run has changed the store meanwhile
# Of the folder of one of several processes, inside the one of their run.
NAME = re.compile(r"process-(\d+)\.chains-(\d+)-(\d+)-of-(\d+)")


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
        self.description = zarr_files.described(self.path / DESCRIPTION, "")
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
            zarr_files.described(self.path / group / DESCRIPTION, group)
        self.arrays = [
            StoredArray(
                self.path, name, zarr_files.described(self.path / name / DESCRIPTION, name), dtype
            )
            for name, dtype in zip(names, attributes["dtypes"], strict=True)
        ]
        for name in attributes["labels"]:
            zarr_files.described(self.path / name / DESCRIPTION, name)
            zarr_files.content_of(self.path / name / "c" / "0")
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
        """Check all draws, and forget all but the first `draws`. Raises: CheckpointError."""
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

    def read(self) -> list[np.ndarray]:
        """The arrays, of shape (chains, draws, ...). Raises: CheckpointError."""
        return [self._read(number) for number in range(len(self.arrays))]

    def content(self) -> dict[str, Any]:
        """{"position": ..., "info": ...}, leaves (chains, draws, ...). Raises: CheckpointError."""
        arrays = self.read()
        try:
            content = structure.decode(self.structure, arrays)
            return {"position": content["position"], "info": content["info"]}
        except Exception as error:
            raise CheckpointError(f"{self.path} is not a store of draws: {error}") from error

    def _read(self, number: int) -> np.ndarray:
        array = self.arrays[number]
        found = np.empty((array.chunk[0], self.draws, *array.inner), array.stored)
        for index in array.indices(0, self.draws):
            begin = index * array.size
            found[:, begin : begin + array.size] = self._chunk(number, index)[
                :, : self.draws - begin
            ]
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
        disk.write(self.path / DESCRIPTION, zarr_files.rendered(self.description, ""))
        self.draws = draws

    def _describe(self, draws: int) -> None:
        disk.sync(set().union(*(array.describe(draws) for array in self.arrays)))


def create(
    path: str | Path, row: PyTree, dims: Any = None, coords: Any = None, *, finished: bool = False
) -> DrawStore:
    """Make the folder for draws like `row`, which is (collected, info) of all chains.

    `dims` and `coords` are those of `Samples.save`; `finished`: the last states will be beside.
    """
    path, axes = Path(path), {f"posterior/{name}": of for name, of in (dims or {}).items()}
    beside = path.with_name(disk.BESIDE.format(path.name))
    shutil.rmtree(beside, ignore_errors=True)
    folders = disk.make_folder(beside)
    leaves: list[np.ndarray] = [np.asarray(x) for x in jax.tree.leaves(row)]
    collected, info = jax.tree.unflatten(jax.tree.structure(row), leaves)
    content = {"position": tree.thaw(collected), "info": tree.thaw(info)}
    numbers = {id(leaf): {"array": k} for k, leaf in enumerate(leaves)}  # that of each leaf
    encoding = structure.encode(content, [], lambda node: numbers.get(id(node)))
    names = _names(collected, info)
    described = {
        group: zarr_files.group_description({})
        for group in sorted({name.partition("/")[0] for name in names})
    }
    for name, leaf in zip(names, leaves, strict=True):
        described[name] = zarr_files.array_description(name, leaf, axes.get(name))
    labels = {f"posterior/{axis}": [str(x) for x in of] for axis, of in (coords or {}).items()}
    described |= {name: zarr_files.label_description(name, of) for name, of in labels.items()}
    whole = zarr_files.group_description({
        "format": FORMAT, "identity": secrets.token_hex(8), "draws": 0, "commit": 0, "names": names,
        "dtypes": [leaf.dtype.name for leaf in leaves],
        "structure": json.dumps(encoding), "labels": list(labels),
        "finished": finished,
    })  # fmt: skip
    for name, description in described.items():
        folders |= disk.put(beside / name / DESCRIPTION, zarr_files.rendered(description, name))
    for name, of in labels.items():
        folders |= disk.put(
            beside / name / "c" / "0", *zarr_files.with_checksum(zarr_files.texts_as_bytes(of))
        )
    # With it, readers need not look for the arrays, and don't stumble over the log.
    whole["consolidated_metadata"] = {
        "kind": "inline", "must_understand": False, "metadata": described
    }  # fmt: skip
    folders |= disk.put(beside / LOG, first_commit())
    folders |= disk.put(beside / DESCRIPTION, zarr_files.rendered(whole, ""))
    disk.sync(folders)
    os.replace(beside, path)
    disk.sync({path.parent})
    return DrawStore(path)


def _names(collected: PyTree, info: PyTree) -> list[str]:
    """Names of the arrays in the order of the leaves, ArviZ's groups before them."""
    names: list[str] = []
    for group, part in (("posterior", collected), ("sample_stats", info)):
        for path, _ in jax.tree_util.tree_leaves_with_path(part):
            name = re.sub(r"[^\w.-]", "_", tree.path_name(path) or "position")
            full = f"{group}/{'_' if name[0] in '._' else ''}{name}"
            names.append(full if full not in names else f"{full}_{len(names)}")
    return names


def name_of(process: int, first: int, end: int, num_chains: int) -> str:
    """The folder of one process, whose chains are [first, end)."""
    return f"process-{process}.chains-{first}-{end}-of-{num_chains}"


def read(path: str | Path) -> dict[str, Any]:
    """The draws in a folder, of one process or of several: as many of each chain as all have.

    Args:
        path: the folder.

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
