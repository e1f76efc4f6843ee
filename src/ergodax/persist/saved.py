"""The draws of a finished run in a folder: a store of draws, and the last states beside it."""

import contextlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from ergodax import tree
from ergodax.errors import CheckpointError
from ergodax.persist import checkpoint, disk, draws, structure, zarr_files
from ergodax.persist.log import RESTORE, missing

FINAL = "final_state"  # a file in the folder, as checkpoints are
SUFFIX, PREVIOUS = ".zarr", ".previous"


def save(
    path: Path, rows: tuple[PyTree, PyTree], final: PyTree, dims: Any = None, coords: Any = None
) -> Path:
    """Write the draws, (position, info), and the last states, all or nothing; return the folder.

    The suffix .zarr is added. Raises: ValueError for .npz, or an array that does not begin with
    chains and draws; FileExistsError where there is something else than draws.
    """
    if path.suffix == ".npz":
        raise ValueError(f"draws are saved in a folder, as Zarr has it, not in {path}. Try .zarr.")
    if path.suffix != SUFFIX:
        path = path.with_name(path.name + SUFFIX)
    if path.exists() and not (path / draws.LOG).exists():
        raise FileExistsError(f"{path} is there and has no draws. Choose another path.")
    hidden = tree.hide(rows)
    _check_shapes(hidden)
    disk.sync(disk.make_folder(path.parent))
    with contextlib.ExitStack() as stack:
        if checkpoint.Lock.file_of(path).exists():
            stack.callback(checkpoint.Lock(path).release)
        beside = stack.enter_context(
            tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent)
        )
        row = jax.tree.map(_no_draws, hidden)
        store = draws.create(Path(beside) / path.name, row, dims, coords, finished=True)
        store.append(hidden)
        arrays: list[np.ndarray] = []
        encoded = json.dumps(structure.encode(final, arrays))
        facts = {"structure": encoded, "store": store.identity}
        checkpoint.save(store.path / FINAL, arrays, facts)
        _put_in_place(store.path, path)
    return path


def load(path: Path) -> dict[str, Any]:
    """Read draws, of `save` or of a run that stores them: position, info and final_state.

    Raises: FileNotFoundError; CheckpointError for what is damaged, or no folder of draws.
    """
    previous = _previous(path)
    if not path.exists() and previous.exists():  # a kill between two renames
        path = previous
    if not path.exists():
        raise FileNotFoundError(f"there is no folder {path}.")
    if not path.is_dir():
        raise CheckpointError(
            f"{path} is a file, but draws are in a folder, as Samples.save makes it."
        )
    if not (path / zarr_files.DESCRIPTION).exists() and (path / checkpoint.DRAWS).is_dir():
        raise CheckpointError(
            f"{path} is not a store of draws, but the folder of a run, whose draws are in "
            f"{path / checkpoint.DRAWS}. Load that."
        )
    content = draws.read(path)
    description = path / zarr_files.DESCRIPTION  # of one process; several have folders of theirs
    about = zarr_files.described(description, "")["attributes"] if description.exists() else {}
    final = _final(path / FINAL, about["identity"]) if about.get("finished") else None
    return content | {"final_state": final}


def _final(file: Path, store: str) -> Any:
    """The last states in a file, which must be those of the draws with that identity."""
    try:
        facts, found = checkpoint.read(file)
    except FileNotFoundError as error:
        raise CheckpointError(missing(file, error)) from error
    if facts.get("store") != store:
        raise CheckpointError(f"{file} has the last states of another run. {RESTORE}")
    try:
        arrays = [found[f"[{k}]"] for k in range(len(found))]
        return structure.decode(json.loads(facts["structure"]), arrays)
    # A hostile file can fail in the text or in the structure.
    except Exception as error:
        raise CheckpointError(f"{file} was not written by Samples.save: {error}") from error


def _check_shapes(rows: PyTree) -> None:
    """Refuse arrays that do not begin with the same numbers of chains and of draws."""
    leaves = jax.tree_util.tree_leaves_with_path(rows)
    if not leaves:
        raise ValueError("these Samples have no arrays, so there is nothing to save.")
    first = np.shape(leaves[0][1])[:2]
    for path, leaf in leaves:
        if np.ndim(leaf) < 2 or np.shape(leaf)[:2] != first:
            raise ValueError(
                f"Samples{jax.tree_util.keystr(path)} has the shape {np.shape(leaf)}; all arrays "
                f"must begin with chains and draws, {first} in the first one."
            )


def _no_draws(leaf: Any) -> np.ndarray:
    """Zeros in the shape of one draw of all chains."""
    return np.zeros((leaf.shape[0], *leaf.shape[2:]), leaf.dtype)


def _put_in_place(new: Path, path: Path) -> None:
    """Rename a folder; the one that was there serves until then, and `load` finds it."""
    previous = _previous(path)
    if path.exists():
        shutil.rmtree(previous, ignore_errors=True)
        os.replace(path, previous)
    os.replace(new, path)
    disk.sync({path.parent})
    shutil.rmtree(previous, ignore_errors=True)


def _previous(path: Path) -> Path:
    whole = path.absolute()  # "." and "/" have no name, and the former has one so
    return whole.parent / (whole.name + PREVIOUS)
