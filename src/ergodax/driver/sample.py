"""The one entry point: run a kernel, get a Samples."""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import callable_function, flag, real_number, whole_number
from ergodax.cluster.meshes import chains_of_all
from ergodax.driver.compile import one_of
from ergodax.driver.executor import Executor
from ergodax.driver.progress import Stop, listening, progress_bar
from ergodax.driver.run import Plan, Run
from ergodax.driver.samples import Samples
from ergodax.kernel import check_kernel, check_key, freeze
from ergodax.persist.checkpoint import Checkpoint, Checkpointer


def sample(
    kernel: Any,
    position: PyTree = None,
    num_steps: int = 1000,
    *,
    key: Any,
    num_chains: int | None = None,
    thin: int = 1,
    burn_in: int = 0,
    collect: Callable[[PyTree], PyTree] | None = None,
    progress: bool = True,
    positions: PyTree = None,
    state: PyTree = None,
    checkpoint: Checkpoint | None = None,
    mesh: Mesh | None = None,
    max_seconds: float | None = None,
) -> Samples:
    """Run a kernel and keep its draws.

    The same key gives the same draws, however the run is cut into chunks, and however often it is
    killed and resumed. Ctrl-C, or a signal to terminate, ends a run after the chunk that it is in,
    in an ex.Interrupted with what was drawn; where nobody catches it, the program ends as by that
    signal, so that its exit status is 130 or 143.

    `sample(kernel, state=samples.final_state, key=..., num_steps=...)` goes on from where another
    run ended. Step t of a chain has the key fold_in(chain key, t), and steps are counted on from
    `state.step`, so with the key of that run the draws are, to the bit, those that it would have
    made next. With another key they are other draws of the same law. A state without an integer
    `step` is counted from 0: it must be given a new key, since that of its run would repeat the
    same random numbers.

    Args:
        kernel: anything with `init(key, position)` and `step(key, state)`, which returns the next
            state and an Info.
        position: where every chain starts: any tree of floating-point arrays.
        num_steps: steps of each chain after burn-in; num_steps // thin are kept as draws.
        key: a key of `jax.random.key`.
        num_chains: independent chains; by default as many as `positions` or `state` has, or one.
        thin: keep every thin-th step's position.
        burn_in: steps before the first that counts, also for `online.accumulate` and the like.
        collect: function of the position; what it returns is stored in place of it.
        progress: show a bar; it is silent where standard error is not a terminal.
        positions: instead of `position`, one start for each chain along a leading axis.
        state: instead of `position`, the final state of another run with this kernel, or with one
            that differs in numbers such as its step size alone; leading axis chains.
        checkpoint: an `ex.Checkpoint`: where the run is kept on disk, to be resumed after a kill.
        mesh: devices to run on, such as `ex.mesh()`: chains are split along its axis "chains", and
            the shards of an `ex.Stratified` along its axis "data".
        max_seconds: end after the chunk of steps (half a second's, or one step) in which so much
            time has passed, compilation included; by default never.

    Returns:
        A Samples with `position` and `info` (axes chains, draws, ...) and `final_state`; on a mesh
        of several processes, each has its own chains. It has fewer draws than asked for where the
        time was up.

    Raises:
        DivergenceError: a chain's position is not finite, or compensating the gradient's noise was
            infeasible; carries the draws made before.
        Interrupted: the run was asked to stop; carries the draws.
        StorageError: the disk is full or can't be written, or the rows of a stream can't be read;
            carries the draws.
        CallbackError: a callback to Python raised an error; carries the draws made before.
        ProcessLost: another process of the mesh has ended; start all of them again.
        ProcessFailed: another process of the mesh has raised an error.
        CheckpointError: the folder has a run already and `resume` is False, or it is of another
            model, data, key or settings, or damaged; or another process is writing to it.
        TypeError: an argument of the wrong type, or an integer position.
        ValueError: a number out of range, shapes that do not fit the target or the kernel, a
            `collect` without arrays, chains or shards that can't be split evenly over the mesh.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> kernel = ex.sgld(ex.Minibatch(model, 10), 1e-3)
        >>> samples = ex.sample(
        ...     kernel, jnp.float32(0.0), 1_000, burn_in=200, num_chains=4, key=jax.random.key(0),
        ...     progress=False,
        ... )
        >>> samples.position.shape  # chains, draws
        (4, 1000)
        >>> bool(abs(samples.position.mean() - 100 / 101) < 0.05)
        True
    """
    num_steps = whole_number("num_steps", num_steps)
    thin, burn_in = whole_number("thin", thin), whole_number("burn_in", burn_in, at_least=0)
    num_chains = None if num_chains is None else whole_number("num_chains", num_chains)
    if thin > num_steps:
        raise ValueError(f"thin={thin} leaves no draw of num_steps={num_steps}; lower thin.")
    flag("progress", progress)
    if max_seconds is not None:
        max_seconds = real_number("max_seconds", max_seconds, at_least=0.0)
    stop = Stop(max_seconds)
    if collect is not None:
        callable_function("collect", collect)
    kernel, key = check_kernel(kernel), check_key(key)
    begin = _start_of_chains(kernel, key, position, positions, state, num_chains, mesh)
    if begin.step + burn_in + num_steps >= 2**31:
        raise ValueError(
            "burn_in + num_steps, and the steps that state has taken, must be below 2^31, not "
            f"{begin.step + burn_in + num_steps}."
        )
    _check_first_step(kernel, begin)
    kernel = _counting_after(kernel, begin.step + burn_in) if burn_in else kernel
    where = Executor(kernel, collect, mesh, begin.num_chains)
    with where.processes.together():
        checkpointer = Checkpointer(checkpoint, where.part)
    with contextlib.closing(checkpointer):
        plan = Plan(burn_in, num_steps, thin)
        started = where.start(key, begin.positions, begin.states)
        run = Run(where, started, plan, checkpointer, begin.step)
        with (
            progress_bar(burn_in + num_steps, show=progress) as report,
            listening(stop),
        ):
            run.to_end(report, stop)
        return run.samples()


def trace(kernel: Any, positions: PyTree, key: Any) -> None:
    """Trace what `sample` compiles first for a kernel, so that another thread may compile it.

    JAX 0.12 can't trace one function in two threads at a time: its rules of differentiation are
    kept, and the thread that comes second finds them half made.
    """
    kernel, key = check_kernel(kernel), check_key(key)
    begin = _start_of_chains(kernel, key, None, positions, None, None, None)
    Executor(kernel, None, None, begin.num_chains).trace(key, begin.positions)


def compile_draws(kernel: Any, positions: PyTree, key: Any, collect: Any) -> None:
    """Compile what `sample` runs with these arguments where every step is a draw; take none."""
    kernel, key = check_kernel(kernel), check_key(key)
    begin = _start_of_chains(kernel, key, None, positions, None, None, None)
    where = Executor(kernel, collect, None, begin.num_chains)
    started = where.start(key, begin.positions, None)
    Run(where, started, Plan(0, 1, 1), Checkpointer(None, where.part)).compile()


class Start(NamedTuple):
    """Where all chains begin."""

    positions: PyTree  # with a leading chain axis
    states: PyTree  # that they go on from, likewise; None where the kernel makes the first ones
    num_chains: int  # of all processes
    step: int  # the number of the first one, which its key follows from


def _counting_after(kernel: Any, step: int) -> Any:
    """The kernel, of which whatever is kept while the chain runs leaves out the steps of burn-in.

    Such a kernel has a number `after`, as those of `online.accumulate` and `network.predictive`.
    """

    def afters(kernel: Any) -> list[Any]:
        inside = getattr(kernel, "kernel", None)
        own = [kernel.after] if hasattr(kernel, "after") else []
        return own if inside is None else own + afters(inside)

    found = afters(kernel)
    if not found or not all(isinstance(after, jax.Array) for after in found):
        return kernel  # an attribute of that name may be anything in a kernel of the user's
    return eqx.tree_at(afters, kernel, [jnp.maximum(after, step) for after in found])


def _check_first_step(kernel: Any, begin: Start) -> None:
    """Refuse a step that is zero in the precision of an array of 16 bits: it would never move."""
    step_size = getattr(kernel, "step_size", None)
    small = {x.dtype for x in jax.tree.leaves(begin.positions) if x.dtype.itemsize < 4}
    if not small or not callable(step_size):
        return
    h = np.asarray(step_size(jax.device_put(np.int32(begin.step))))
    for dtype in small:
        if not h.astype(dtype).any():
            raise ValueError(
                f"step_size={h:g} is zero in {dtype}, the precision of the position, which would "
                "never move. Try a larger step, or positions of float32."
            )


def _start_of_chains(
    kernel: Any,
    key: PRNGKeyArray,
    position: PyTree,
    positions: PyTree,
    state: PyTree,
    num_chains: int | None,
    mesh: Mesh | None,
) -> Start:
    """Where all chains begin, from the arguments of `sample` of these names."""
    if state is None:
        starts = _positions_of_chains(kernel, position, positions, num_chains)
        return Start(starts, None, jax.tree.leaves(starts)[0].shape[0], 0)
    if position is not None or positions is not None:
        raise ValueError("state has a position of its own: pass no position or positions with it.")
    states = _states_of_chains(kernel, key, state)
    found = chains_of_all(mesh, jax.tree.leaves(states.position)[0].shape[0])
    if num_chains not in (None, found):
        raise ValueError(
            f"num_chains={num_chains}, but state has {found} chains. Leave num_chains out."
        )
    return Start(states.position, states, found, _first_step(states))


def _positions_of_chains(
    kernel: Any, position: PyTree, positions: PyTree, num_chains: int | None
) -> PyTree:
    """The first positions of all chains, with a leading chain axis: one for all, or one each."""
    if (position is None) == (positions is None):
        raise ValueError(
            "pass either position, the start of every chain, or positions, with a leading "
            "chain axis, or state, the final state of another run."
        )
    if positions is None:
        one, count = freeze(kernel, position), 1 if num_chains is None else num_chains
        # By NumPy, which compiles nothing.
        rows = lambda x: np.broadcast_to(np.asarray(x), (count, *x.shape))  # noqa: E731
        frozen = jax.tree.map(lambda x: jax.device_put(rows(x)), one)
    else:
        frozen = freeze(kernel, positions, "positions")
        _count_chains(frozen, "positions", num_chains)
    if not tree.known_finite(frozen):
        raise ValueError(
            "the position has entries that are NaN or infinite; start at a finite one."
        )
    return frozen


def _states_of_chains(kernel: Any, key: PRNGKeyArray, state: PyTree) -> PyTree:
    """The states that the chains go on from, with a leading chain axis: those of this kernel."""
    position = getattr(state, "position", None)
    if position is None or not jax.tree.leaves(position):
        raise TypeError(
            f"state must be the final state of a run, such as samples.final_state, not {state!r}. "
            "To start at a position, pass position= or positions=."
        )
    _count_chains(state, "state", None)
    wanted = eqx.filter_eval_shape(kernel.init, key, one_of(position))
    if jax.tree.structure(wanted) != jax.tree.structure(state):
        raise ValueError(
            "state is not such as this kernel's init makes: it has other parts. Pass the kernel "
            "that it is from; its step size and the like may be others. A state read from a file "
            "does not have the rows of a stream: there, begin at its position by positions=."
        )
    pairs = zip(jax.tree_util.tree_leaves_with_path(wanted), jax.tree.leaves(state), strict=True)
    for (path, one), leaf in pairs:
        if (one.shape, one.dtype) != (leaf.shape[1:], leaf.dtype):
            raise ValueError(
                f"state{jax.tree_util.keystr(path)} has dtype {leaf.dtype} and shape {leaf.shape}, "
                f"but this kernel needs {one.dtype} and (chains, *{one.shape}). Pass the kernel "
                "that the state is from."
            )
    if not tree.known_finite(position):
        raise ValueError("state.position has entries that are NaN or infinite.")
    return state


def _count_chains(batched: PyTree, name: str, num_chains: int | None) -> None:
    """Refuse a tree, called `name`, without a leading axis of as many chains as there shall be."""
    leaves = jax.tree_util.tree_leaves_with_path(batched)
    for path, leaf in leaves:
        count = num_chains if num_chains is not None else (np.shape(leaves[0][1]) or (0,))[0]
        if np.ndim(leaf) == 0 or np.shape(leaf)[0] != count or not count:
            wanted = f"num_chains={num_chains}" if num_chains is not None else "one for each chain"
            raise ValueError(
                f"{name}{jax.tree_util.keystr(path)} must have a leading axis of length "
                f"{wanted}, but its shape is {np.shape(leaf)}. Leave num_chains out, or pass "
                "position= for one start of all."
            )


def _first_step(states: PyTree) -> int:
    """The number of the first step: how many the states have taken, 0 where they don't say."""
    steps = getattr(states, "step", None)
    if not eqx.is_array(steps) or np.ndim(steps) != 1 or np.asarray(steps).dtype.kind != "i":
        return 0
    return int(np.max(np.asarray(steps)))
