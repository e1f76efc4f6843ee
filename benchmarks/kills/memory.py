"""Resident memory of a run as it gets longer, its draws thinned to 1,000 or stored."""

import os
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp

import ergodax as ex
from benchmarks.kills import kinds


def memory(steps: int) -> None:
    """Print it for runs of a hundredth, a tenth and all of so many steps."""
    print(f"\nmemory of SGHMC on 20,000 rows in memory, up to {steps:,} steps of each of 2 chains")
    with tempfile.TemporaryDirectory() as folder:
        for count in (steps // 100, steps // 10, steps):
            kernel = kinds.sghmc(ex.SAGA(kinds.posterior(), 50))
            kernel = ex.online.accumulate(kernel, moments=ex.online.Moments())
            ex.sample(
                kernel, jnp.zeros(kinds.COLUMNS), count, thin=count // 1000, num_chains=2,
                key=jax.random.key(0), progress=False,
                checkpoint=ex.Checkpoint(store=Path(folder) / str(count)),
            )  # fmt: skip
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            resident = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
            print(f"  {count:>12,} steps: {resident:.0f} MB resident", flush=True)
