"""Several processes, on one host or many, that sample together: start them, gather their draws."""

import importlib.util
import os
import signal
import sys
from types import TracebackType
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh

from ergodax.cluster.meshes import owners
from ergodax.cluster.processes import on_words

LOST_AFTER = 20  # seconds without a sign of life


def start(
    coordinator: str | None = None,
    processes: int | None = None,
    process_id: int | None = None,
    *,
    bind: str | None = None,
    lost_after: int = LOST_AFTER,
) -> None:
    """Join the other processes of a run. Call it before anything else that uses JAX.

    What is not given is taken from the environment: ERGODAX_COORDINATOR, ERGODAX_PROCESSES and
    ERGODAX_PROCESS_ID, which `ergodax launch` sets; SLURM_NTASKS and SLURM_PROCID of `srun`, and
    OMPI_COMM_WORLD_SIZE and _RANK of `mpirun` (Open MPI 4), where JAX finds the coordinator itself;
    JOB_COMPLETION_INDEX of an indexed Kubernetes job, where JAX finds all where `kubernetes` is
    installed; TPU_WORKER_HOSTNAMES of several hosts of a Cloud TPU, where JAX finds all. Then
    `ex.mesh()` has all processes' devices.
    Where nothing speaks of several processes, nothing is done. Otherwise an error that nobody
    catches ends the process at once, without what `atexit` has been given to do, so that no other
    process waits for it.

    Args:
        coordinator: HOST:PORT, where process 0 listens and all others find it.
        processes: how many there are.
        process_id: the number of this one, from 0.
        bind: HOST:PORT where process 0 listens, if that is not the coordinator's own address, as
            behind a service of Kubernetes. Nobody is asked for a password there: keep it to a
            network whose every host you trust.
        lost_after: seconds after which a process that gives no sign of life counts as lost, and
            ends the others; a process that is killed, while its host lives, is noticed at once.

    Raises:
        ValueError: it is not known how many processes there are, or which this one is.
    """
    coordinator = coordinator or os.environ.get("ERGODAX_COORDINATOR")
    processes = _number(processes, "ERGODAX_PROCESSES", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")
    process_id = _number(
        process_id,
        "ERGODAX_PROCESS_ID",
        "SLURM_PROCID",
        "OMPI_COMM_WORLD_RANK",
        "JOB_COMPLETION_INDEX",
    )
    finds_address = any(name in os.environ for name in ("SLURM_JOB_ID", "OMPI_MCA_orte_hnp_uri"))
    finds_all = coordinator is None and processes is None and _asked_of_jax()
    known = processes is not None and process_id is not None
    if coordinator is None and processes in (None, 1) and process_id in (None, 0) and not finds_all:
        return
    if not finds_all and not (known and (coordinator or finds_address)):
        raise ValueError(
            f"coordinator={coordinator!r}, processes={processes!r} and process_id={process_id!r} "
            "must all be known. Pass them, such as coordinator='host0:9876', processes=2, "
            "process_id=0, or start the processes by `ergodax launch`, `srun` or `mpirun`."
        )
    if processes is not None and process_id is not None and not 0 <= process_id < processes:
        raise ValueError(f"process_id must lie in [0, {processes}), not {process_id}.")
    jax.distributed.initialize(
        coordinator,
        processes,
        process_id,
        coordinator_bind_address=bind or coordinator,  # JAX's own default is every network
        heartbeat_timeout_seconds=lost_after,
    )
    sys.excepthook = _leave


def gather(samples: Any, mesh: Mesh) -> Any:
    """The draws of all chains, in every process, from those of each one's own.

    All processes must call it. It holds all draws in the memory of each: for more, store them, and
    read them with `Samples.load`.

    Args:
        samples: what `sample(mesh=)` has returned.
        mesh: the same.

    Returns:
        The Samples of all chains, as NumPy arrays.

    Raises:
        ValueError: the processes have different numbers of chains.
    """
    if not mesh.is_multi_process:
        return samples
    from jax.experimental.multihost_utils import process_allgather

    processes = owners(mesh)
    rows = [np.flatnonzero((processes == p).any(axis=1)) for p in range(jax.process_count())]
    if len({len(row) for row in rows}) > 1:
        raise ValueError("the mesh gives processes different numbers of chains; store the draws.")

    def whole(x: Any) -> np.ndarray:
        every = np.asarray(process_allgather(np.asarray(x)))
        a_row = every.reshape(len(rows), len(rows[0]), -1, *every.shape[2:])
        pieces = [a_row[p, r - rows[p][0]] for r, p in enumerate(processes[:, 0])]
        return np.concatenate(pieces)

    arrays, rest = eqx.partition(samples, eqx.is_array)
    return eqx.combine(jax.tree.map(lambda x: on_words(whole, x), arrays), rest)


def _leave(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Report an uncaught error and end at once, so that the others notice.

    At an ordinary end JAX waits until all processes have come to theirs; those that wait for this
    one in the middle of a run never would.
    """
    sys.__excepthook__(kind, error, trace)
    sys.stdout.flush()
    sys.stderr.flush()
    number = getattr(error, "signal", signal.SIGINT)
    os._exit(128 + number if issubclass(kind, KeyboardInterrupt) else 1)


def _asked_of_jax() -> bool:
    """Whether JAX itself finds all about the processes here: on Cloud TPU, or by Kubernetes."""
    if "," in os.environ.get("TPU_WORKER_HOSTNAMES", ""):
        return True
    indexed = {"KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX"} <= set(os.environ)
    return indexed and importlib.util.find_spec("kubernetes") is not None


def _number(given: int | None, *names: str) -> int | None:
    """What is given, or else what the first of these environment variables says that is set."""
    found = (os.environ[name] for name in names if name in os.environ)
    text = next(found, None)
    return given if given is not None or text is None else int(text)
