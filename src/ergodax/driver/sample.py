"""The one entry point: run a kernel, get a Samples."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jax.sharding import Mesh
from jaxtyping import PyTree

from ergodax.driver.chains import positions_of_chains
from ergodax.driver.device import OnOneDevice
from ergodax.driver.interruption import stop_requested
from ergodax.driver.keeper import Keeper
from ergodax.driver.mesh import OnMesh
from ergodax.driver.progress import progress_bar
from ergodax.driver.run import Plan, Run
from ergodax.driver.samples import Samples
from ergodax.kernel import check_kernel, check_key


def sample(
    kernel: Any,
    position: PyTree = None,
    num_steps: int = 1000,
    *,
    key: Any,
    num_chains: int = 1,
    thin: int = 1,
    burn_in: int = 0,
    collect: Callable[[PyTree], PyTree] | None = None,
    progress: bool = True,
    positions: PyTree = None,
    store: str | Path | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    save_every: float = 10.0,
    mesh: Mesh | None = None,
) -> Samples:
    """Run a kernel and keep its draws.

    The same key gives the same draws, however the run is cut into chunks, and however often it is
    killed and resumed. Ctrl-C ends a run after the chunk that it is in, in an ex.Interrupted with
    what was drawn.

    Args:
        kernel: anything with `init(key, position)` and `step(key, state)`.
        position: where every chain starts: any tree of floating-point arrays.
        num_steps: steps of each chain after burn-in; num_steps // thin are kept as draws.
        key: a key of `jax.random.key`.
        num_chains: independent chains.
        thin: keep every thin-th step's position.
        burn_in: steps before the first that counts.
        collect: function of the position; what it returns is stored in place of it.
        progress: show a bar; it is silent where standard error is not a terminal.
        positions: instead of `position`, one start for each chain along a leading axis.
        store: a folder to be made for the draws (Zarr), which go there as they come; `Samples.load`
            reads it at any time, after a kill as well.
        checkpoint: a folder to be made for the state of the run, by which it can be resumed; the
            draws are stored in it too where `store` is not given.
        resume: go on with the run in `checkpoint`, if there is one, to the same draws that it would
            have made uninterrupted; num_steps may be more than it was.
        save_every: seconds between two times of saving draws and state.
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
        ValueError: a number out of range, shapes that do not fit the target, chains or shards that
            can't be split evenly over the mesh.
    """
    _check_counts(num_steps=num_steps, num_chains=num_chains, thin=thin, burn_in=burn_in)
    if thin > num_steps:
        raise ValueError(f"thin={thin} leaves no draw of num_steps={num_steps}; lower thin.")
    if burn_in + num_steps >= 2**31:
        raise ValueError(f"burn_in + num_steps must be below 2^31, not {burn_in + num_steps}.")
    kernel = check_kernel(kernel)
    key, starts = check_key(key), positions_of_chains(position, positions, num_chains)
    if mesh is None:
        where = OnOneDevice(kernel, collect)
    else:
        where = OnMesh(kernel, collect, mesh, num_chains)
    with where.processes.together():
        keeper = Keeper(store, checkpoint, resume, save_every, where.part)
    run = Run(where, where.start(key, starts), Plan(burn_in, num_steps, thin), keeper)
    with (
        progress_bar(burn_in + num_steps, show=progress) as report,
        stop_requested(terminate=keeper.active) as stop,
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
