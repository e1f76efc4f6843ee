"""Data on disk: a step from a file larger than the memory allowed, beside one on resident data.

`python -m benchmarks streams` prints the table. Each run is a process of its own: `python -m
benchmarks.streams '{"folder": ...}'` does one and prints its figures. What is capped is its private
memory (RLIMIT_DATA): after compilation it may grow by CAP bytes, which holds the blocks, the draws
and nothing else; the library is told that this is all the memory there is, so that it reads larger
files past the kernel's cache. Before the clock starts the kernel is told to forget the file
(POSIX_FADV_DONTNEED), so that blocks come from the disk, as far as the machine below has no cache
of its own; the kernel counts the bytes that did.
"""

import argparse
import dataclasses
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import Table, verdict
from benchmarks.sections.settings import FULL, QUICK, Settings

BATCH_SIZE, THIN = 100, 10
CAP = 2**28
PIECE = 2**26  # bytes of a file made and read at a time
GOAL = 1.5


@dataclasses.dataclass(frozen=True)
class Case:
    """One run.

    Attributes:
        folder: with X.npy and y.npy.
        passes: over a block; 0 for resident data.
        steps: timed; no more than what reads the file once.
        rounds: of which the best counts.
    """

    folder: str
    passes: int
    steps: int
    rounds: int


def streams_table(settings: Settings) -> Table:
    """SGHMC from files of D = 10 and 129, float32 and uint8, one pass over a block and eight."""
    table = Table(
        f"streams: sghmc, batch {BATCH_SIZE}, thin={THIN}, files of {settings.stream_bytes / 1e9:g}"
        f" GB, {CAP / 1e9:.2g} GB allowed",
        ["file", "passes", "resident us", "stream us", "ratio", "KB/step", "GB/s needed",
         "GB/s from disk", "read alone GB/s"],
    )  # fmt: skip
    for dimension in (10, 129):
        for dtype in ("float32", "uint8"):
            with tempfile.TemporaryDirectory() as folder:
                _write(Path(folder), dimension, dtype, settings.stream_bytes)
                _rows(table, Path(folder), f"D={dimension} {dtype}", settings)
    worst = max(row["ratio"] for row in table.data.values())
    table.notes += [
        verdict("largest ratio to resident data", worst, GOAL),
        "needed: bytes of a batch over passes, at the speed of the resident run. From disk: what "
        "the kernel counted while the clock ran. Read alone: the file from end to end, nothing "
        "else running. Where needed comes near that, the disk sets the pace, and passes help.",
    ]
    return table


def _rows(table: Table, folder: Path, name: str, settings: Settings) -> None:
    alone = _read_alone(folder / "X.npy")
    runs = {
        passes: _run(Case(str(folder), passes, settings.stream_steps, settings.stream_rounds))
        for passes in (0, 1, 8)
    }
    for passes in (1, 8):
        one, resident = runs[passes], runs[0]["microseconds"]
        ratio = one["microseconds"] / resident
        bytes_a_step = BATCH_SIZE * one["row_bytes"] / passes
        table.rows.append(
            [
                name,
                str(passes),
                f"{resident:.2f}",
                f"{one['microseconds']:.2f}",
                f"{ratio:.2f}",
                f"{bytes_a_step / 1e3:.1f}",
                f"{bytes_a_step / resident / 1e3:.2f}",
                f"{one['disk'] / 1e9:.2f}",
                f"{alone / 1e9:.2f}",
            ]
        )
        table.data[f"{name} passes={passes}"] = {**one, "ratio": ratio, "alone": alone}


def _write(folder: Path, dimension: int, dtype: str, size: int) -> None:
    """X.npy of about `size` bytes, standardised features, and y.npy, one byte a row."""
    kind, rng = np.dtype(dtype), np.random.default_rng(0)
    piece = PIECE // (dimension * kind.itemsize)
    pieces = max(1, round(size / PIECE))
    x = rng.normal(size=(piece, dimension)) if kind.kind == "f" else rng.integers(
        0, 5, (piece, dimension)
    )  # fmt: skip
    y = rng.integers(0, 2, piece)
    for name, part in (("X", x.astype(kind)), ("y", y.astype("u1"))):
        with open(folder / f"{name}.npy", "wb") as file:
            shape = (pieces * piece, *part.shape[1:])
            header = {"descr": part.dtype.str, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_2_0(file, header)
            for _ in range(pieces):  # the same rows again: only their number matters
                part.tofile(file)
            file.flush()
            os.fsync(file.fileno())


def _forget(path: Path) -> None:
    """Drop what the kernel has cached of a file."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read_alone(path: Path) -> float:
    """Bytes a second of reading the file from end to end."""
    _forget(path)
    memory, total, begin = bytearray(PIECE // 2), 0, time.perf_counter()
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(memory):
            total += count
    return total / (time.perf_counter() - begin)


def _run(case: Case) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.streams", json.dumps(dataclasses.asdict(case))]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{case} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks streams", description="Data on disk, compared with data in memory."
    )
    parser.add_argument("--quick", action="store_true", help="smaller files")
    options = parser.parse_args(arguments)
    print(streams_table(QUICK if options.quick else FULL).text())


def run_case() -> None:
    """One run, in this process: its figures as JSON."""
    case = Case(**json.loads(sys.argv[1]))
    import jax
    import jax.numpy as jnp

    import ergodax as ex
    from ergodax.data import files

    def log_likelihood(w: Any, example: Any) -> Any:
        x, y = example
        score = x.astype(w.dtype) @ w
        return y.astype(w.dtype) * score - jax.nn.softplus(score)

    files.memory = lambda: CAP
    paths = [Path(case.folder) / name for name in ("X.npy", "y.npy")]
    data: Any = ex.data.npy(*paths, passes=max(1, case.passes))
    row_bytes, dimension = data.nbytes / data.block_rows, data.row[0].shape[0]
    if not case.passes:
        data = tuple(np.load(path) for path in paths)
    posterior = ex.Posterior(lambda w: -0.05 * jnp.sum(w**2), log_likelihood, data)
    # A file read twice would come from the kernel's cache the second time.
    steps = min(case.steps, max(1, case.passes) * posterior.num_data // BATCH_SIZE)
    # The steps of this posterior do not matter, only that they stay finite.
    kernel = ex.sghmc(ex.Minibatch(posterior, BATCH_SIZE), 0.1 / posterior.num_data**0.5, 100.0)

    def run(seed: int, steps: int) -> None:
        start = jnp.zeros(dimension)
        ex.sample(kernel, start, steps, key=jax.random.key(seed), thin=THIN, progress=False)

    run(0, steps)
    if case.passes:
        limit = _status("VmData") + CAP
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    best, disk = float("inf"), 0.0
    for seed in range(case.rounds):
        for path in paths if case.passes else ():
            _forget(path)
        before, begin = _read_bytes(), time.perf_counter()
        run(seed + 1, steps)
        seconds = time.perf_counter() - begin
        if seconds < best:
            best, disk = seconds, (_read_bytes() - before) / seconds
    figures = {"microseconds": 1e6 * best / steps, "disk": disk, "row_bytes": row_bytes}
    print(json.dumps({**figures, "peak": _status("VmHWM")}))


def _status(name: str) -> int:
    """Bytes, of a line of /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name + ":"))


def _read_bytes() -> int:
    """Bytes that this process had fetched from the disk."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


if __name__ == "__main__":
    run_case()
