"""Gradients with less noise for the same work: control variates, SVRG and SAGA.

What counts is the variance of the estimate at typical positions, and what a step costs. The plain
batch's noise heats SGLD at this step; that of the others does not.

Example: python examples/less_noise.py
"""

import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex

rng = np.random.default_rng(0)
X = rng.normal(size=(10_000, 3)).astype(np.float32)
y = (rng.uniform(size=10_000) < 1 / (1 + np.exp(-X.sum(1)))).astype(np.float32)


def log_prior(w):
    """N(0, 1) for each coefficient."""
    return -0.5 * jnp.sum(w**2)


def log_likelihood(w, example):
    """Of one row."""
    x, label = example
    return label * (x @ w) - jax.nn.softplus(x @ w)


posterior = ex.Posterior(log_prior, log_likelihood, (X, y))
mode = ex.find_mode(posterior, jnp.zeros(3))
reference = ex.sample(
    ex.hmc(posterior, 0.02, num_leapfrog_steps=10), mode.position, 2_000, key=jax.random.key(9)
)
estimators = {
    "batch of 50": ex.Minibatch(posterior, 50),
    "control variate": ex.ControlVariate(posterior, 50, mode),
    "SVRG": ex.SVRG(posterior, 50, period=200),
    "SAGA": ex.SAGA(posterior, 50),
}
print("sd of the draws, divided by that of HMC; 1 is right")
ratios = {}
for name, gradient in estimators.items():
    samples = ex.sample(
        ex.sgld(gradient, 5e-5), mode.position, 30_000, thin=5, burn_in=5_000,
        num_chains=4, key=jax.random.key(1),
    )  # fmt: skip
    ratios[name] = samples.position.std((0, 1)).mean() / reference.position.std((0, 1)).mean()
    print(f"{name:16s} {ratios[name]:.2f}")
assert ratios["batch of 50"] > 1.3
assert abs(ratios["control variate"] - 1) < 0.2
