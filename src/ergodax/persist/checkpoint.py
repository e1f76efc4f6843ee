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
import socket
import time
import warnings
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ergodax.checks import flag
from ergodax.errors import CheckpointError, StorageError
from ergodax.persist import disk, draws
from ergodax.tree import is_key

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
    leaves, pieces, keys = [], [], {}
    for where, leaf in jax.tree_util.tree_leaves_with_path(tree):
        name = jax.tree_util.keystr(where)
        if is_key(leaf):
            keys[name] = _implementation(leaf)
            leaf = jax.random.key_data(leaf)
        array = np.asarray(leaf)
        leaves.append([name, array.dtype.name, array.shape])
        pieces.append(array.tobytes())
    header = json.dumps({"facts": facts, "leaves": leaves, "keys": keys}).encode()
    body = b"".join([len(header).to_bytes(8, "big"), header, *pieces])
    digest = hashlib.sha256(body).hexdigest().encode()
    if path.exists():
        os.replace(path, _previous(path))
    disk.write(path, MAGIC + digest + body)
    return path


def load(path: str | Path, like: PyTree) -> tuple[PyTree, dict[str, Any]]:
    """Read what `save` wrote, or the previous file where the last one is damaged.

    It is a tree like `like`, whose arrays may be `jax.ShapeDtypeStruct`. Raises: FileNotFoundError;
    CheckpointError where both are damaged, or of another structure.
    """
    facts, arrays, keys = _last_whole(Path(path))
    expected = jax.tree_util.tree_leaves_with_path(like)
    missing = [n for n in (jax.tree_util.keystr(w) for w, _ in expected) if n not in arrays]
    if missing or len(expected) != len(arrays):
        extra = sorted(set(arrays) - {jax.tree_util.keystr(where) for where, _ in expected})
        raise CheckpointError(
            f"{path} is of another run: this one has {missing or 'nothing'} beyond what is in the "
            f"file, and the file has {extra or 'nothing'} beyond this run."
        )

    def fill(where: tuple[Any, ...], leaf: Any) -> Any:
        name = jax.tree_util.keystr(where)
        array = arrays[name]
        kind = _implementation(leaf) if is_key(leaf) else None
        if keys.get(name) != kind:
            raise CheckpointError(
                f"{path} has {name} as a key of {keys.get(name)}, but this run needs one of "
                f"{kind}. Make the run's key as it was made, by jax.random.key(seed, impl=...)."
            )
        shape = leaf if kind is None else jax.eval_shape(jax.random.key_data, leaf)
        if array.shape != shape.shape or array.dtype != shape.dtype:
            raise CheckpointError(
                f"{path} has {name} as {array.dtype}{list(array.shape)}, but this run needs "
                f"{shape.dtype}{list(shape.shape)}: another model, precision or number of chains."
            )
        found = jnp.array(array)
        return found if kind is None else jax.random.wrap_key_data(found, impl=kind)

    return jax.tree_util.tree_map_with_path(fill, like), facts


def read(path: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The facts and the arrays by name.

    Args:
        path: of the file; the previous one is read where it is damaged.
    """
    facts, arrays, _ = _last_whole(Path(path))
    return facts, arrays


class Content(NamedTuple):
    """What a file has."""

    facts: dict[str, Any]
    arrays: dict[str, np.ndarray]
    keys: dict[str, str]  # the arrays that are data of keys, and their implementation


def _last_whole(path: Path) -> Content:
    """The content of the file, or of the previous one."""
    previous = _previous(path)
    try:
        return _read(path)
    except (CheckpointError, FileNotFoundError) as error:
        if not previous.exists():
            raise
        if isinstance(error, CheckpointError):
            warnings.warn(f"{error} Going on from the one before it.", stacklevel=2)
        return _read(previous)


def _read(path: Path) -> Content:
    if path.is_dir():
        raise CheckpointError(
            f"{path} is a folder, but a checkpoint is a file. Move the folder elsewhere, or choose "
            "another place for the run."
        )
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


def _parse(body: memoryview) -> Content:
    length = int.from_bytes(body[:8], "big")
    header = json.loads(bytes(body[8 : 8 + length]))
    arrays, place = {}, 8 + length
    for name, dtype, shape in header["leaves"]:
        kind = jnp.dtype(dtype)
        size = math.prod(shape) * kind.itemsize
        arrays[name] = np.frombuffer(body[place : place + size], kind).reshape(shape)
        place += size
    return Content(dict(header["facts"]), arrays, dict(header["keys"]))


def _implementation(key: Any) -> str:
    """The name of a key's implementation; the key may be a `jax.ShapeDtypeStruct`."""
    found: list[str] = []
    jax.eval_shape(lambda key: found.append(str(jax.random.key_impl(key))), key)
    return found[0]


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Where a run is kept on disk, for `sample(checkpoint=)` and `infer(checkpoint=)`.

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


def check_checkpoint(given: Any) -> Checkpoint | None:
    """Accept a Checkpoint or None. Raises: TypeError: something else."""
    if isinstance(given, str | os.PathLike):
        path = os.fspath(given)
        raise TypeError(
            f"checkpoint must be an ex.Checkpoint, not {given!r}. Try "
            f"checkpoint=ex.Checkpoint({path!r}), or ex.Checkpoint({path!r}, resume=True)."
        )
    if not isinstance(given, Checkpoint | None):
        raise TypeError(f"checkpoint must be an ex.Checkpoint, not {given!r}.")
    return given


class Lock:
    """The right to write to a folder, which one run has at a time.

    The system keeps it, for the process: it ends with the process, however that ends. What is
    written about the process that has it is for a message alone.

    Args:
        place: the folder, or the file in it. The lock is a file beside it.

    Raises:
        CheckpointError: another process or thread has it.
        OSError: it can't be made.
    """

    def __init__(self, place: Path) -> None:
        import filelock

        path = self.file_of(place)
        self.about = place.with_name(f".{place.name}.process")
        disk.sync(disk.make_folder(path.parent))
        self.lock = filelock.FileLock(path, thread_local=False)
        try:
            self.lock.acquire(blocking=False)
        except filelock.Timeout:
            other = "another process"
            with contextlib.suppress(OSError):
                other = self.about.read_text() or other
            raise CheckpointError(
                f"{place.parent} is in use: {other} is writing to {place.name} in it. Wait for its "
                "end, stop it, or choose another folder."
            ) from None
        self.about.write_text(f"process {os.getpid()} on {socket.gethostname()}")

    @staticmethod
    def file_of(place: Path) -> Path:
        """The file that is locked."""
        return place.with_name(f".{place.name}.lock")

    def release(self) -> None:
        """Give it back."""
        if self.lock.is_locked:
            self.about.unlink(missing_ok=True)
            self.lock.release()


class Checkpointer:
    """The folders of one run, which nobody else writes to until `close`.

    Args:
        given: what is to be kept, or None.
        part: the folder, inside of these, of one of several processes; empty for the only one.

    Raises:
        TypeError: not a Checkpoint.
        CheckpointError: there is a run already and resume is False, it is one of more or fewer
            processes, or another process or thread is writing to the folders.
        StorageError: the folders can't be written.
    """

    def __init__(self, given: Any, part: str = "") -> None:
        given = check_checkpoint(given)
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
        self.saved, self.store, self.locks = time.monotonic(), "", []
        # Beside the folder of one of several processes, which is made when there is a run in it.
        own = self.file if self.file is None or not part else self.file.parent
        self._lock([place for place in (own, self.draws) if place is not None])
        there = [path for path in (self.file, self.draws) if path is not None and path.exists()]
        if there and not self.resume:
            self.close()
            refuse_second(there[0], resumable=self.file is not None)

    def _lock(self, places: list[Path]) -> None:
        try:
            for place in places:
                with writable(place):
                    self.locks.append(Lock(place))
        except (CheckpointError, StorageError):
            self.close()
            raise

    def close(self) -> None:
        """Let others write to the folders."""
        for lock in self.locks:
            lock.release()

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
                steps[_facts(path)["done"]] = path
        latest = common(list(steps))
        if latest is None:
            for path in (previous, self.file):
                path.unlink(missing_ok=True)
        elif steps[latest] == previous:
            previous.replace(self.file)

    def open(self, row: PyTree) -> draws.DrawStore | None:
        """The store of draws like `row`, (collected, info) of all chains; made if not there.

        Raises: StorageError for a folder that can't be made; CheckpointError for draws without a
        checkpoint, or the other way round.
        """
        if self.draws is None:
            return None
        if self.resumes and not self.draws.exists():
            raise CheckpointError(
                f"{self.draws} is missing, which has the draws of the run in {self.file}. Restore "
                "the folder, or begin a new run in another one."
            )
        with writable(self.draws):
            found = draws.DrawStore(self.draws) if self.draws.exists() else None
            found = draws.create(self.draws, row) if found is None else found
        if found.draws and not self.resumes:
            raise CheckpointError(
                f"{self.draws} has {found.draws} draws, but there is no checkpoint to go on "
                "from. Move them elsewhere and begin again."
            )
        self.store = found.identity
        if not found.fits(row) or (self.resumes and self.facts()["store"] != self.store):
            raise CheckpointError(
                f"{self.draws} has the draws of another run. Restore the folder, or begin a new "
                "run in another one."
            )
        return found

    def write(self, states: PyTree, facts: dict[str, Any]) -> None:
        """Write the checkpoint, where there is to be one, with the facts that `_facts` reads."""
        self.saved = time.monotonic()
        if self.file is not None:
            disk.sync(disk.make_folder(self.file.parent))
            save(self.file, states, facts | {"store": self.store})

    def load(self, like: PyTree) -> tuple[PyTree, dict[str, Any]]:
        """The states of the checkpoint and its facts."""
        assert self.file is not None
        return load(self.file, like)

    def facts(self) -> dict[str, Any]:
        """The facts of the checkpoint alone. Raises: CheckpointError."""
        assert self.file is not None
        return _facts(self.file)

    def where(self) -> str:
        """Where the draws are, for a message."""
        return f"in {self.draws}" if self.draws is not None else "in this error's .samples"

    def how_to_go_on(self) -> str:
        """What to do after an interruption, for a message."""
        if self.file is None:
            return ""
        return " The same call with ex.Checkpoint(..., resume=True) goes on from here."


def _facts(path: Path) -> dict[str, Any]:
    """The facts of a run's checkpoint, of the right types. Raises: CheckpointError."""
    facts = read(path)[0]
    wanted = {"done": int, "made": int, "fingerprint": dict, "store": str, "surroundings": dict}
    wrong = [name for name, kind in wanted.items() if type(facts.get(name)) is not kind]
    if wrong:
        raise CheckpointError(
            f"{path} is not the checkpoint of a run of this version: it does not say {wrong}. "
            "Choose another folder for a new run."
        )
    return facts


def refuse_second(there: Path, *, resumable: bool = True) -> NoReturn:
    """Refuse a new run in the folder of another. Raises: CheckpointError: always."""
    advice = "pass resume=True to go on with it, or " if resumable else ""
    raise CheckpointError(f"{there} is there already; {advice}choose another folder, or remove it.")


@contextlib.contextmanager
def writable(path: Path) -> Generator[None]:
    """While active, an OSError is one of a folder that can't be written. Raises: StorageError."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"the draws can't be written to {path}: {error}. Choose a folder that can be written "
            "and has room."
        ) from error


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
