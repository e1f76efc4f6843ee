"""The one entry point: run a kernel, get a Samples."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import PyTree

from ergodax.cluster.meshes import chains_of_all
from ergodax.driver.chains import first_step, positions_of_chains, states_of_chains
from ergodax.driver.executor import Executor
from ergodax.driver.interruption import stop_requested
from ergodax.driver.progress import progress_bar
from ergodax.driver.run import Plan, Run
from ergodax.driver.samples import Samples
from ergodax.kernel import check_kernel, check_key
from ergodax.persist.checkpointer import Checkpoint, Checkpointer


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
    state: Any = None,
    checkpoint: Checkpoint | None = None,
    mesh: Mesh | None = None,
) -> Samples:
    """Run a kernel and keep its draws.

    The same key gives the same draws, however the run is cut into chunks, and however often it is
    killed and resumed. Ctrl-C ends a run after the chunk that it is in, in an ex.Interrupted with
    what was drawn.

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
        burn_in: steps before the first that counts.
        collect: function of the position; what it returns is stored in place of it.
        progress: show a bar; it is silent where standard error is not a terminal.
        positions: instead of `position`, one start for each chain along a leading axis.
        state: instead of `position`, the final state of another run with this kernel, or with one
            that differs in numbers such as its step size alone; leading axis chains.
        checkpoint: an `ex.Checkpoint`: where the run is kept on disk, to be resumed after a kill.
        mesh: devices to run on, such as `ex.mesh()`: chains are split along its axis "chains", and
            the shards of an `ex.Stratified` along its axis "data".

    Returns:
        A Samples with `position` and `info` (axes chains, draws, ...) and `final_state`; on a mesh
        of several processes, each has its own chains.

    Raises:
        DivergenceError: a chain's position is not finite, or compensating the gradient's noise was
            infeasible; carries the draws made before.
        Interrupted: the run was asked to stop; carries the draws.
        StorageError: the disk is full or can't be written; carries the draws.
        ProcessLost: another process of the mesh has ended; start all of them again.
        ProcessFailed: another process of the mesh has raised an error.
        CheckpointError: the folder has a run already and `resume` is False, or it is of another
            model, data, key or settings, or damaged.
        TypeError: an argument of the wrong type, or an integer position.
        ValueError: a number out of range, shapes that do not fit the target or the kernel, chains
            or shards that can't be split evenly over the mesh.
    """
    _check_counts(num_steps=num_steps, thin=thin, burn_in=burn_in)
    if num_chains is not None:
        _check_counts(num_chains=num_chains)
    if thin > num_steps:
        raise ValueError(f"thin={thin} leaves no draw of num_steps={num_steps}; lower thin.")
    kernel, key = check_kernel(kernel), check_key(key)
    first = 0
    if state is None:
        starts = positions_of_chains(position, positions, num_chains)
        chains = jax.tree.leaves(starts)[0].shape[0]
    elif position is None and positions is None:
        state = states_of_chains(kernel, key, state)
        starts, first = state.position, first_step(state)
        chains = chains_of_all(mesh, jax.tree.leaves(starts)[0].shape[0])
        if num_chains not in (None, chains):
            raise ValueError(
                f"num_chains={num_chains}, but state has {chains} chains. Leave num_chains out."
            )
    else:
        raise ValueError("state has a position of its own: pass no position or positions with it.")
    if first + burn_in + num_steps >= 2**31:
        raise ValueError(
            "burn_in + num_steps, and the steps that state has taken, must be below 2^31, not "
            f"{first + burn_in + num_steps}."
        )
    where = Executor(kernel, collect, mesh, chains)
    with where.processes.together():
        checkpointer = Checkpointer(checkpoint, where.part)
    plan = Plan(burn_in, num_steps, thin)
    run = Run(where, where.start(key, starts, state), plan, checkpointer, first)
    with (
        progress_bar(burn_in + num_steps, show=progress) as report,
        stop_requested(terminate=checkpointer.active) as stop,
    ):
        run.to_end(report, stop)
    return run.samples()


def _check_counts(**counts: int) -> None:
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise TypeError(f"{name} must be an integer, not {value!r}.")
        least = 0 if name == "burn_in" else 1
        if not least <= value < 2**31:
            raise ValueError(f"{name} must lie in [{least}, 2^31), not {value}.")
