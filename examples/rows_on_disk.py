"""More rows than memory holds, a run that survives a kill, and one that is continued.

The rows are .npy files; each chain reads blocks of them while it samples. The folder `run` keeps
draws and state: the same call with `resume=True` goes on, to the same bits.

Example: python examples/rows_on_disk.py
"""

import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex

folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(0)
X = rng.normal(size=(50_000, 3)).astype(np.float32)
np.save(folder / "X.npy", X)
np.save(folder / "y.npy", (X @ [1.0, 0.0, -1.0] + rng.normal(size=50_000)).astype(np.float32))


def log_prior(w):
    """N(0, 1) for each coefficient."""
    return -0.5 * jnp.sum(w**2)


def log_likelihood(w, example):
    """Of one row, whose noise has variance 1."""
    x, y = example
    return -0.5 * (y - x @ w) ** 2


data = ex.data.npy(folder / "X.npy", folder / "y.npy", block_rows=10_000)
posterior = ex.Posterior(log_prior, log_likelihood, data=data)
mode = ex.find_mode(posterior, jnp.zeros(3))  # some passes over the files
kernel = ex.sghmc(ex.ControlVariate(posterior, 200, mode), step_size=1e-3, friction=50.0)
run = {"key": jax.random.key(0), "num_chains": 2, "thin": 5}

first = ex.sample(kernel, mode.position, 5_000, checkpoint=ex.Checkpoint(folder / "run"), **run)
more = ex.sample(
    kernel, mode.position, 20_000, checkpoint=ex.Checkpoint(folder / "run", resume=True), **run
)
assert np.array_equal(more.position[:, : first.num_draws], first.position)
print(more.summary())

again = ex.sample(kernel, state=more.final_state, num_steps=1_000, key=jax.random.key(1))
print("continued from the last state:", again.position.shape)
