"""A process that starts copies of itself to run and be killed: `python -m` this module.

It has imported everything but used nothing of it, so that a copy begins to sample at once. For
each line on standard input it forks one, prints its number, waits for its end, and prints that.
"""

import os
import sys
from pathlib import Path

import jax
import zarr  # noqa: F401  imported here so that the copies need not

import ergodax as ex
from benchmarks.kills import runs


def serve(kind: str, folder: Path) -> None:
    """Fork a run whenever asked.

    Args:
        kind: which run.
        folder: its checkpoint is in `run`, the programs that were compiled in `programs`.
    """
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            _begin(kind, folder)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _begin(kind: str, folder: Path) -> None:
    """The life of a copy: resume, run to the end, leave."""
    code = 1
    try:
        jax.config.update("jax_compilation_cache_dir", str(folder / "programs"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        kept = ex.Checkpoint(folder / "run", every=runs.SAVE_EVERY, resume=True)
        samples = runs.run(kind, folder, runs.STEPS[kind], checkpoint=kept)
        samples.save(folder / runs.RETURNED)
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]))
