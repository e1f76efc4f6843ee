"""The posterior of a logistic regression with nothing to tune, and how wrong it may be.

`ex.infer` finds the mode, chooses the sampler, its batches and its step size, and goes on until
Monte Carlo error and measured bias of every mean and standard deviation are small enough.

Example: python examples/infer_logistic_regression.py
"""

import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex

rng = np.random.default_rng(1)
truth = np.array([1.0, -0.5, 0.25, 0.0])
X = rng.normal(size=(20_000, 4)).astype(np.float32)
y = (rng.uniform(size=20_000) < 1 / (1 + np.exp(-X @ truth))).astype(np.float32)


def log_prior(w):
    """N(0, 10^2) for each coefficient."""
    return -0.5 * jnp.sum(w**2) / 100.0


def log_likelihood(w, example):
    """Of one row; the library maps it over batches."""
    x, label = example
    return label * (x @ w) - jax.nn.softplus(x @ w)


posterior = ex.Posterior(log_prior, log_likelihood, data=(X, y))
result = ex.infer(posterior, jnp.zeros(4), key=jax.random.key(0), accuracy=0.1)
print(result)

table = result.table  # mean, sd and errors of each coefficient
distance = (table["mean"] - truth) / table["sd"]
print("distance of the truth, in posterior sds:", np.round(distance.to_numpy(), 2))
assert result.converged
assert np.abs(distance).max() < 5
