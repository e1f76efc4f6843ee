"""What `infer` keeps on disk: what its tuning decided, and each round of sampling as a run.

Tuning measures seconds, so a second one may decide otherwise. What was decided is therefore written
down, in a form that any kernel of this library has: classes by name, arrays as they are. The user's
own functions, classes and data are told by where they stand in the target or in `init`, which the
program that resumes has made again.
"""

import copy
import dataclasses
import json
import shutil
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.errors import CheckpointError
from ergodax.persist import checkpoint, fingerprint, structure
from ergodax.persist.checkpoint import Checkpoint
from ergodax.target.base import AbstractTarget
from ergodax.tune.decisions import Decision, DecisionLog, Tuned

FILE = "decisions"  # in the folder, beside those of the rounds
MORE = "-more"  # after the name of a round whose time was too short
PLAIN = bool | int | float | str | None


class Kept:
    """The folder of one inference, which nobody else writes to until `close`.

    Without a checkpoint nothing is kept, and what it is asked for is what it was told.

    Args:
        given: an `ex.Checkpoint`, or None.
        target: of the inference.
        init: where it begins.
        key: of all that is random in it.
        max_seconds: for the whole; may be more than it was.
        arguments: what else must not change.

    Attributes:
        log: of an earlier call, as it was when it was tuned.
        anew: whether that was in a second attempt.
        spent: seconds that earlier calls have taken.

    Raises:
        TypeError: not a Checkpoint.
        ValueError: a Checkpoint with `store`.
        CheckpointError: an inference is there and `resume` is False, or it is another one; or
            another process is writing to the folder.
        StorageError: the folder can't be written.
    """

    def __init__(
        self,
        given: Checkpoint | None,
        target: AbstractTarget,
        init: PyTree,
        key: PRNGKeyArray,
        max_seconds: float | int,
        **arguments: float | int,
    ) -> None:
        self.given = checkpoint.check_checkpoint(given)
        self.max_seconds, self.began = max_seconds, time.perf_counter()
        self.log, self.anew, self.spent = DecisionLog(), False, 0.0
        self.decided: tuple[Any, list[np.ndarray]] | None = None
        self.counts: dict[str, list[int]] = {}  # of each part: draws that were wanted, and made
        self.ended = -1.0  # the most seconds with which no round followed
        self.file: Path | None = None
        if given is None:
            return
        if given.folder is None or given.store is not None:
            raise ValueError(
                "ex.infer keeps its draws in the folder of the checkpoint, round by round. Try "
                "ex.Checkpoint('run'), without store=."
            )
        self.file, self.places = Path(given.folder) / FILE, Places(target, init)
        with checkpoint.writable(self.file.parent):
            self.lock = checkpoint.Lock(self.file)
        try:
            self.identity = _identity(target, init, key, arguments)
            self._open(given.resume)
        except BaseException:
            self.close()
            raise

    def _open(self, resume: bool) -> None:
        """Read what is there, if anything."""
        assert self.file is not None
        other = self.file.with_name(checkpoint.FILE)
        if other.exists():
            raise CheckpointError(f"{other} is of a run of ex.sample. Choose another folder.")
        try:
            facts, arrays = checkpoint.read(self.file)
        except FileNotFoundError:
            return
        if not resume:
            checkpoint.refuse_second(self.file)
        try:
            then = {str(name): str(value) for name, value in facts["identity"].items()}
            pairs = {str(name): (int(w), int(m)) for name, (w, m) in facts["counts"].items()}
            self.ended, self.spent = float(facts["ended"]), float(facts["spent"])
            log, decided = dict(facts["log"]), json.loads(facts["tuned"])
            decisions = [Decision(**decision) for decision in log.pop("decisions")]
            self.log, self.anew = DecisionLog(decisions, **log), bool(facts["anew"])
        # A hostile file can fail in the text, the types or the names.
        except Exception as error:
            raise CheckpointError(f"{self.file} was not written by ex.infer: {error}") from error
        fingerprint.compare(self.identity, then, self.file.parent)
        self.counts = {name: list(pair) for name, pair in pairs.items()}
        self.decided = decided, [arrays[f"[{k}]"] for k in range(len(arrays))]

    def close(self) -> None:
        """Let others write to the folder."""
        if self.file is not None:
            self.lock.release()

    def keep(
        self, tuned: Tuned, modes: list[PyTree], log: DecisionLog, *, anew: bool = False
    ) -> Tuned:
        """Write what was decided; return it as it was written, which is what a resumed run has."""
        self.forget()
        if self.file is None:
            return tuned
        self.log, self.anew = copy.deepcopy(log), anew
        arrays: list[np.ndarray] = []
        self.decided = self.places.encoded([tuned, modes], arrays), arrays
        self._write()
        found = self.tuned()
        assert found is not None
        return found[0]

    def tuned(self) -> tuple[Tuned, list[PyTree]] | None:
        """What was decided, with the user's own parts, and the modes; None where nothing was.

        Raises:
            CheckpointError: the file was not written by `keep`.
        """
        if self.decided is None:
            return None
        try:
            found, modes = self.places.decoded(*self.decided)
            return found, list(modes)
        # As above.
        except Exception as error:
            raise CheckpointError(f"{self.file} was not written by ex.infer: {error}") from error

    def forget(self) -> None:
        """Remove what was decided, and what was drawn with it: it did not serve."""
        self.counts, self.ended, self.anew = {}, -1.0, False
        if self.file is None or self.decided is None:
            return
        self.decided = None
        with checkpoint.writable(self.file.parent):
            for folder in self.file.parent.glob("round-*"):
                shutil.rmtree(folder)
            for file in (self.file.with_name(FILE + checkpoint.PREVIOUS), self.file):
                file.unlink(missing_ok=True)

    def round(self, name: str, draws: int) -> tuple[int, Checkpoint | None]:
        """How many draws are made in a round, as decided before or now, and where it is kept."""
        if name not in self.counts:
            self.counts[name] = [draws, draws]
            self._write()
        wanted, made = self.counts[name]
        draws = wanted if self.max_seconds > self.ended >= 0 else made
        if self.file is None or self.given is None:
            return draws, None
        return draws, dataclasses.replace(self.given, folder=self.file.with_name(name))

    def has(self, name: str) -> bool:
        """Whether a round of this name has been begun before."""
        return name in self.counts

    def made(self, name: str, draws: int) -> bool:
        """Note how many draws a round has; whether it was cut."""
        wanted, made = self.counts[name]
        if draws != made:
            self.counts[name] = [wanted, draws]
            self._write()
        return draws < wanted

    def ends(self, rounds: int, enough: bool) -> bool:
        """Whether no round follows: as decided before, with as much time as now, or now."""
        if rounds < sum(not name.endswith(MORE) for name in self.counts):
            return False
        if enough and self.max_seconds > self.ended:
            self.ended = self.max_seconds
            self._write()
        return self.max_seconds <= self.ended

    def _write(self) -> None:
        if self.file is None or self.decided is None:
            return
        decided, arrays = self.decided
        facts = {
            "identity": self.identity,
            "tuned": json.dumps(decided),
            "log": dataclasses.asdict(self.log),
            "anew": self.anew,
            "counts": self.counts,
            "ended": self.ended,
            "spent": self.spent + time.perf_counter() - self.began,
        }
        with checkpoint.writable(self.file.parent):
            checkpoint.save(self.file, arrays, facts)


def _identity(
    target: AbstractTarget, init: PyTree, key: PRNGKeyArray, arguments: dict[str, float | int]
) -> dict[str, str]:
    """Digests of all that an inference depends on, but for the time."""
    frozen = tree.freeze(init, "init")

    def potential(target: AbstractTarget, position: PyTree) -> Any:
        return target.potential(tree.thaw(position))

    parts = {name: str(value) for name, value in arguments.items()}
    parts |= fingerprint.program("the program of the potential (model)", potential, target, frozen)
    for name, part in (("target", target), ("init", frozen), ("key", key)):
        parts |= fingerprint.digests(part, name)
    return parts


class Places:
    """Encodes trees whose user's parts stand in a target or in `init`.

    Args:
        target: with functions and data of the user's.
        init: a position.
    """

    def __init__(self, target: AbstractTarget, init: PyTree) -> None:
        self.parts: dict[str, Any] = {}
        self.names: dict[int, str] = {}
        self._add("target", target)
        self._add("init", init)

    def _add(self, name: str, part: Any) -> None:
        """Note a part and all that it consists of."""
        if isinstance(part, PLAIN) or id(part) in self.names:
            return
        self.parts[name], self.names[id(part)] = part, name
        if isinstance(part, dict):
            inner = [(f"{name}[{key!r}]", value) for key, value in part.items()]
        elif isinstance(part, list | tuple):
            inner = [(f"{name}[{k}]", value) for k, value in enumerate(part)]
        elif dataclasses.is_dataclass(part):
            fields = [field.name for field in dataclasses.fields(part) if hasattr(part, field.name)]
            inner = [(f"{name}.{field}", getattr(part, field)) for field in fields]
        else:
            paths = jax.tree_util.tree_leaves_with_path(part)
            inner = [(name + jax.tree_util.keystr(path), leaf) for path, leaf in paths if path]
        for inner_name, value in inner:
            self._add(inner_name, value)

    def encoded(self, node: Any, arrays: list[np.ndarray]) -> Any:
        """The structure of a tree as JSON values; arrays that are no parts go to `arrays`.

        Raises:
            TypeError: something of the user's that is no part.
        """
        seen: dict[int, tuple[int, jax.Array]] = {}  # since some arrays stand in a kernel twice

        def special(node: Any) -> Any:
            if isinstance(node, PLAIN):
                return None
            if id(node) in self.names:
                return {"part": self.names[id(node)]}
            if isinstance(node, jax.Array) and not tree.is_key(node):
                if id(node) not in seen:
                    seen[id(node)] = len(arrays), node  # held, so that its id stays its own
                    arrays.append(np.asarray(node))
                return {"on device": seen[id(node)][0]}
            owner = getattr(node, "__self__", None)
            if isinstance(owner, AbstractTarget) and getattr(node, "__name__", "") == "potential":
                return {"potential of": structure.encode(owner, arrays, special)}
            if _is_ours(node):
                return None
            leaves, shape = jax.tree.flatten(node)
            for name, part in self.parts.items():
                if not jax.tree_util.treedef_is_leaf(shape) and jax.tree.structure(part) == shape:
                    found = [structure.encode(leaf, arrays, special) for leaf in leaves]
                    return {"like": name, "leaves": found}
            raise TypeError(f"{node!r} can't be kept in a checkpoint. Leave checkpoint= out.")

        return structure.encode(node, arrays, special)

    def decoded(self, node: Any, arrays: list[np.ndarray]) -> Any:
        """The tree again, with the parts of this target and `init`."""
        found: dict[int, jax.Array] = {}

        def special(node: Any) -> Any:
            match node:
                case {"part": str(name)}:
                    return self.parts[name]
                case {"on device": int(place)}:
                    if place not in found:
                        found[place] = jnp.asarray(arrays[place])
                    return found[place]
                case {"potential of": owner}:
                    target = structure.decode(owner, arrays, special)
                    assert isinstance(target, AbstractTarget)
                    return target.potential
                case {"like": str(name), "leaves": list(leaves)}:
                    parts = [structure.decode(leaf, arrays, special) for leaf in leaves]
                    return jax.tree.unflatten(jax.tree.structure(self.parts[name]), parts)
                case _:
                    return None

        return structure.decode(node, arrays, special)


def _is_ours(node: Any) -> bool:
    """Whether `structure` has a form for it: arrays, containers and classes of this library."""
    if isinstance(node, jax.Array | np.ndarray | np.generic) or type(node) in (dict, list, tuple):
        return True
    return dataclasses.is_dataclass(node) and type(node).__module__.split(".")[0] == "ergodax"
