"""Engines that start workers: plain processes of this host, Ray, Dask.

An engine does little: it hands the same call of `work` to some processes and starts those again
that die. What was finished is in the folder, whatever becomes of engine and workers.
"""

import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ergodax.checks import flag, instance, real_number, whole_number
from ergodax.kernel import check_key
from ergodax.replicas.forks import Forks
from ergodax.replicas.places import LOG
from ergodax.replicas.report import Report, read
from ergodax.replicas.worker import work

POLL = 0.1  # seconds
SHOW = 10.0  # seconds from one table to the next
PATIENCE = 60.0  # seconds that the others wait for the first to compile


def _call(task: dict[str, Any]) -> int:
    """One worker, in a process of an engine."""
    words, implementation = task["key"]
    own: dict[str, Any] = task | {"key": jax.random.wrap_key_data(words, impl=implementation)}
    if (until := own.pop("until")) is not None:
        own["seconds"] = max(1e-3, until - time.time())
    return work(**own)


def _task(folder: Any, function: Any, key: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `work` as they are sent: a typed key can't be pickled."""
    key = check_key(key)
    words = np.asarray(jax.random.key_data(key)), str(jax.random.key_impl(key))
    folder = folder if isinstance(folder, str) and "://" in folder else str(Path(folder).absolute())
    if "worker" in options:
        raise TypeError("worker can't be given to an engine: two workers can't have one name.")
    until = None
    if (seconds := options.pop("seconds", None)) is not None:
        until = time.time() + real_number("seconds", seconds, above=0.0)
    if until is None and options.get("num") is None:
        raise ValueError("num or seconds must be given, such as seconds=600: when shall it end?")
    return {"folder": folder, "function": function, "key": words, "until": until} | options


def processes(
    folder: Any,
    function: Callable[..., Any],
    num_workers: int,
    *,
    key: Any,
    restarts: int = 0,
    progress: bool = False,
    **options: Any,
) -> Report:
    """Start workers as processes of this host, and wait until all have ended.

    A worker that dies does not disturb the others, which start when the first has compiled the
    program, and read it from the cache. Each has one thread to compute with, unless
    NPROC says otherwise. Needs cloudpickle.

    Args:
        folder: see `work`.
        function: see `work`.
        num_workers: how many run at a time.
        key: see `work`.
        restarts: how many that die (by a signal, or without a word) are started again; each goes on
            where a dead one was.
        progress: print the report every ten seconds.
        options: `num`, `identity` and `bias` of `work`, and `seconds`, counted from this call.

    Returns:
        What is in the folder.

    Raises:
        ImportError: cloudpickle is missing.
        RuntimeError: a worker has ended with an error, or has died when no restart was left; when
            the others have ended too.

    Example:
        >>> import ergodax as ex, jax, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     report = ex.replicas.processes(
        ...         folder, jax.random.normal, 2, key=jax.random.key(0), num=50
        ...     )
        >>> report.num, len(report.workers)
        (100, 2)
    """
    num_workers = whole_number("num_workers", num_workers)
    left = whole_number("restarts", restarts, at_least=0)
    task, said = _task(folder, function, key, options), ""
    with tempfile.TemporaryDirectory() as scratch, _members() as start:
        program = Path(scratch) / "task"
        # The path first, so that functions of the user's modules are found.
        program.write_bytes(pickle.dumps(sys.path) + _pickled(task))
        errors = [Path(scratch) / f"{k}.txt" for k in range(num_workers)]
        running = {0: start(program, errors[0])}
        _first_compiled(task["folder"], running[0])
        running |= {k: start(program, errors[k]) for k in range(1, num_workers)}
        for _ in _shown(task["folder"], flag("progress", progress)):
            for k in [k for k, one in running.items() if one.poll() is not None]:
                if not (status := running.pop(k).returncode):
                    continue
                told = errors[k].read_text(errors="replace")[-2000:]
                if status > 0 and told:  # an error, which would come again
                    said = f"It said\n{told}"
                elif left:
                    left -= 1
                    running[k] = start(program, errors[k])
                else:
                    said = f"It died, with status {status}. Try more restarts={restarts}.\n{told}"
            if not running:
                break
    if said:
        raise RuntimeError(
            f"a worker ended with an error; what was finished is in {folder}. {said}"
        )
    return read(folder)


def _first_compiled(folder: str, first: Any) -> None:
    """Wait until the first worker has compiled the program, for all to read from the cache."""
    until = time.monotonic() + PATIENCE
    while first.poll() is None and time.monotonic() < until:
        if "://" in folder or any(Path(folder).glob(f"*{LOG}")):
            return
        time.sleep(POLL)


@contextlib.contextmanager
def _members() -> Generator[Callable[[Path, Path], Any]]:
    """A function that starts a worker of a task, with a file for its errors; none is left."""
    if sys.platform == "linux":  # elsewhere a fork isn't safe, or there is none
        with contextlib.closing(Forks()) as forks:
            yield forks.start
        return
    every: list[subprocess.Popen[bytes]] = []

    def start(program: Path, errors: Path) -> subprocess.Popen[bytes]:
        with open(errors, "wb") as file:
            environment = {"NPROC": "1"} | os.environ
            command = [sys.executable, "-m", "ergodax.replicas", str(program)]
            every.append(subprocess.Popen(command, stderr=file, env=environment))
        return every[-1]

    try:
        yield start
    finally:
        for one in every:
            one.kill()
            one.wait()


def _pickled(task: dict[str, Any]) -> bytes:
    try:
        import cloudpickle
    except ImportError as error:
        raise ImportError("processes need cloudpickle: pip install cloudpickle.") from error
    return cloudpickle.dumps(task)


def unpickled(path: str) -> int:
    """Be the worker of a task that `processes` has written."""
    with open(path, "rb") as file:
        sys.path[:] = pickle.load(file)
        return _call(pickle.load(file))


def ray(
    folder: Any,
    function: Callable[..., Any],
    num_workers: int,
    *,
    key: Any,
    address: str | None = None,
    retries: int = 100,
    progress: bool = False,
    **options: Any,
) -> Report:
    """Start workers as tasks of Ray, and wait until all have ended.

    A task whose process or node is lost is tried again by Ray, on any node. The folder must be one
    that all nodes share, or an object store's URL. Needs `pip install ergodax[ray]`.

    Args:
        folder: see `work`.
        function: see `work`.
        num_workers: tasks, of one CPU each unless `ray.init` has been told otherwise.
        key: see `work`.
        address: of a cluster, such as "auto"; by default Ray as it runs in this program, or else
            one of this host alone.
        retries: of each task.
        progress: print the report every ten seconds.
        options: `num`, `identity` and `bias` of `work`, and `seconds`, counted from this call.

    Returns:
        What is in the folder.

    Raises:
        ImportError: Ray is missing.

    Example: `ex.replicas.ray("/shared/run", estimate, 100, key=jax.random.key(0), seconds=600)`
    """
    try:
        import ray as engine  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError("Ray is missing: pip install ergodax[ray].") from error
    task, num_workers = (
        _task(folder, function, key, options),
        whole_number("num_workers", num_workers),
    )
    if not engine.is_initialized():
        engine.init(address=address, log_to_driver=False)
    retries = whole_number("retries", retries, at_least=0)
    call = engine.remote(max_retries=retries)(_call)
    stored = engine.put(task)
    pending = [call.remote(stored) for _ in range(num_workers)]
    waiting = list(pending)
    for _ in _shown(task["folder"], flag("progress", progress)):
        _, waiting = engine.wait(waiting, num_returns=len(waiting), timeout=POLL)
        if not waiting:
            break
    engine.get(pending)
    return read(folder)


def dask(
    folder: Any,
    function: Callable[..., Any],
    num_workers: int,
    *,
    key: Any,
    client: Any,
    progress: bool = False,
    **options: Any,
) -> Report:
    """Start workers as tasks of Dask, and wait until all have ended.

    The client may be one of dask-jobqueue (Slurm, PBS, LSF), of dask-kubernetes or of this host.
    Dask itself tries a task again whose process is lost, as often as its setting
    `distributed.scheduler.allowed-failures` says. Needs `pip install ergodax[dask]`.

    Args:
        folder: see `work`; one that all nodes share, or an object store's URL.
        function: see `work`; it is sent with each task, so data of gigabytes are better read by it.
        num_workers: tasks; as many run at a time as the cluster has threads.
        key: see `work`.
        client: a `distributed.Client`.
        progress: print the report every ten seconds.
        options: `num`, `identity` and `bias` of `work`, and `seconds`, counted from this call.

    Returns:
        What is in the folder.

    Raises:
        ImportError: Dask is missing.
        TypeError: not a client.

    Example: `ex.replicas.dask("/shared/run", estimate, 100, key=key, client=client, seconds=600)`
    """
    try:
        from distributed import Client, wait  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError("Dask is missing: pip install ergodax[dask].") from error
    instance("client", client, Client, "a distributed.Client, such as Client(n_workers=4)")
    task, num_workers = (
        _task(folder, function, key, options),
        whole_number("num_workers", num_workers),
    )
    # Within each call: one that needs scattered data Dask leaves behind a long one of a survivor,
    # and never gives it to the process that has replaced the dead one.
    futures = [client.submit(_call, task, pure=False) for _ in range(num_workers)]
    for _ in _shown(task["folder"], flag("progress", progress)):
        if not wait(futures, timeout=None if not progress else SHOW).not_done:
            break
    client.gather(futures)
    return read(folder)


def _shown(folder: str, progress: bool) -> Iterator[None]:
    """Again and again, with the report from time to time."""
    shown = time.monotonic()
    while True:
        yield
        if progress and time.monotonic() - shown > SHOW:
            with contextlib.suppress(FileNotFoundError):
                print(read(folder), flush=True)
            shown = time.monotonic()
        time.sleep(POLL)
