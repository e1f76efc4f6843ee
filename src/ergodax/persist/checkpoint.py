"""Where a run stands, on disk: a file with a tree of arrays, and the folders of a run.

The file is whole or not there. It holds the arrays' bytes after a JSON header, both under one
SHA-256. It is written beside its place, flushed to the disk and renamed, so that a kill at any
instant leaves the old file or the new one; the one before is kept, in case the disk damages the
last. Loading runs no code: it fills the arrays of a tree that the program has made itself.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ergodax.checks import flag
from ergodax.errors import CheckpointError, StorageError
from ergodax.persist import draws

FILE, DRAWS = "checkpoint", "draws.zarr"  # in the folder of checkpoints
MAGIC = b"ergodax-checkpoint-1\n"
DIGEST = 64  # characters
PREVIOUS = ".previous"


def save(path: str | Path, tree: PyTree, facts: dict[str, Any]) -> Path:
    """Write a tree of arrays, keys among them, and JSON values by name; return the path.

    The file that was there becomes the previous. An OSError says that the disk is full, or that the
    folder can't be written.
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
        os.replace(path, _previous(path))
    write_atomically(path, MAGIC + digest + body)
    return path


def load(path: str | Path, like: PyTree) -> tuple[PyTree, dict[str, Any]]:
    """Read what `save` wrote, or the previous file where the last one is damaged.

    It is a tree like `like`, whose arrays may be `jax.ShapeDtypeStruct`.

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
    previous = _previous(path)
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


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Where a run is kept on disk, for `sample(checkpoint=)`.

    `Checkpoint("run")` keeps the state of the run and its draws in the folder `run`. With
    `resume=True` the same call goes on with the run that is there, to the same draws that it would
    have made uninterrupted, or begins one if there is none; num_steps may be more than it was.
    `Checkpoint(store="draws")` keeps the draws alone: they outlive a kill, but the run can't be
    resumed.

    Args:
        folder: for the state of the run, and for its draws where `store` is not given.
        every: seconds between two times of saving draws and state.
        store: a folder for the draws (Zarr), which go there as they come; `Samples.load` reads it
            at any time, after a kill as well.
        resume: go on with the run in `folder`, if there is one.

    Raises:
        TypeError: a folder that is not a path, or `every` not a number.
        ValueError: no folder at all, `resume` without `folder`, or `every` not positive.
    """

    folder: str | Path | None = None
    _: dataclasses.KW_ONLY
    every: float = 10.0
    store: str | Path | None = None
    resume: bool = False

    def __post_init__(self) -> None:
        """Check the arguments."""
        for name, path in (("folder", self.folder), ("store", self.store)):
            if path is not None and not isinstance(path, str | os.PathLike):
                raise TypeError(f"{name} must be a path, not {path!r}. Try folder='run'.")
        if self.folder is None and self.store is None:
            raise ValueError("Checkpoint needs a folder, or store=, the folder of the draws alone.")
        if flag("resume", self.resume) and self.folder is None:
            raise ValueError("resume=True needs folder=, that of the run to go on with.")
        if isinstance(self.every, bool) or not isinstance(self.every, int | float):
            raise TypeError(f"every must be a number of seconds, not {self.every!r}. Try 10.")
        if not self.every > 0:
            raise ValueError(f"every must be positive, not {self.every!r}. Try 10.")


class Checkpointer:
    """The folders of one run.

    Args:
        given: what is to be kept, or None.
        part: the folder, inside of these, of one of several processes; empty for the only one.

    Raises:
        TypeError: not a Checkpoint.
        CheckpointError: there is a run already and resume is False, or it is one of more or fewer
            processes.
    """

    def __init__(self, given: Any, part: str = "") -> None:
        if isinstance(given, str | os.PathLike):
            path = os.fspath(given)
            raise TypeError(
                f"checkpoint must be an ex.Checkpoint, not {given!r}. Try "
                f"checkpoint=ex.Checkpoint({path!r}), or ex.Checkpoint({path!r}, resume=True)."
            )
        if not isinstance(given, Checkpoint | None):
            raise TypeError(f"checkpoint must be an ex.Checkpoint, not {given!r}.")
        folder, store = (given.folder, given.store) if given is not None else (None, None)
        self.resume = given is not None and given.resume
        self.every = given.every if given is not None else math.inf
        for place, own in ((folder, FILE), (store, "zarr.json")):
            if place is not None:
                _check_parts(Path(place), own, part)
        self.file = None if folder is None else Path(folder) / part / FILE
        if store is None and folder is not None:
            store = Path(folder) / DRAWS
        self.draws = None if store is None else Path(store) / part
        self.saved = time.monotonic()
        there = [path for path in (self.file, self.draws) if path is not None and path.exists()]
        if there and not self.resume:
            advice = "pass resume=True to go on with it, or " if self.file is not None else ""
            raise CheckpointError(
                f"{there[0]} is there already; {advice}choose another folder, or remove it."
            )

    @property
    def kinds(self) -> str:
        """What is kept, in a word: the same in all processes."""
        return f"store {self.draws is not None}, checkpoint {self.file is not None}, {self.resume}"

    @property
    def active(self) -> bool:
        """Whether anything is kept."""
        return self.draws is not None

    @property
    def resumes(self) -> bool:
        """Whether there is a run to go on with."""
        if not self.resume or self.file is None:
            return False
        return self.file.exists() or _previous(self.file).exists()

    @property
    def due(self) -> bool:
        """Whether it is time to save."""
        return self.active and time.monotonic() - self.saved > self.every

    def settle(self, common: Callable[[list[int]], int | None]) -> None:
        """Where several processes resume, let the last checkpoint be one that all of them have.

        A process can be killed when others have written theirs and it has not. `common` finds the
        latest step that all have, from those at which this one has saved.
        """
        if not self.resume or self.file is None:
            return
        previous, steps = _previous(self.file), {}
        for path in (previous, self.file):
            with contextlib.suppress(OSError, CheckpointError):
                steps[read(path)[0]["done"]] = path
        latest = common(list(steps))
        if latest is None:
            for path in (previous, self.file):
                path.unlink(missing_ok=True)
        elif steps[latest] == previous:
            previous.replace(self.file)

    def open(self, row: PyTree) -> draws.DrawStore | None:
        """The store of draws like `row`, (collected, info) of all chains; made if not there.

        Raises:
            StorageError: the folder can't be made.
            CheckpointError: draws without a checkpoint, which can't be gone on with.
        """
        if self.draws is None:
            return None
        if self.draws.exists():
            found = draws.DrawStore(self.draws, writable=True)
            if found.draws and not self.resumes:
                raise CheckpointError(
                    f"{self.draws} has {found.draws} draws, but there is no checkpoint to go on "
                    "from. Move them elsewhere and begin again."
                )
            return found
        try:
            return draws.create(self.draws, row)
        except OSError as error:
            raise StorageError(
                f"the draws can't be written to {self.draws}: {error}. Choose a folder that can be "
                "written and has room."
            ) from error

    def write(self, states: PyTree, done: int, made: int, identity: dict[str, str]) -> None:
        """Write the checkpoint, where there is to be one."""
        self.saved = time.monotonic()
        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            facts = {"done": done, "made": made, "fingerprint": identity, "jax": jax.__version__}
            save(self.file, states, facts)

    def load(self, like: PyTree) -> tuple[PyTree, dict[str, Any]]:
        """The states of the checkpoint and its facts."""
        assert self.file is not None
        return load(self.file, like)

    def facts(self) -> dict[str, Any]:
        """The facts of the checkpoint alone."""
        assert self.file is not None
        return read(self.file)[0]

    def where(self) -> str:
        """Where the draws are, for a message."""
        return f"in {self.draws}" if self.draws is not None else "in this error's .samples"

    def how_to_go_on(self) -> str:
        """What to do after an interruption, for a message."""
        if self.file is None:
            return ""
        return " The same call with ex.Checkpoint(..., resume=True) goes on from here."


def _previous(path: Path) -> Path:
    return path.with_name(path.name + PREVIOUS)


def _check_parts(folder: Path, own: str, part: str) -> None:
    """Refuse the folder of a run of more, fewer or otherwise divided processes.

    `own` is what a single process has in it, `part` the name of this process's folder in it.
    """
    parts = sorted(path.name for path in folder.glob("process-*"))
    mine = [name for name in parts if name.partition(".")[0] == part.partition(".")[0]]
    if (part and (folder / own).exists()) or (parts and not part) or mine not in ([], [part]):
        raise CheckpointError(
            f"{folder} has the run of {len(parts) or 'one'} processes"
            f"{', among them ' + (mine or parts)[0] if parts else ''}, which can't be gone on with "
            f"by {part or 'a single one'}. Start as many processes with as many chains, or choose "
            "another folder."
        )
