"""How long a script takes from its first import to infer's verdict, in a process of its own.

    python -m benchmarks first_answer

The first process compiles every program; the next find them in the cache folder, which is a fresh
one. Python's bytecode is kept there too, as it is where the package was installed by pip. The model
is a logistic regression of ten coefficients whose data are read from a file.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.environment import describe
from benchmarks.report import Table, verdict

ROWS, GOAL = 50_000, 3.0  # rows for which a later process shall need no more seconds
COEFFICIENTS = 10
# Which compiles the bytecode.
IMPORTS = "import arviz_stats, ergodax, pandas, scipy.optimize, threadpoolctl; ergodax.infer"
SCRIPT = """
import time
began = time.perf_counter()
import sys
import jax, jax.numpy as jnp, numpy as np
import ergodax as ex
imported = time.perf_counter()
table = np.load(sys.argv[1])
x, y = table["x"], table["y"]

def log_likelihood(w, row):
    score = row[0] @ w
    return row[1] * score - jax.nn.softplus(score)

posterior = ex.Posterior(lambda w: -0.5 * jnp.sum(w**2) / 100.0, log_likelihood, data=(x, y))
result = ex.infer(posterior, jnp.zeros(x.shape[1]), key=jax.random.key(0), progress=False)
verdict = result.verdict()
ended = time.perf_counter()
told = "converged" if result.converged else "not converged"
print(f"{imported - began:.2f} {ended - began:.2f} {told}")
"""


def seconds(code: str, folder: Path, *arguments: str) -> list[str]:
    """What code prints in a process of its own that keeps bytecode and programs in a folder."""
    kept = {"ERGODAX_CACHE": str(folder), "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    others = "PYTHONDONTWRITEBYTECODE", "ERGODAX_PROGRAMS"
    environment = {k: v for k, v in os.environ.items() if k not in others} | kept
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return done.stdout.strip().split(maxsplit=2)


def made(num_data: int, folder: Path) -> Path:
    """A file of so many rows."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((num_data, COEFFICIENTS), np.float32)
    chances = 1.0 / (1.0 + np.exp(-x @ (0.3 * rng.standard_normal(COEFFICIENTS))))
    path = folder / f"{num_data}.npz"
    np.savez(path, x=x, y=(rng.random(num_data) < chances).astype(np.float32))
    return path


def main(arguments: Sequence[str]) -> None:
    """Print the seconds of a first process and of later ones."""
    parser = argparse.ArgumentParser("python -m benchmarks first_answer", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 50_000, 500_000])
    parser.add_argument("--repeats", type=int, default=5, help="later processes; the median counts")
    parser.add_argument("--output", type=Path, help="a file for the table, in Markdown")
    given = parser.parse_args(arguments)
    columns = "rows", "process", "imports, s", "to the verdict, s", "verdict"
    table = Table("Seconds from the first import to the verdict", columns)
    for size in given.sizes:
        with tempfile.TemporaryDirectory() as name:
            data = made(size, Path(name))
            seconds(IMPORTS, Path(name))
            runs = [seconds(SCRIPT, Path(name), str(data)) for _ in range(1 + given.repeats)]
        first, *later = runs
        imports, whole = (statistics.median(float(run[k]) for run in later) for k in (0, 1))
        table.rows.append([f"{size:,}", "the first", *first])
        table.rows.append([f"{size:,}", "later", f"{imports:.2f}", f"{whole:.2f}", later[0][2]])
        if size == ROWS:
            table.notes.append(verdict("a later process's answer", whole, GOAL))
    table.notes += [f"{name}: {value}" for name, value in describe().items()]
    print(table.text())
    if given.output:
        given.output.write_text(table.markdown() + "\n")
