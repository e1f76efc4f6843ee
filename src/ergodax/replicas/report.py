"""What is in a folder of replicas: the estimate, its error, and what each worker has done."""

import dataclasses
import os
import re
import socket
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from ergodax.checks import legible
from ergodax.replicas.places import place_of
from ergodax.replicas.records import Content, Manifest

BLOCK = 64  # values whose squares are summed at a time


@dataclasses.dataclass(frozen=True)
class Worker:
    """One worker of a folder.

    Attributes:
        name: its name.
        num: replicas that it has finished.
        evaluations: gradients of single examples that they took.
        seconds: that they took.
        last: seconds since the last.
        state: "ended" of itself, "stopped" by an error, "running" or "dead" where its process was
            on this host, else "not known".
        process: the number of its process on this host, None where it is not known.
    """

    name: str
    num: int
    evaluations: float
    seconds: float
    last: float
    state: str
    process: int | None


@dataclasses.dataclass(frozen=True)
class Report:
    """What `read` returns; `str` is a table.

    Attributes:
        num: replicas.
        estimate: their mean, a tree like what the function returns.
        error: its standard error, from their spread.
        values: all of them, along a leading axis.
        levels: the finest level of each.
        bias: of the estimate, in words.
        workers: those that have a log.
        ignored: what does not count, in words.
    """

    num: int
    estimate: PyTree
    error: PyTree
    values: PyTree
    levels: np.ndarray
    bias: str
    workers: list[Worker]
    ignored: list[str]

    def variance(self) -> PyTree:
        """Of the position, where the function returns "mean" and "second_moment".

        E x^2 - (E x)^2, and the square of the error of the mean, without which it would be too
        small: unbiased where the two moments are.

        Raises:
            KeyError: the function returns others.
        """
        mean, square = self.estimate["mean"], self.estimate["second_moment"]
        error = self.error["mean"]
        return jax.tree.map(lambda s, m, e: s - m**2 + e**2, square, mean, error)

    def __str__(self) -> str:
        """Estimate and error of the first numbers, and the workers."""
        lines = [f"{self.num} replicas of {len(self.workers)} workers; bias: {self.bias}"]
        rows = jax.tree_util.tree_leaves_with_path(self.estimate)
        errors = jax.tree.leaves(self.error)
        for (path, mean), error in zip(rows[:10], errors[:10], strict=True):
            name = jax.tree_util.keystr(path, simple=True, separator=".") or "value"
            many = np.size(mean) > 1
            pairs = zip(np.ravel(mean)[:3], np.ravel(error)[:3], strict=True)
            shown = ", ".join(f"{m:.5g} +- {e:.2g}" for m, e in pairs)
            lines.append(
                f"  {legible(name)}: {shown}{' ...' if many and np.size(mean) > 3 else ''}"
            )
        lines.append("worker            state      replicas  gradients  seconds  last")
        for w in self.workers[:50]:
            lines.append(
                f"{legible(w.name, 16):<17} {w.state:<10} {w.num:>8}  {w.evaluations:>9.3g}  "
                f"{w.seconds:>7.1f}  {w.last:.0f} s ago"
            )
        if len(self.workers) > 50:
            lines.append(f"and {len(self.workers) - 50} more")
        return "\n".join([*lines, *(f"ignored: {text}" for text in self.ignored)])


def read(folder: Any) -> Report:
    """Estimate and error of the replicas that are in a folder, and what each worker has done.

    It may be called at any time, by anybody; it changes nothing and waits for nobody.

    Args:
        folder: that of `work`.

    Raises:
        FileNotFoundError: no replicas are there.
        CheckpointError: the manifest is damaged.

    Example:
        >>> import ergodax as ex, jax, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     given = dict(key=jax.random.key(0), num=100, worker="first")
        ...     made = ex.replicas.work(folder, jax.random.normal, **given)
        ...     report = ex.replicas.read(folder)
        >>> report.num, bool(abs(report.estimate) < 4.0 * report.error)  # the mean is 0
        (100, True)
    """
    place = place_of(folder)
    there = place.manifest()
    if there is None:
        raise FileNotFoundError(f"{folder} has no replicas. Start a worker: ex.replicas.work.")
    manifest = Manifest.parse(there, str(folder))
    rows, workers, ignored = [np.empty(0, manifest.record)], [], []
    for name, log in place.read():
        content = Content(manifest, log)
        rows.append(content.rows)
        ignored += [f"worker {legible(name)}: {text}" for text in content.ignored]
        workers.append(_worker(name, content, place.process(name)))
    values = [
        np.concatenate([part["value"][f"f{k}"] for part in rows])
        for k in range(len(manifest.leaves))
    ]
    moments = [_moments(x) for x in values]
    return Report(
        len(values[0]),
        manifest.tree([mean for mean, _ in moments]),
        manifest.tree([error for _, error in moments]),
        manifest.tree(values),
        np.concatenate([part["level"] for part in rows]),
        manifest.bias,
        workers,
        ignored,
    )


def _moments(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean over the leading axis and its standard error, in double precision, by blocks."""
    count, shape = len(values), values.shape[1:]
    if not count:
        return np.full(shape, np.nan), np.full(shape, np.nan)
    mean = np.asarray(values.mean(axis=0, dtype=np.float64))
    squares = np.zeros(shape)
    for k in range(0, count, BLOCK):
        squares += np.sum((values[k : k + BLOCK] - mean) ** 2, axis=0)
    error = np.sqrt(squares / (count - 1) / count) if count > 1 else np.full(shape, np.nan)
    return mean, np.asarray(error)


def _worker(name: str, content: Content, process: str) -> Worker:
    rows = content.rows
    last = time.time() - float(rows["time"].max()) if len(rows) else np.nan
    found = re.fullmatch(r"process (\d+) on (.*)", process)
    here = int(found[1]) if found and found[2] == socket.gethostname() else None
    if content.ended:
        state = "ended"
    elif here is not None:
        state = "running" if _alive(here) else "dead"
    else:
        state = "stopped" if process == "nobody" else "not known"
    done = float(rows["evaluations"].sum()), float(rows["seconds"].sum())
    return Worker(name, len(rows), *done, last, state, here)


def _alive(process: int) -> bool:
    """Whether a process of this host runs."""
    if Path("/proc").is_dir():
        try:
            return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
