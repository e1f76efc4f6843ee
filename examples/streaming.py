"""Rows from an iterator, and results kept as running sums instead of draws.

`data.stream` takes any function that makes an iterator over all rows. `online.accumulate` keeps
means, variances and quantiles of every step, in memory that does not grow.

Example: python examples/streaming.py
"""

import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex

ROWS = 100_000


def pieces():
    """All rows, a thousand at a time, as a database or a queue would give them."""
    rng = np.random.default_rng(0)
    for _ in range(ROWS // 1_000):
        yield rng.normal([0.5, -0.5], 1.0, size=(1_000, 2)).astype(np.float32)


data = ex.data.stream(pieces, num_rows=ROWS, block_rows=10_000)
posterior = ex.Posterior(
    lambda w: -0.5 * jnp.sum(w**2), lambda w, x: -0.5 * jnp.sum((x - w) ** 2), data
)
mode = ex.find_mode(posterior, jnp.zeros(2))
gradient = ex.ControlVariate(posterior, 200, mode)
kernel = ex.online.accumulate(ex.sgld(gradient, 1e-6), moments=ex.online.Moments(), after=2_000)
samples = ex.sample(kernel, mode.position, 20_000, thin=20_000, num_chains=2, key=jax.random.key(1))
moments = kernel.results(samples)["moments"]
print("mean", moments["mean"], "sd", np.sqrt(moments["variance"]), "exact", ROWS**-0.5)
assert np.allclose(moments["mean"], [0.5, -0.5], atol=0.02)
assert np.allclose(np.sqrt(moments["variance"]), ROWS**-0.5, rtol=0.3)
