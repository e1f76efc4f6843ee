"""One worker: it makes replicas, one after another, and leaves each in the folder of all."""

import contextlib
import functools
import hashlib
import itertools
import sys
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.cache import kept_programs
from ergodax.checks import callable_function, real_number, whole_number
from ergodax.errors import CheckpointError
from ergodax.kernel import check_kernel, check_key, freeze, initial_state
from ergodax.persist import fingerprint
from ergodax.replicas.multilevel import Moments, Outcome, added, seen
from ergodax.replicas.places import Folder, FolderLog, Place, StoreLog, place_of, writing
from ergodax.replicas.records import ENDED, Content, Manifest
from ergodax.stats.draws import check_unweighted

EVERY = 5.0  # seconds after which results are on the disk, power cuts included
WORDS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"


class Chain(eqx.Module):
    """What `chain` returns: a pure function of a key."""

    kernel: Any
    position: PyTree
    function: Callable[[PyTree], PyTree] | None
    num_steps: int = eqx.field(static=True)
    burn_in: int = eqx.field(static=True)

    @property
    def bias(self) -> str:
        """What bias the estimate has, in words."""
        return f"that of the kernel's step and batches and of {self.burn_in} steps of burn-in"

    def __call__(self, key: PRNGKeyArray) -> Outcome:
        """The averages along one chain."""
        key_begin, key_run = jax.random.split(key)
        state = initial_state(self.kernel, self.position, key_begin)
        function = Moments() if self.function is None else self.function

        def one(i: Any, carry: tuple[Any, PyTree, Any]) -> tuple[Any, PyTree, Any]:
            state, total, cost = carry
            state, info = self.kernel.step(jax.random.fold_in(key_run, i), state)
            check_unweighted(info, "replicas.chain")
            total = added(total, seen(function, state.position), i >= self.burn_in)
            return state, total, cost + info.evaluations.astype(jnp.float32)

        carry = state, tree.zeros_like(seen(function, state.position)), jnp.zeros((), jnp.float32)
        _, total, cost = lax.fori_loop(0, self.burn_in + self.num_steps, one, carry)
        return Outcome(tree.scale(1.0 / self.num_steps, total), jnp.int32(0), cost)


def chain(
    kernel: Any,
    position: PyTree,
    num_steps: int,
    *,
    burn_in: int,
    function: Callable[[PyTree], PyTree] | None = None,
) -> Chain:
    """An ordinary chain as a replica: averages along it, with the bias of its step and its start.

    The mean over replicas of the mean of f over steps burn_in to burn_in + num_steps. More replicas
    make its error smaller and leave its bias; `diagnostics.bias` measures the step's.

    Args:
        kernel: any kernel, such as ex.sms_ubu(...), whose draws count alike.
        position: where every chain starts.
        num_steps: after burn-in, over which f is averaged.
        burn_in: steps before the first that counts.
        function: f, position -> tree of floating-point arrays; by default the position as "mean"
            and its square as "second_moment".

    Returns:
        A function of a key, pure and compilable, that returns an Outcome.

    Raises:
        TypeError: not a kernel, or a number that is not an integer.
        ValueError: a number out of range.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> target = ex.targets.gaussian(jnp.zeros(2), jnp.ones(2))
        >>> kernel = ex.langevin(ex.FullGradient(target), 0.2)
        >>> ex.replicas.chain(kernel, jnp.zeros(2), 100, burn_in=20)(jax.random.key(0)).value[
        ...     "mean"
        ... ].shape
        (2,)
    """
    kernel = check_kernel(kernel)
    if function is not None:
        callable_function("function", function)
    steps = whole_number("num_steps", num_steps)
    burn_in = whole_number("burn_in", burn_in, at_least=0)
    return Chain(kernel, freeze(kernel, position), function, steps, burn_in)


def work(
    folder: Any,
    function: Callable[[PRNGKeyArray], Any],
    *,
    key: Any,
    num: int | None = None,
    seconds: float | None = None,
    worker: str | None = None,
    identity: str | None = None,
    bias: str | None = None,
) -> int:
    """Make replicas, one after another, and leave each in a folder that other workers share.

    Any number of processes on any hosts may call it with the same arguments at any time. They need
    nothing of each other and may die at any time. Replica k of a worker has the key
    fold_in(fold_in(key, digest of the worker's name), k), so no two are the same. A result is in
    the folder as soon as it is finished, whole or not at all. A worker without a name goes on
    with the replicas of one that has died, if there is one, the one that was in the making first:
    a long replica is likelier to meet a death than a short one, and to lose it would be a bias.

    Args:
        folder: a path that all workers share, or the URL of an object store, by fsspec.
        function: key -> a tree of arrays, or an Outcome; such as `unbiased` and `chain` return. It
            must be one that JAX can trace, or else have `identity`.
        key: of `jax.random.key`, the same for all workers.
        num: how many replicas this worker shall have, with those that it had before.
        seconds: begin none after so many; that which was begun is finished.
        worker: a name, letters, digits, - and _, that no other running worker has, for one that
            shall go on where it was when it is started again; by default a random one.
        identity: for a function of Python, which may call `ex.sample` or `ex.infer`: a text that
            names its model, data and settings, since nothing else tells when they have changed.
        bias: of a replica, in words; by default what the function's attribute `bias` says.

    Returns:
        How many replicas this call has finished.

    Raises:
        TypeError: a function that JAX can't trace without `identity`, or values that are none.
        ValueError: neither num nor seconds, or a replica that is not finite.
        CheckpointError: the folder has replicas of another model, key, data or version, or the
            worker of this name is running.
        StorageError: the folder is full or can't be written.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp, tempfile
        >>> target = ex.targets.gaussian(jnp.zeros(1), jnp.ones(1))
        >>> estimate = ex.replicas.unbiased(
        ...     ex.FullGradient(target), jnp.ones(1), 0.5, burn_in=8, num_draws=8
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     made = ex.replicas.work(folder, estimate, key=jax.random.key(0), num=20)
        ...     report = ex.replicas.read(folder)
        >>> made, report.num
        (20, 20)
    """
    place, key = place_of(folder), check_key(key)
    callable_function("function", function)
    if num is None and seconds is None:
        raise ValueError("num or seconds must be given, such as seconds=600: when shall it end?")
    num = None if num is None else whole_number("num", num)
    deadline = np.inf if seconds is None else real_number("seconds", seconds, above=0.0)
    deadline += time.monotonic()
    named(worker)
    stated = str(bias or getattr(function, "bias", None) or "not known")
    facts, compiled, value = prepared(function, key, identity)
    with kept_programs():
        with writing(folder, worker or "", 0):
            manifest = opened(place, facts, stated, value)
        run = compiled()  # before there is a log, so that a log says that the program is kept
        with writing(folder, worker or "", 0):
            log, name, content = taken(place, manifest, worker, num)
        own = key_of(key, name)
        before, made = (0 if content is None else len(content.rows)), 0
        # One that was in the making is finished, late as it may be.
        owed = bool(log.content) and not (content is None or content.ended)
        numbers = itertools.count() if content is None else content.missing()
        try:
            while (num is None or before + made < num) and (owed or time.monotonic() < deadline):
                number, begun = next(numbers), time.perf_counter()
                outcome = _outcome(run(own, np.int32(number)), name, number)
                took = time.perf_counter() - begun
                with writing(folder, name, before + made):
                    if manifest is None:
                        manifest = settled(place, Manifest.of(facts, stated, outcome.value))
                    if not made and content is None:
                        log.append(manifest.first)
                    log.append(_record(manifest, number, outcome, took))
                made, owed = made + 1, False
            if manifest is not None and before + made:
                with writing(folder, name, before + made):
                    log.append(manifest.write(ENDED, None, time=time.time()))
        finally:
            with writing(folder, name, before + made):
                log.close(keep=before + made > 0 or owed)
    return made


def prepared(
    function: Any, key: PRNGKeyArray, identity: str | None
) -> tuple[dict[str, str], Callable[..., Any], PyTree]:
    """What a replica depends on, by name; what compiles it; and its shape.

    What is compiled is a function of a worker's key and a number.

    The program is traced once, for all three. Functions of Python have no shape before they ran.

    Raises:
        TypeError: a function that can't be traced, or an identity that is none.
    """
    version = sys.modules["ergodax"].__version__  # an import would point upwards
    facts = {"the version of ergodax": version, "the version of JAX": jax.__version__}
    facts |= fingerprint.digests(key, "key")
    if identity is not None:
        if not isinstance(identity, str) or not identity:
            raise TypeError(f"identity must be a text such as 'model 3, May', not {identity!r}.")
        of_host = lambda key, number: function(jax.random.fold_in(key, number))  # noqa: E731
        return facts | {"identity": identity}, lambda: of_host, None
    arrays, rest = eqx.partition(function, eqx.is_array)

    def replica(arrays: PyTree, key: PRNGKeyArray, number: Any) -> Any:
        return eqx.combine(arrays, rest)(jax.random.fold_in(key, number))

    try:
        traced = jax.jit(replica).trace(arrays, key, np.int32(0))
    except jax.errors.JAXTypeError as error:
        raise TypeError(
            "function must be one that JAX can trace, such as ex.replicas.unbiased(...). For one "
            "that calls ex.sample or ex.infer pass identity=, a text that names its model, data "
            f"and settings. JAX says: {str(error).splitlines()[0]}"
        ) from error
    name = "the program of a replica (model, sampler or library)"
    facts |= fingerprint.of_jaxpr(name, traced.jaxpr) | fingerprint.digests(function, "function")

    def compiled() -> Callable[..., Any]:
        return functools.partial(traced.lower().compile(), arrays)

    shape = traced.out_info
    return facts, compiled, shape.value if isinstance(shape, Outcome) else shape


def opened(place: Place, facts: dict[str, str], bias: str, value: PyTree) -> Manifest | None:
    """The manifest of the folder, made if it is not there; None where it needs a first result."""
    there = place.manifest()
    if there is not None:
        manifest = Manifest.parse(there, str(place.path))
        manifest.check(facts, place.path)
        return manifest
    return None if value is None else settled(place, Manifest.of(facts, bias, value))


def settled(place: Place, manifest: Manifest) -> Manifest:
    """The manifest that is in the folder once this one has been put there."""
    place.put_manifest(manifest.content())
    there = Manifest.parse(place.manifest() or b"", str(place.path))
    there.check(manifest.facts, place.path)
    return there


def taken(
    place: Place, manifest: Manifest | None, worker: str | None, num: int | None
) -> tuple[FolderLog | StoreLog, str, Content | None]:
    """A log to append to, the name of its worker, and what is in it.

    Raises:
        CheckpointError: the worker of this name is running.
    """
    if worker is None and manifest is not None and isinstance(place, Folder):
        for name in place.unfinished(len(manifest.first), manifest.record.itemsize):
            with contextlib.suppress(CheckpointError):  # it is alive
                log = place.log(name, EVERY)
                content = Content(manifest, log.content)
                left = not content.ended and len(content.rows) < (num or np.inf)
                if left and not content.foreign:
                    return _begun(log, manifest, content), name, content
                log.close()
    name = worker or uuid4().hex[:16]
    log = place.log(name, EVERY)
    content = None if manifest is None else Content(manifest, log.content)
    if content is not None:
        if content.foreign:
            log.close()
            raise CheckpointError(
                f"worker {name} of {place.path} has {content.ignored[0]}. Take another name, or "
                "remove its log."
            )
        _begun(log, manifest, content)
    return log, name, content


def _begun(
    log: FolderLog | StoreLog, manifest: Manifest | None, content: Content
) -> FolderLog | StoreLog:
    """A log that goes on after its last whole record, or with its first line."""
    log.begin(content.end)
    if not content.end and manifest is not None:
        log.append(manifest.first)
    return log


def named(worker: Any) -> None:
    """Check a worker's name. Raises: ValueError."""
    if worker is None:
        return
    if not isinstance(worker, str) or not 0 < len(worker) <= 100 or set(worker) - set(WORDS):
        raise ValueError(
            f"worker must be a name of letters, digits, - and _, not {worker!r}. Try 'task-7'."
        )


def key_of(key: PRNGKeyArray, worker: str) -> PRNGKeyArray:
    """The key of a worker."""
    digest = hashlib.blake2b(worker.encode(), digest_size=8).digest()
    for word in np.frombuffer(digest, "<u4"):
        key = jax.random.fold_in(key, word)
    return key


def _outcome(value: Any, worker: str, number: int) -> Outcome:
    """What a function has returned, looked at. Raises: ValueError: not finite."""
    outcome = value if isinstance(value, Outcome) else Outcome(value)
    if not tree.known_finite(outcome.value):
        raise ValueError(
            f"replica {number} of worker {worker} is not finite. Try a smaller step size; it is "
            "not counted, and what was finished before is in the folder."
        )
    return outcome


def _record(manifest: Manifest, number: int, outcome: Outcome, seconds: float) -> bytes:
    return manifest.write(
        number,
        outcome.value,
        level=int(outcome.level),
        evaluations=float(outcome.evaluations),
        seconds=seconds,
        time=time.time(),
    )
