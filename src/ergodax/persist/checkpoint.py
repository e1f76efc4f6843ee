"""A tree of arrays in one file that is either whole or not there.

The file holds the arrays' bytes after a JSON header, both under one SHA-256. It is written beside
its place, flushed to the disk and renamed, so that a kill at any instant leaves the old file or the
new one; the one before is kept, in case the disk damages the last. Loading runs no code: it fills
the arrays of a tree that the program has made itself.
"""

import hashlib
import json
import math
import os
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ergodax.errors import CheckpointError

MAGIC = b"ergodax-checkpoint-1\n"
DIGEST = 64  # characters
PREVIOUS = ".previous"


def save(path: str | Path, tree: PyTree, facts: dict[str, Any]) -> Path:
    """Write a tree and what there is to say of it; the file that was there becomes the previous.

    Args:
        path: the file.
        tree: of arrays, keys among them.
        facts: JSON values by name.

    Returns:
        The path.

    Raises:
        OSError: the disk is full, or the folder can't be written.
    """
    path = Path(path)
    leaves, pieces = [], []
    for where, leaf in jax.tree_util.tree_leaves_with_path(tree):
        array = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
        name = jax.tree_util.keystr(where)
        leaves.append([name, array.dtype.name, array.shape])
        pieces.append(array.tobytes())
    header = json.dumps({"facts": facts, "leaves": leaves}).encode()
    body = b"".join([len(header).to_bytes(8, "big"), header, *pieces])
    digest = hashlib.sha256(body).hexdigest().encode()
    if path.exists():
        os.replace(path, path.with_name(path.name + PREVIOUS))
    write_atomically(path, MAGIC + digest + body)
    return path


def load(path: str | Path, like: PyTree) -> tuple[PyTree, dict[str, Any]]:
    """Read what `save` wrote, or the previous file where the last one is damaged.

    Args:
        path: the file.
        like: a tree of the same structure; its arrays may be `jax.ShapeDtypeStruct`.

    Returns:
        The tree and the facts.

    Raises:
        FileNotFoundError: no such file.
        CheckpointError: damaged, and the one before too; or of another structure.
    """
    facts, arrays = read(path)
    expected = jax.tree_util.tree_leaves_with_path(like)
    missing = [n for n in (jax.tree_util.keystr(w) for w, _ in expected) if n not in arrays]
    if missing or len(expected) != len(arrays):
        extra = sorted(set(arrays) - {jax.tree_util.keystr(where) for where, _ in expected})
        raise CheckpointError(
            f"{path} is of another run: this one has {missing or 'nothing'} beyond what is in the "
            f"file, and the file has {extra or 'nothing'} beyond this run."
        )

    def fill(where: tuple, leaf: Any) -> Any:
        name = jax.tree_util.keystr(where)
        array = arrays[name]
        shape = jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf
        if array.shape != shape.shape or array.dtype != shape.dtype:
            raise CheckpointError(
                f"{path} has {name} as {array.dtype}{list(array.shape)}, but this run needs "
                f"{shape.dtype}{list(shape.shape)}: another model, precision or number of chains."
            )
        return jax.random.wrap_key_data(jnp.asarray(array)) if _is_key(leaf) else jnp.array(array)

    return jax.tree_util.tree_map_with_path(fill, like), facts


def read(path: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The facts and the arrays by name, of the file or of the previous one.

    Raises:
        FileNotFoundError: no such file.
        CheckpointError: both are damaged.
    """
    path = Path(path)
    previous = path.with_name(path.name + PREVIOUS)
    try:
        return _read(path)
    except (CheckpointError, FileNotFoundError) as error:
        if not previous.exists():
            raise
        if isinstance(error, CheckpointError):
            warnings.warn(f"{error} Going on from the one before it.", stacklevel=2)
        return _read(previous)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    content = path.read_bytes()
    start = len(MAGIC) + DIGEST
    body = memoryview(content)[start:]
    if not content.startswith(MAGIC):
        raise CheckpointError(f"{path} is not a checkpoint of this library.")
    if hashlib.sha256(body).hexdigest().encode() != content[len(MAGIC) : start]:
        raise CheckpointError(f"{path} is damaged: its checksum does not fit its content.")
    try:
        return _parse(body)
    # A hostile file can fail in the text, the types or the sizes.
    except Exception as error:
        raise CheckpointError(f"{path} is not a checkpoint of this library: {error}") from error


def _parse(body: memoryview) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    length = int.from_bytes(body[:8], "big")
    header = json.loads(bytes(body[8 : 8 + length]))
    arrays, place = {}, 8 + length
    for name, dtype, shape in header["leaves"]:
        kind = jnp.dtype(dtype)
        size = math.prod(shape) * kind.itemsize
        arrays[name] = np.frombuffer(body[place : place + size], kind).reshape(shape)
        place += size
    return dict(header["facts"]), arrays


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all, even if the power fails."""
    beside = path.with_name(f".{path.name}.new")
    try:
        with open(beside, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
