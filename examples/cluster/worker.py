"""One of any number of workers, which share a folder alone: python worker.py FOLDER SECONDS."""

import sys

import jax
import jax.numpy as jnp

import ergodax as ex


def log_prior(w):
    """Standard normal."""
    return -0.5 * jnp.sum(w**2)


def log_likelihood(w, example):
    """Of a logistic regression."""
    x, y = example
    return y * (x @ w) - jax.nn.softplus(x @ w)


x = jax.random.normal(jax.random.key(1), (200, 3))
y = jax.random.bernoulli(jax.random.key(2), jax.nn.sigmoid(x[:, 0])).astype(jnp.float32)
posterior = ex.Posterior(log_prior, log_likelihood, (x, y))
mode = ex.find_mode(posterior, jnp.zeros(3))
# The largest curvature is about 50: a step of half the stable length, and 2 sqrt(50) of friction.
estimate = ex.replicas.unbiased(
    ex.FullGradient(posterior), mode.position, 0.1, 14.0, burn_in=40, num_draws=100, rate=0.1
)

if __name__ == "__main__":
    folder, seconds = sys.argv[1:]
    ex.replicas.work(folder, estimate, key=jax.random.key(0), seconds=float(seconds))
    print(ex.replicas.read(folder))
