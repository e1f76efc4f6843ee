"""What survives, measured: `python -m benchmarks.reliability`.

Runs are killed at random instants and resumed; data are read from disk while sampling; a process
of two is killed. The figures of docs/reliability.md come from here.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp

import ergodax as ex
from benchmarks import environment
from benchmarks.hosts import losses_table, steps_table
from benchmarks.sections.settings import FULL, QUICK
from benchmarks.streams import streams_table
from ergodax.apps.reliability import kills, runs

SECTIONS = ("kills", "memory", "streams", "hosts")


def main() -> None:
    """Run the sections and print each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50, help="of each run (50)")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    parser.add_argument("--quick", action="store_true", help="smaller files, five kills")
    options = parser.parse_args()
    print("\n".join(f"{name:>12}: {value}" for name, value in environment.describe().items()))
    if "kills" in options.only:
        _kills(5 if options.quick else options.kills)
    if "memory" in options.only:
        _memory(1_000_000 if options.quick else 10_000_000)
    if "streams" in options.only:
        print(streams_table(QUICK if options.quick else FULL).text(), flush=True)
    if "hosts" in options.only:
        print(f"\n{steps_table().text()}\n", flush=True)
        print(losses_table(1 if options.quick else 3).text(), flush=True)


def _kills(times: int) -> None:
    print("\nkilled at random instants, resumed, compared with the run that was not killed")
    for kind in runs.KERNELS:
        with tempfile.TemporaryDirectory() as folder:
            found = kills.drill(kind, times, Path(folder), seed=time.time_ns(), say=print)
        print(
            f"  {kind}: {found.kills} kills, {found.in_writing} of them in the middle of writing a "
            f"file; {found.finished} runs came to their end, with {found.lost} draws lost or "
            f"doubled, {found.different} arrays that differ in a bit; the store could not be read, "
            f"or was wrong, after {found.unreadable} kills; {found.seconds:.0f} s",
            flush=True,
        )


def _memory(steps: int) -> None:
    """Resident memory of a run as it gets longer, its draws thinned to 1,000 or stored."""
    print(f"\nmemory of SGHMC on 20,000 rows in memory, up to {steps:,} steps of each of 2 chains")
    with tempfile.TemporaryDirectory() as folder:
        for count in (steps // 100, steps // 10, steps):
            kernel = ex.online.accumulate(runs.in_memory(Path(folder)), moments=ex.online.Moments())
            ex.sample(
                kernel, jnp.zeros(runs.COLUMNS), count, thin=count // 1000, num_chains=2,
                key=jax.random.key(0), progress=False,
                checkpoint=ex.Checkpoint(store=Path(folder) / str(count)),
            )  # fmt: skip
            print(f"  {count:>12,} steps: {_resident():.0f} MB resident", flush=True)


def _resident() -> float:
    """MB of this process in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
